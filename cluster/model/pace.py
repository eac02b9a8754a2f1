"""How fast a served model answers chats."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds: percentiles with linear interpolation between neighbours, and the mean."""

    p50: float
    p95: float
    p99: float
    mean: float


@dataclass(frozen=True, slots=True)
class ChatBenchReport:
    """Answers of a served model under load.

    counted        the server counted every answer's tokens; else its pieces stand for them, which can hold several
    aggregate_tps  new tokens over the time from the first question to the last answer
    llmkube_tps    the same tokens over the time from the first answer to the last, as llmkube-bench has it: too much,
                   most of all for one question at a time; None when there is one answer
    """

    deployment: str
    url: str
    model: str
    at_once: int
    requests: int
    answered: int
    prompt_tokens: int
    new_tokens: int
    counted: bool
    seconds: float
    aggregate_tps: float
    llmkube_tps: float | None
    first_token: Spread | None
    between_pieces: Spread | None
    errors: tuple[str, ...] = ()
