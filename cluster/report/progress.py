"""The words for what is going on: how far something is, and what the checks found."""

from collections import Counter

from cluster.model.events import Bound, Finding, Progress, Severity, StageEnded, StepStarted, Told
from cluster.model.units import format_bytes, format_duration
from cluster.report.layout import Line, Span, Tone, grid, hanging, line

WORDS = {
    Severity.REFUSAL: ("refused", Tone.BAD),
    Severity.WARNING: ("warning", Tone.WARN),
    Severity.NOT_CHECKED: ("not checked", Tone.WARN),
    Severity.NOTE: ("note", Tone.LINK),
    Severity.OK: ("ok", Tone.GOOD),
}
_ORDER = tuple(WORDS)


def amount_text(progress: Progress) -> str:
    """`41.2 of 99.5 GiB`, `3 of at most 48 shards`, or only what is done where no end is known."""
    if not progress.unit:
        return ""
    now = _amount(progress.current, progress.unit)
    if progress.total is None:
        return now
    total = _amount(progress.total, progress.unit)
    amount, _, unit = now.rpartition(" ")
    most = "at most " if progress.bound is Bound.UPPER else ""
    return f"{amount if total.endswith(f' {unit}') else now} of {most}{total}"


def rate_text(progress: Progress) -> str:
    """`2.1 GiB/s`; empty when unknown."""
    if not progress.rate or not progress.unit:
        return ""
    return f"{_amount(progress.rate, progress.unit)}/s"


def left_text(progress: Progress) -> str:
    """`28 s left`; empty when it cannot be said. Where the total is only a limit, so is this."""
    if not progress.rate or progress.rate < 0 or progress.total is None or progress.total <= progress.current:
        return ""
    return f"{whole_seconds((progress.total - progress.current) / progress.rate)} left"


def whole_seconds(seconds: float) -> str:
    """For a running display: `7 s`, `1 min 12 s`; tenths would only flicker."""
    return f"{seconds:.0f} s" if seconds < 10 else format_duration(round(seconds))


def share(progress: Progress) -> float | None:
    """From 0 to 1; None where no end is known."""
    if not progress.total or progress.total < 0:
        return None
    return min(max(progress.current / progress.total, 0.0), 1.0)


def who(progress: Progress) -> str:
    """The node, and the rank where it is one rank's progress."""
    return progress.node if progress.rank is None else f"{progress.node} rank {progress.rank}".strip()


def progress_text(progress: Progress) -> str:
    """One line: `spark-a rank 0: loading weights, 41.2 of 99.5 GiB (41 %), 2.1 GiB/s, 28 s left`."""
    part = share(progress)
    percent = "" if part is None else f" ({part:.0%})".replace("%", " %")
    amount = f"{amount_text(progress)}{percent}" if progress.unit else ""
    parts = [progress.text, amount, rate_text(progress), left_text(progress)]
    parts += ["nothing new, still watching"] if progress.heartbeat else []
    said = ", ".join(part for part in parts if part)
    return f"{who(progress)}: {said}" if who(progress) else said


def _amount(amount: float, unit: str) -> str:
    return format_bytes(int(amount)) if unit == "bytes" else f"{amount:.10g} {unit}".replace(".0 ", " ")


class Findings:
    """Collects what the checks of a stage saw, to show it as one table, the worst first."""

    def __init__(self) -> None:
        self._seen: list[Finding] = []

    def add(self, finding: Finding) -> None:
        self._seen.append(finding)

    def counts(self) -> str:
        """`1 warning, 23 ok`."""
        number = Counter(one.severity for one in self._seen)
        return ", ".join(f"{number[one]} {WORDS[one][0]}" for one in _ORDER if number[one])

    def take(self, shown: frozenset[Severity], width: int | None) -> list[Line]:
        """The table of those that are shown; forgets all."""
        chosen = sorted(
            (one for one in self._seen if one.severity in shown), key=lambda one: _ORDER.index(one.severity)
        )
        self._seen.clear()
        rows = [row for one in chosen for row in _rows(one)]
        return grid(("", "", "", ""), rows, width=width, wrapped=True)


def _rows(finding: Finding) -> list[tuple[str | Span, ...]]:
    word, tone = WORDS[finding.severity]
    wanted = f"; expected {finding.expected}" if finding.expected and finding.severity is not Severity.OK else ""
    first = (Span(word, tone), finding.node, Span(finding.id, Tone.DIM), finding.observed + wanted)
    fix = finding.fix if finding.severity is not Severity.OK else ""
    return [first, *([("", "", Span("try", Tone.DIM), Span(fix, Tone.GOOD))] if fix else [])]


def told_lines(told: Told, width: int | None) -> list[Line]:
    word, tone = WORDS[told.severity]
    return hanging(Span(f"{word}: ", tone), f"{told.node}: {told.text}" if told.node else told.text, width)


def ended_lines(ended: StageEnded, counts: str, width: int | None, mark: Span) -> list[Line]:
    """`preflight done in 1.2 s: 1 warning, 23 ok`; the mark may be empty."""
    detail = ", ".join(part for part in (ended.detail, counts) if part)
    outcome = "done in" if ended.ok else "failed after"
    said = f"{ended.stage} {outcome} {format_duration(ended.seconds)}" + (f": {detail}" if detail else "")
    return hanging(mark, said, width)


def step_lines(step: StepStarted) -> list[Line]:
    lines = [line("  ", Span(step.node, Tone.LINK), f": {step.why}")]
    return [*lines, line(Span(f"    $ {step.command}", Tone.DIM))] if step.command else lines
