"""From single answers to the pace of a server."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.model.pace import Spread

MS = 1000.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer; times in seconds from the first question that counts, token counts None when the server told none."""

    began: float
    ended: float
    first: float | None
    gaps: tuple[float, ...]
    pieces: int
    prompt_tokens: int | None
    new_tokens: int | None
    error: str = ""

    @property
    def new(self) -> int:
        return self.pieces if self.new_tokens is None else self.new_tokens


@dataclass(frozen=True, slots=True)
class Pace:
    """What the answers without an error come to."""

    new_tokens: int
    counted: bool
    seconds: float
    aggregate_tps: float
    llmkube_tps: float | None
    first_token: Spread | None
    between_pieces: Spread | None


def pace(samples: Sequence[Sample]) -> Pace:
    good = [one for one in samples if not one.error]
    tokens = sum(one.new for one in good)
    ended = [one.ended for one in good]
    seconds = max(ended) - min(one.began for one in good) if good else 0.0
    between = max(ended) - min(ended) if good else 0.0
    return Pace(
        new_tokens=tokens,
        counted=all(one.new_tokens is not None for one in good),
        seconds=seconds,
        aggregate_tps=tokens / seconds if seconds else 0.0,
        llmkube_tps=tokens / between if between else None,
        first_token=spread([one.first for one in good if one.first is not None]),
        between_pieces=spread([gap for one in good for gap in one.gaps]),
    )


def spread(seconds: Sequence[float]) -> Spread | None:
    if not seconds:
        return None
    median, most, nearly_all = (percentile(seconds, share) * MS for share in (0.5, 0.95, 0.99))
    return Spread(median, most, nearly_all, mean=sum(seconds) / len(seconds) * MS)


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between the two neighbours of place `share` of the way from the first to the last."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
