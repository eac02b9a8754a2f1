"""What one line of a rank's log says: how far the boot has come, a fault, a hint, periodic noise, or nothing special.

A classified line is one of `Marker | Proof | Fault | Detail | Hint | Noise | Plain`. `progress_key` is the text by
which two lines count as the same: one that merely repeats with another time, pid, port or duration is no progress.
"""

import re
from dataclasses import dataclass
from enum import IntEnum

from cluster.plan.faultlines import Detail, Fault, Hint, find_fault


class Phase(IntEnum):
    """How far a rank's boot has come, in order. A headless rank ends at READY (CUDA) or KV_SIZED (CPU)."""

    LAUNCHED = 0
    CLI_UP = 1
    ENGINE = 2
    WAITING = 3
    JOINED = 4
    LOADING = 5
    LOADED = 6
    COMPILED = 7
    KV_SIZED = 8
    GRAPHS = 9
    READY = 10
    HTTP_UP = 11

    @property
    def text(self) -> str:
        return _PHASE_TEXTS[self]


_PHASE_TEXTS = {
    Phase.LAUNCHED: "starting",
    Phase.CLI_UP: "reading its settings",
    Phase.ENGINE: "starting the engine",
    Phase.WAITING: "waiting for its peer",
    Phase.JOINED: "joined its peer",
    Phase.LOADING: "loading weights",
    Phase.LOADED: "weights loaded",
    Phase.COMPILED: "compiled",
    Phase.KV_SIZED: "KV cache sized",
    Phase.GRAPHS: "capturing graphs",
    Phase.READY: "engine ready",
    Phase.HTTP_UP: "HTTP up",
}


@dataclass(frozen=True, slots=True)
class Marker:
    """A phase was reached; detail is the rendezvous (WAITING) or what is counted; step of total if known."""

    phase: Phase
    detail: str = ""
    step: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """The overlay says that it is active in a process of this rank, with these parts."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Noise:
    """A line that comes back by itself while nothing moves. It never counts as progress."""


@dataclass(frozen=True, slots=True)
class Plain:
    """Any other line."""


Line = Marker | Proof | Fault | Detail | Hint | Noise | Plain

# Every writer of these logs has its own idea of a line's head; each is cut, in turn, until none is left.
_HEADS = re.compile(
    r"""^(?:
        \((?:[\w.\-]+)\ pid=\d+\)\s?
      | \[rank\d+\]:\s?
      | (?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\ \d\d-\d\d\ \d\d:\d\d:\d\d(?:\.\d+)?\ \[[^\]]*\]\s?
      | \[?[IWEF]\d{4}\ \d\d:\d\d:\d\d\.\d+(?:\s+\d+)?\ [^\]\s]+:\d+\]\s?
      | \[?\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?\s?
      | [\w.\-]+:\d+:\d+\ \[\d+\]\s?
    )""",
    re.VERBOSE,
)
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

_MARKERS: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (Phase.CLI_UP, re.compile(r"^non-default args: |^Resolved architecture: | version \d+\.\d+\.\d+\S*\s*$")),
    (Phase.ENGINE, re.compile(r"^Initializing a V1 LLM engine |^Launching vLLM \(.*headless|^DP group leader: ")),
    (Phase.WAITING, re.compile(r"^world_size=\d+ rank=\d+ .*distributed_init_method=(?P<detail>\S+)")),
    (Phase.JOINED, re.compile(r"^rank \d+ in world size \d+ is assigned as ")),
    (Phase.LOADED, re.compile(r"^Model loading took |^Loading weights took ")),
    (
        Phase.LOADING,
        re.compile(r"^Starting to load model |^Loading .*?(?P<detail>\d+% Completed) \| (?P<step>\d+)/(?P<total>\d+)"),
    ),
    (Phase.COMPILED, re.compile(r"^torch\.compile took |^Initial profiling/warmup run took ")),
    (
        Phase.KV_SIZED,
        re.compile(
            r"^(?:CPU|GPU) KV cache size: (?P<detail>[\d,]+ tokens)|^Explicitly set .* for KV cache"
            r"|^Available KV cache memory|^Initial free memory .* KV Cache"
        ),
    ),
    (
        Phase.GRAPHS,
        re.compile(
            r"^Capturing CUDA graphs(?P<detail>.*?):\s+\d+%.*?(?P<step>\d+)/(?P<total>\d+)|^Graph capturing finished"
        ),
    ),
    (Phase.READY, re.compile(r"^init engine \(.*\) took |^Kernel JIT monitor activated")),
    (Phase.HTTP_UP, re.compile(r"^Starting vLLM server on (?P<detail>\S+)|^INFO:\s+Application startup complete")),
)

_PROOF = re.compile(r"^spark_overlay \S+ active in vLLM \S+: (?P<parts>.*)$")
_NOISE = re.compile(
    r"No available shared memory broadcast block found"
    r"|^Engine \d+: Avg prompt throughput: "
    r"|\"(?:GET|HEAD) /(?:health|metrics|ping|load|version)(?:\?\S*)? HTTP/"
    r"|\[c10d\] |^\s*Exception raised from |^frame #\d+: "
    r"|^\[\S*mem\S*\] tick\b"
    r"|^\s*$|^Traceback \(most recent call last\):|^\s+File \"|^\s+\.\.\. ",
    re.IGNORECASE,
)
_KEPT_COUNTER = re.compile(r"\d+(?:\.\d+)?%|(?<![\d.:])\d+/\d+(?![\d.])")
_TQDM_TAIL = re.compile(r"\s*\[\d*[:\d]*<.*$")
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b|\d+(?:[.,:]\d+)*")
_KEY_LENGTH = 160


def message_of(raw: str) -> str:
    """The line without its process names, levels, times and source positions."""
    text = _ANSI.sub("", raw.rsplit("\r", 1)[-1]).rstrip()
    while (match := _HEADS.match(text)) is not None:
        text = text[match.end() :]
    return text


def classify(raw: str) -> Line:
    """What this line of a rank's log says."""
    message = message_of(raw)
    if message.startswith("NCCL INFO "):  # what it tells in passing may have the words of a fault in it
        return Plain()
    fault = find_fault(message)
    if fault is not None:
        return fault
    for phase, pattern in _MARKERS:
        match = pattern.search(message)
        if match is not None:
            return _marker(phase, match)
    proof = _PROOF.search(message)
    if proof is not None:
        return Proof(tuple(proof["parts"].split()))
    return Noise() if _NOISE.search(message) else Plain()


def progress_key(raw: str) -> str:
    """The text by which lines count as the same: percentages and i/n are kept, every other number is blanked."""
    message = _TQDM_TAIL.sub("", message_of(raw))
    kept = _KEPT_COUNTER.findall(message)
    blanked = _VARIABLE.sub("#", _KEPT_COUNTER.sub("@", message))
    return (blanked[:_KEY_LENGTH] + "".join(f"|{counter}" for counter in kept[:4])).strip()


def _marker(phase: Phase, match: re.Match[str]) -> Marker:
    found = match.groupdict()
    step, total = found.get("step"), found.get("total")
    return Marker(
        phase, (found.get("detail") or "").strip(), int(step) if step else None, int(total) if total else None
    )
