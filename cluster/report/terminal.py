"""The live displays on a terminal, drawn by rich; everything that stays on the screen is written as plain lines."""

from collections.abc import Callable, Iterable
from time import monotonic

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from cluster.model.events import (
    Finding,
    Progress,
    StageEnded,
    StageStarted,
    StatusReport,
    StepStarted,
    Told,
)
from cluster.report.layout import Line, Span, Tone, line, paint
from cluster.report.live import Running, advanced, began, live_lines, looked
from cluster.report.plain import Going, Page, shown_severities
from cluster.report.progress import Findings, ended_lines, step_lines, told_lines
from cluster.report.status import status_lines

_REDRAWS_PER_SECOND = 4


class _Screen:
    """A region at the bottom of the terminal that is redrawn, and a way to write above it.

    rich draws it from a thread of its own, so `picture` may only read values that are replaced whole.
    """

    def __init__(self, page: Page, picture: Callable[[int], list[Line]], *, keep: bool) -> None:
        self._page = page
        self._picture = picture
        self._keep = keep
        self._live: Live | None = None

    def open(self) -> None:
        if self._live is None:
            console = Console(file=self._page.stream, force_terminal=True, highlight=False, markup=False, emoji=False)
            self._live = Live(
                console=console,
                get_renderable=self._draw,
                refresh_per_second=_REDRAWS_PER_SECOND,
                transient=not self._keep,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)
            # a process that is killed cannot bring the cursor back, so it is never taken away
            console.show_cursor(True)

    def refresh(self) -> None:
        if self._live:
            self._live.refresh()

    def write(self, lines: Iterable[Line]) -> None:
        """Above the region if there is one."""
        if self._live is None:
            self._page.write(lines)
            return
        for one in lines:
            self._live.console.print(self._text(one), soft_wrap=True)

    def close(self) -> None:
        if self._live:
            live, self._live = self._live, None
            live.stop()

    def _draw(self) -> Group:
        lines = [self._text(one) for one in self._picture(self._page.width or 80)]
        for text in lines:
            text.no_wrap = True
            text.overflow = "crop"
        return Group(*lines)

    def _text(self, one: Line) -> Text:
        return Text.from_ansi(paint(one, self._page.color))


class LiveProgress:
    """The running stages below, what is over above."""

    def __init__(self, page: Page, verbosity: int, clock: Callable[[], float] = monotonic) -> None:
        self._page = page
        self._verbosity = verbosity
        self._clock = clock
        self._findings = Findings()
        self._running: tuple[Running, ...] = ()
        self._screen = _Screen(page, self._picture, keep=False)

    def show(self, event: Going) -> None:
        match event:
            case StageStarted():
                self._running = (*self._running, began(event, self._clock()))
                self._screen.open()
            case StageEnded():
                self._end(event)
            case StepStarted() | Progress():
                self._advance(event)
            case Finding():
                self._findings.add(event)
            case Told():
                self._screen.write(told_lines(event, self._page.width))

    def settle(self) -> None:
        """Takes the region down; the next event of a running stage brings it back."""
        self._screen.close()
        self._screen.write(self._findings.take(shown_severities(self._verbosity), self._page.width))

    def _advance(self, event: StepStarted | Progress) -> None:
        now = self._clock()
        if not any(one.stage == event.stage for one in self._running):
            self._running = (*self._running, Running(event.stage, now))
        self._running = tuple(advanced(one, event, now) if one.stage == event.stage else one for one in self._running)
        self._screen.open()
        if isinstance(event, StepStarted) and self._verbosity > 0:
            self._screen.write(step_lines(event))

    def _end(self, ended: StageEnded) -> None:
        self._running = tuple(one for one in self._running if one.stage != ended.stage)
        mark = Span("✓ ", Tone.GOOD) if ended.ok else Span("✗ ", Tone.BAD)
        self._screen.write(ended_lines(ended, self._findings.counts(), self._page.width, mark))
        self._screen.write(self._findings.take(shown_severities(self._verbosity), self._page.width))
        if not self._running:
            self._screen.close()

    def _picture(self, width: int) -> list[Line]:
        return live_lines(self._running, self._clock(), width)


class LiveStatus:
    """The last look, redrawn in place, and how old it is."""

    def __init__(self, page: Page, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._last: tuple[StatusReport, float] | None = None
        self._screen = _Screen(page, self._picture, keep=True)

    def show(self, report: StatusReport) -> None:
        self._last = (report, self._clock())
        self._screen.open()
        self._screen.refresh()

    def settle(self) -> None:
        self._screen.close()

    def _picture(self, width: int) -> list[Line]:
        if self._last is None:
            return []
        report, then = self._last
        return [*status_lines(report, width), line(""), looked(report.at, self._clock() - then)]
