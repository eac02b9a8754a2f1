"""Read the few counters we judge by out of vLLM's Prometheus text."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counters:
    """Tokens done so far and requests in hand, summed over engines; kv_usage is 0 to 1, of the fullest engine.

    `steps` of the engine move during a long chunked prefill, when no token counter does.
    """

    prompt: float
    generation: float
    running: float
    waiting: float
    kv_usage: float = 0.0
    steps: float = 0.0

    def moved_since(self, before: "Counters") -> bool:
        return (self.prompt, self.generation, self.steps) != (before.prompt, before.generation, before.steps)


_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+(?P<value>\S+)", re.MULTILINE)
_NEEDED = (
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
)
_KV_USAGE = "vllm:kv_cache_usage_perc"
_STEPS = "vllm:iteration_tokens_total_count"


def read_counters(text: str) -> Counters | None:
    """The counters in a /metrics page, or None when the page lacks one of them (not vLLM, or not yet up)."""
    values: dict[str, list[float]] = {}
    for match in _SAMPLE.finditer(text):
        if match["name"] in _NEEDED or match["name"] in (_KV_USAGE, _STEPS):
            number = _number(match["value"])
            if number is not None:
                values.setdefault(match["name"], []).append(number)
    if any(name not in values for name in _NEEDED):
        return None
    prompt, generation, running, waiting = (sum(values[name]) for name in _NEEDED)
    usage, steps = max(values.get(_KV_USAGE, [0.0])), sum(values.get(_STEPS, [0.0]))
    return Counters(prompt, generation, running, waiting, usage, steps)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number else None  # NaN is Prometheus's way to say "nothing yet"
