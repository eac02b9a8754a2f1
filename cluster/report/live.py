"""What a live display shows at one moment, as lines: the running stages and each node's or rank's phase in them."""

from dataclasses import dataclass, replace

from cluster.model.events import Progress, StageStarted, StepStarted
from cluster.model.units import format_duration
from cluster.report.layout import Line, Span, Tone, cells, line, shorten
from cluster.report.progress import amount_text, left_text, rate_text, share, who, whole_seconds

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_QUIET_AFTER = 30.0
_ROOMY = 100
_PHASE = 18
_WORD = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One node's or rank's phase. `since`: when the phase began, `moved`: when anything was last new."""

    label: str
    text: str
    since: float
    moved: float
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """A stage that has begun and not ended; rows keep the order in which they first appeared."""

    stage: str
    since: float
    rows: tuple[Row, ...] = ()

    def with_row(self, row: Row) -> "Running":
        if any(old.label == row.label for old in self.rows):
            return replace(self, rows=tuple(row if old.label == row.label else old for old in self.rows))
        return replace(self, rows=(*self.rows, row))


def began(started: StageStarted, now: float) -> Running:
    rows = tuple(Row(node, "", now, now) for node in started.nodes)
    return Running(started.stage, now, rows)


def advanced(running: Running, event: Progress | StepStarted, now: float) -> Running:
    """The stage after the event. A heartbeat moves nothing, so that the quiet time can be seen to grow."""
    if isinstance(event, StepStarted):
        return running.with_row(Row(event.node, event.why, now, now))
    label = who(event) or event.stage
    old = next((row for row in running.rows if row.label == label), None)
    if event.heartbeat and old:
        return running.with_row(replace(old, progress=event, text=event.text or old.text))
    text = event.text or (old.text if old else "")
    since = old.since if old and old.text == text else now
    # a node's own row makes room for the rows of its ranks
    kept = tuple(row for row in running.rows if event.rank is None or row.label != event.node or row.text)
    return replace(running, rows=kept).with_row(Row(label, text, since, now, event))


def live_lines(stages: tuple[Running, ...], now: float, width: int) -> list[Line]:
    """The whole display at `now`."""
    frame = FRAMES[int(now * 8) % len(FRAMES)]
    lines: list[Line] = []
    for running in stages:
        elapsed = Span(f"  {whole_seconds(now - running.since)}", Tone.DIM)
        lines.append(line(Span(f"{frame} ", Tone.LINK), Span(running.stage, Tone.STRONG), elapsed))
        lines += _row_lines([row for row in running.rows if row.text or row.progress], now, width)
    return lines


def _row_lines(rows: list[Row], now: float, width: int) -> list[Line]:
    """Label, phase and the rest in columns. Where the phase would be cut short, the bars give way."""
    size = max((cells(row.label) for row in rows), default=0)
    longest = max((cells(row.text) for row in rows), default=0)
    tails = [_tail(row, now, width, bars=True) for row in rows]
    if _room(tails, size, width) < min(longest, _PHASE):
        tails = [_tail(row, now, width, bars=False) for row in rows]
    room = min(longest, max(_room(tails, size, width), _WORD))
    return [_row_line(row, tail, size, room) for row, tail in zip(rows, tails, strict=True)]


def _room(tails: list[list[Span]], size: int, width: int) -> int:
    """What is left for the phase."""
    return width - 7 - size - max((sum(cells(span.text) for span in tail) for tail in tails), default=0)


def _row_line(row: Row, tail: list[Span], size: int, room: int) -> Line:
    label = f"    {row.label}{' ' * (size - cells(row.label))}  "
    text = shorten(row.text, room)
    return (Span(label, Tone.LINK), Span(text + " " * (room - cells(text))), *tail)


def _tail(row: Row, now: float, width: int, *, bars: bool) -> list[Span]:
    """Bar, amount, rate and what is left; or how long the phase has taken; and whether nothing moves any more."""
    quiet = now - row.moved
    if quiet >= _QUIET_AFTER:
        return [*_amount(row, width, bars=bars), Span(f"  nothing new for {whole_seconds(quiet)}", Tone.WARN)]
    left = left_text(row.progress) if row.progress else ""
    return [*_amount(row, width, bars=bars), Span(f"  {left or whole_seconds(now - row.since)}", Tone.DIM)]


def _amount(row: Row, width: int, *, bars: bool) -> list[Span]:
    if row.progress is None or not row.progress.unit:
        return []
    part = share(row.progress)
    rate = rate_text(row.progress) if width >= _ROOMY else ""
    bar = [Span("  "), *_bar(part, 24 if width >= _ROOMY else 10)] if part is not None and bars else []
    return [*bar, Span(f"  {amount_text(row.progress)}"), Span(f"  {rate}" if rate else "", Tone.DIM)]


def _bar(part: float, width: int) -> list[Span]:
    full = int(part * width)
    return [Span("━" * full, Tone.GOOD), Span("─" * (width - full), Tone.DIM)]


def looked(at: str, seconds: float) -> Line:
    """The last line of `status --watch`: how old the picture is."""
    age = "" if seconds < 2 else f", {format_duration(round(seconds))} ago"
    return line(Span(f"looked at {at[11:19] or at}{age}; Ctrl-C ends watching", Tone.DIM))
