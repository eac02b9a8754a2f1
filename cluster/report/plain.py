"""Plain lines for pipes, files and simple terminals, and the page that every text reporter writes on."""

import os
import re
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Protocol, TextIO

from cluster.model.events import (
    Finding,
    Progress,
    Severity,
    StageEnded,
    StageStarted,
    StatusReport,
    StepStarted,
    Told,
)
from cluster.report.layout import Line, Span, line, paint
from cluster.report.progress import Findings, ended_lines, progress_text, share, step_lines, told_lines
from cluster.report.status import watch_line

Going = StageStarted | StageEnded | StepStarted | Progress | Finding | Told

QUIET = -1
_LINE_SECONDS = 10.0
_HEARTBEAT_SECONDS = 30.0
_PART = 0.05
_SIMPLER = str.maketrans({"├": "|", "└": "`", "│": "|", "…": "...", "✓": "+", "✗": "x"})


class Page:
    """A stream that lines are written on. What its encoding does not have is written as an escape, never fatal."""

    def __init__(self, stream: TextIO, *, color: bool = False) -> None:
        self.stream = stream
        self.color = color

    @property
    def width(self) -> int | None:
        """Columns of the terminal now; None when it is none."""
        try:
            return os.get_terminal_size(self.stream.fileno()).columns if self.stream.isatty() else None
        except (OSError, ValueError):  # no file behind it, or a terminal of no size
            return None

    def write(self, lines: Iterable[Line]) -> None:
        text = "".join(paint(one, self.color) + "\n" for one in lines)
        encoding = self.stream.encoding or "utf-8"
        if not encoding.lower().startswith("utf"):
            text = text.translate(_SIMPLER)
        self.stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self.stream.flush()


class ProgressSide(Protocol):
    """Shows what is going on. `settle` leaves the page so that something else can be written on it."""

    def show(self, event: Going) -> None: ...

    def settle(self) -> None: ...


class WatchSide(Protocol):
    """Shows one look after the other."""

    def show(self, report: StatusReport) -> None: ...

    def settle(self) -> None: ...


def shown_severities(verbosity: int) -> frozenset[Severity]:
    """Checks that passed or saw nothing are only counted, unless asked for; quiet leaves what stops the verb."""
    if verbosity <= QUIET:
        return frozenset({Severity.REFUSAL})
    return frozenset(Severity) if verbosity else frozenset(Severity) - {Severity.OK, Severity.NOT_CHECKED}


class PlainProgress:
    """One line per stage begun and ended, and now and then one on how far it is."""

    def __init__(self, page: Page, verbosity: int, clock: Callable[[], float] = monotonic) -> None:
        self._page = page
        self._verbosity = verbosity
        self._clock = clock
        self._findings = Findings()
        self._last: dict[tuple[str, str, int | None], tuple[float, Progress]] = {}

    def show(self, event: Going) -> None:
        match event:
            case Finding():
                self._findings.add(event)
            case Told() if event.severity in shown_severities(self._verbosity):
                self._page.write(told_lines(event, self._page.width))
            case StageEnded():
                self._end(event)
            case _ if self._verbosity > QUIET:
                self._page.write(self._going(event))

    def settle(self) -> None:
        self._page.write(self._findings.take(shown_severities(self._verbosity), self._page.width))

    def _end(self, ended: StageEnded) -> None:
        if self._verbosity > QUIET:
            self._page.write(ended_lines(ended, self._findings.counts(), self._page.width, Span("")))
        self.settle()

    def _going(self, event: Going) -> list[Line]:
        match event:
            case StageStarted():
                on = f" on {', '.join(event.nodes)}" if event.nodes else ""
                return [line(f"{event.stage}{on}")]
            case StepStarted() if self._verbosity > 0:
                return step_lines(event)
            case Progress() if self._is_due(event):
                return [line(f"{event.stage}: {progress_text(event)}")]
            case _:
                return []

    def _is_due(self, progress: Progress) -> bool:
        key = (progress.stage, progress.node, progress.rank)
        now = self._clock()
        then, before = self._last.get(key, (0.0, None))
        if before is None or _is_news(before, progress, now - then):
            self._last[key] = (now, progress)
            return True
        return False


def _is_news(before: Progress, after: Progress, passed: float) -> bool:
    """A new phase, a twentieth more, or enough time: what a reader of a log file wants to find in it."""
    if after.heartbeat:
        return passed >= _HEARTBEAT_SECONDS
    if passed >= _LINE_SECONDS or _phase(before) != _phase(after):
        return True
    gained = (share(after) or 0.0) - (share(before) or 0.0)
    return passed >= 1.0 and gained >= _PART


def _phase(progress: Progress) -> str:
    return re.sub(r"[\d.,]+", "", progress.text)


class PlainWatch:
    """One line per change, the time of the look before it."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._last = ""

    def show(self, report: StatusReport) -> None:
        now = watch_line(report)
        if now != self._last:
            self._last = now
            self._page.write([line(f"{report.at} {now}".strip())])

    def settle(self) -> None:
        return None
