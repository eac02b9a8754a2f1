"""Every kind of event through every reporter, on real streams: a pipe, and a terminal of a real pty."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import pytest

from cluster.model.deployment import State
from cluster.model.events import (
    Failed,
    Finding,
    LogLine,
    Progress,
    Served,
    Severity,
    StageEnded,
    StageStarted,
    StatusReport,
    Told,
)
from cluster.report import Redactor, Reporter, make_reporter
from cluster.report.schema import KINDS, event_name
from tests.fakes.events import filled

pytestmark = pytest.mark.contract

ROOT = Path(__file__).resolve().parents[2]
SECRET = "sesame-0pen"
TERMINAL = {"TERM": "xterm-256color"}


@dataclass
class Screen:
    """What has been written to the other end, and how to write there."""

    stream: TextIO
    chunks: list[bytes] = field(default_factory=list)

    @property
    def text(self) -> str:
        return b"".join(self.chunks).decode()


@contextmanager
def a_pipe() -> Iterator[Screen]:
    read, write = os.pipe()
    yield from _collecting(read, write)


@contextmanager
def a_terminal(columns: int = 80, rows: int = 24) -> Iterator[Screen]:
    read, write = pty.openpty()
    fcntl.ioctl(write, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    yield from _collecting(read, write)


def _collecting(read: int, write: int) -> Iterator[Screen]:
    screen = Screen(os.fdopen(write, "w", encoding="utf-8"))
    reader = threading.Thread(target=_collect, args=(read, screen.chunks))
    reader.start()
    try:
        yield screen
    finally:
        screen.stream.close()
        reader.join()
        os.close(read)


def _collect(read: int, chunks: list[bytes]) -> None:
    while True:
        try:
            chunk = os.read(read, 65536)
        except OSError:  # a pty whose other end is closed
            return
        if not chunk:
            return
        chunks.append(chunk)


@dataclass(frozen=True)
class Case:
    """One reporter as the command line would ask for it."""

    screen: Callable[[], object]
    json: bool = False
    quiet: bool = False
    verbose: int = 0
    color: bool = True
    watch: bool = False
    environ: dict[str, str] = field(default_factory=lambda: dict(TERMINAL))


CASES = {
    "json": Case(a_pipe, json=True),
    "json on a terminal": Case(a_terminal, json=True),
    "plain": Case(a_pipe),
    "plain, verbose": Case(a_pipe, verbose=1),
    "plain, quiet": Case(a_pipe, quiet=True),
    "plain, watch": Case(a_pipe, watch=True),
    "terminal": Case(a_terminal),
    "terminal, verbose": Case(a_terminal, verbose=1),
    "terminal, quiet": Case(a_terminal, quiet=True),
    "terminal, watch": Case(a_terminal, watch=True),
    "terminal, --no-color": Case(a_terminal, color=False),
    "terminal, NO_COLOR": Case(a_terminal, environ=TERMINAL | {"NO_COLOR": "1"}),
    "terminal, TERM=dumb": Case(a_terminal, environ={"TERM": "dumb"}),
}
COLOURLESS = [name for name in CASES if name.startswith("plain") or "json" in name or "NO" in name or "no-" in name]
STILL = [name for name in CASES if name.startswith("plain") or "json" in name or "dumb" in name]


def shown(case: Case, *events: object) -> str:
    """All that a person or program sees when both streams are the same place."""
    with case.screen() as screen:  # type: ignore[attr-defined]
        with _reporter(case, screen.stream) as report:
            for event in events:
                report(event)  # type: ignore[arg-type]
        screen.stream.flush()
    text: str = screen.text
    return text


def _reporter(case: Case, stream: TextIO) -> Reporter:
    return make_reporter(
        case.json, case.quiet, case.verbose, case.color, stream, stream,
        watch=case.watch, redactor=Redactor(SECRET), environ=case.environ,
    )  # fmt: skip


FOREIGN = f"it said [bold]{SECRET}[/bold] \x1b[2J\x1b]0;title\x07 and --api-key other-value"


@pytest.mark.parametrize("kind", KINDS, ids=event_name)
@pytest.mark.parametrize("name", CASES)
def test_every_event_renders_in_every_reporter_without_its_secrets(name: str, kind: type) -> None:
    text = shown(CASES[name], filled(kind, FOREIGN))
    assert SECRET not in text
    assert "other-value" not in text
    if CASES[name].json:
        assert json.loads(text)["event"] == event_name(kind)
    else:
        assert "\x1b[2J" not in text
        assert "\x1b]0;" not in text


@pytest.mark.parametrize("kind", KINDS, ids=event_name)
def test_every_event_says_its_text_on_a_verbose_terminal(kind: type) -> None:
    # log text is never markup: the brackets are there to be seen
    assert "[bold]***[/bold]" in shown(CASES["terminal, verbose"], filled(kind, FOREIGN)).replace("\r\n", "\n")


STORY = (
    StageStarted("load", ("spark-a", "spark-b")),
    Progress("load", "spark-a", 1, 4, "files", text="loading weights", rank=0),
    Finding("PORT", Severity.WARNING, "spark-a", "held"),
    LogLine(0, "spark-a", "2026-11-30T17:31:02.123Z", "INFO up"),
    Told(Severity.NOTE, "all is well"),
    StageEnded("load", 12.0, True),
    Served("demo", "b", "http://a:1/v1", "m", (), ""),
    StatusReport("demo", State.SERVING, "b", "http://a:1/v1", (), (), ()),
    Failed("Hung", "it hangs", "spark-a", ("silence",), "sparkctl stop", 10),
)


@pytest.mark.parametrize("name", COLOURLESS)
def test_no_colour_where_none_is_wanted(name: str) -> None:
    text = shown(CASES[name], *STORY)
    assert not any(f"\x1b[{code}" in text for code in ("1;31m", "2m", "31m", "32m", "33m", "36m"))


@pytest.mark.parametrize("name", STILL)
def test_nothing_is_redrawn_where_it_cannot_be(name: str) -> None:
    text = shown(CASES[name], *STORY)
    assert "\x1b" not in text
    assert "\r" not in text.replace("\r\n", "\n")


def test_a_terminal_has_colours_and_a_live_display() -> None:
    text = shown(CASES["terminal"], *STORY)
    assert "\x1b[32m" in text
    assert "━" in text


class Broken(RuntimeError):
    pass


def _end_with(error: type[BaseException], stream: TextIO) -> None:
    with _reporter(CASES["terminal"], stream) as report:
        report(StageStarted("load", ("spark-a",)))
        report(Progress("load", "spark-a", 1, 4, "files"))
        raise error


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt, SystemExit])
def test_the_terminal_is_given_back_on_any_end(error: type[BaseException]) -> None:
    with a_terminal() as screen:
        before = termios.tcgetattr(screen.stream.fileno())
        with pytest.raises(error):
            _end_with(error, screen.stream)
        after = termios.tcgetattr(screen.stream.fileno())
        drawing = [one for one in threading.enumerate() if type(one).__name__ == "_RefreshThread"]
        for one in drawing:
            one.join(10)  # told to end, but not waited for
    assert (after, [one.is_alive() for one in drawing]) == (before, [False] * len(drawing))
    assert screen.text.rfind("\x1b[?25h") > screen.text.rfind("\x1b[?25l")


def test_events_of_many_threads_do_not_mix() -> None:
    def write(report: Reporter, rank: int) -> None:
        for number in range(200):
            report(LogLine(rank, "a", "", f"line {number} of {rank} " + "x" * 50))

    with a_pipe() as screen, _reporter(CASES["plain"], screen.stream) as report:
        threads = [threading.Thread(target=write, args=(report, rank)) for rank in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    lines = sorted(screen.text.splitlines())
    assert lines == sorted(
        f" a r{rank} | line {number} of {rank} " + "x" * 50 for rank in range(8) for number in range(200)
    )


def test_a_live_display_takes_events_of_many_threads() -> None:
    def write(report: Reporter, rank: int) -> None:
        for number in range(100):
            report(Progress("load", "a", number, 100, "files", text="loading", rank=rank))
            report(Told(Severity.NOTE, f"note {number} of {rank}"))

    with a_terminal() as screen, _reporter(CASES["terminal"], screen.stream) as report:
        threads = [threading.Thread(target=write, args=(report, rank), daemon=True) for rank in range(4)]
        for one in threads:
            one.start()
        until = time.monotonic() + 60
        for one in threads:
            one.join(until - time.monotonic())
        stuck = [one.name for one in threads if one.is_alive()]
    assert stuck == []
    assert all(f"note {number} of {rank}" in screen.text for number in range(100) for rank in range(4))


def test_importing_the_reporters_does_not_import_rich() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import sys, cluster.report, cluster.report.text; print('rich' in sys.modules)"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert told.stdout == "False\n"


def test_a_killed_process_leaves_the_cursor_visible() -> None:
    program = (
        "import sys, os, signal; from cluster.report import make_reporter; from cluster.model.events import *\n"
        "with make_reporter(False, False, 0, True, sys.stdout, sys.stderr) as report:\n"
        "    report(StageStarted('load', ('a',))); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with a_terminal() as screen:
        environ = os.environ | TERMINAL | {"LC_ALL": "C.UTF-8"}
        argv = [sys.executable, "-c", program]
        ended = subprocess.run(argv, cwd=ROOT, stdout=screen.stream, stderr=screen.stream, env=environ, timeout=60)
    assert ended.returncode == -9
    assert "load" in screen.text
    assert screen.text.rfind("\x1b[?25h") > screen.text.rfind("\x1b[?25l")
