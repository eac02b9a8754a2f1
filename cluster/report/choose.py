"""Which reporter fits: JSON for programs, a live display on a terminal, plain lines everywhere else."""

import os
from collections.abc import Mapping
from typing import TextIO

from cluster.report.base import Reporter
from cluster.report.plain import QUIET, Going, Page, PlainProgress, PlainWatch, ProgressSide, WatchSide
from cluster.report.redact import Redactor


def make_reporter(
    json: bool,
    quiet: bool,
    verbose: int,
    color: bool,
    out: TextIO,
    err: TextIO,
    *,
    watch: bool = False,
    redactor: Redactor | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Reporter:
    """`color` false is --no-color; NO_COLOR and TERM=dumb count as well. `watch` shows one status after the other.

    The imports are here because each reporter is needed alone, and `rich` is slow to import.
    """
    redactor = redactor or Redactor()
    if json:
        from cluster.report.jsonl import JsonLines

        return JsonLines(out, redactor)
    from cluster.report.text import TextReporter

    verbosity = QUIET if quiet else verbose
    simple = environ.get("TERM", "dumb") == "dumb"
    color = color and not simple and not environ.get("NO_COLOR")
    out_page = Page(out, color=color and out.isatty())
    err_page = Page(err, color=color and err.isatty())
    live_err, live_out = (not simple and _can_draw(stream) for stream in (err, out))
    return TextReporter(
        out_page,
        err_page,
        _WhenNeeded(err_page, verbosity) if live_err and not quiet else PlainProgress(err_page, verbosity),
        redactor,
        verbosity=verbosity,
        watch=_watch(out_page, live=live_out) if watch else None,
    )


def _can_draw(stream: TextIO) -> bool:
    return stream.isatty() and (stream.encoding or "").lower().startswith("utf")


class _WhenNeeded:
    """The live display, imported at the first event for it: most verbs on a terminal only print a result."""

    def __init__(self, page: Page, verbosity: int) -> None:
        self._page = page
        self._verbosity = verbosity
        self._side: ProgressSide | None = None

    def show(self, event: Going) -> None:
        if self._side is None:
            from cluster.report.terminal import LiveProgress

            self._side = LiveProgress(self._page, self._verbosity)
        self._side.show(event)

    def settle(self) -> None:
        if self._side:
            self._side.settle()


def _watch(page: Page, *, live: bool) -> WatchSide:
    if not live:
        return PlainWatch(page)
    from cluster.report.terminal import LiveStatus

    return LiveStatus(page)
