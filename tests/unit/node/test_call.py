"""One call over a line that a test plays: what is sent, what comes of each end."""

import json
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event

import pytest

from cluster.errors import SparkctlError, StepFailed, TimedOut, ToolMissing, Unreachable, Unreadable
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.node import call, wire
from cluster.node.base import Result
from cluster.node.failures import NoSuchFile


@dataclass
class PlayedLine:
    """Answers the request with these frames; `b""` among them is the end of the line."""

    frames: Iterable[bytes]
    beats: bool = False
    before: bytes = b""
    beside: bytes = b""
    sent: list[bytes] = field(default_factory=list)
    closed: bool = False

    def send(self, data: bytes) -> None:
        self.sent.append(data)
        if len(self.sent) == 1:
            size = int(data[:8])
            request = json.loads(data[16 + size : 16 + size + int(data[8 + size : 16 + size])])
            self.coming = iter([self.before + request["marker"].encode(), *self.frames])

    def receive(self, timeout: float) -> bytes | None:
        return next(self.coming, None)

    def lost(self, heard: bytes, started: bool) -> SparkctlError:
        return Unreachable(f"lost after {heard!r}, {started}")

    def noise(self) -> bytes:
        return self.beside

    def close(self) -> None:
        self.closed = True


def frame(kind: str, data: bytes) -> bytes:
    return kind.encode() + len(data).to_bytes(4, "big") + data


def end(how: str = "exit", **details: object) -> bytes:
    return frame("x", json.dumps({"how": how, **details}).encode())


LIST = Command(("zfs", "list"))


def ran(line: PlayedLine, command: Command = LIST) -> Result:
    try:
        return call.run(line, "b", command)
    finally:
        assert line.closed


def test_result_is_put_together_from_its_pieces() -> None:
    line = PlayedLine([frame("o", b"a") + frame("e", b"1"), frame("o", b"b"), end(exit=3)], before=b"hi", beside=b"ho")
    result = ran(line)
    assert (result.exit, result.out, result.err, result.noise) == (3, b"ab", b"1", b"hiho")


def test_tool_that_is_nowhere_says_where_it_was_sought() -> None:
    with pytest.raises(ToolMissing) as caught:
        ran(PlayedLine([end("missing", tried=["/a", "/b"])]))
    assert (str(caught.value), caught.value.evidence) == (
        "b: zfs is not in any folder we look in",
        ("looked in /a:/b",),
    )


def test_program_that_cannot_start_says_why() -> None:
    with pytest.raises(StepFailed, match="zfs list could not be started: Exec format error"):
        ran(PlayedLine([end("failed", code="ENOEXEC", text="Exec format error")]))


def test_ended_by_its_limit_is_no_exit_code() -> None:
    with pytest.raises(TimedOut) as caught:
        ran(
            PlayedLine([frame("e", b"a\n\nb\n"), end("limit", exit=137, alive=True)]), Command(("x",), limit=Seconds(2))
        )
    assert (str(caught.value), caught.value.evidence) == (
        "b: x ran longer than 2 s and was ended",
        ("a", "b", "it could not be killed"),
    )


def test_line_that_ends_early_is_lost() -> None:
    with pytest.raises(Unreachable, match=r"lost after b'motd', True"):
        ran(PlayedLine([frame("o", b"half"), b""], before=b"motd"))


def test_foreign_bytes_in_the_output_are_unreadable() -> None:
    with pytest.raises(Unreadable, match="something writes into the output"):
        ran(PlayedLine([b"job done"]))


def test_node_that_says_nothing_long_after_the_limit_is_unreachable() -> None:
    line = PlayedLine([])
    with pytest.raises(Unreachable, match="no answer"):
        call.converse(line, "b", wire.run_request(Command(("x",)), "m\n", None), "m\n", limit=-1000.0)
    assert line.closed


def test_signs_of_life_are_sent_on_a_line_that_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "BEAT", -1.0)
    line = PlayedLine([frame("o", b"x"), end()], beats=True)
    ran(line)
    assert line.sent[1:] == [b".", b".", b"."]


def test_lines_are_handed_over_whole_and_stop_is_passed_on() -> None:
    stop = Event()
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        stop.set()

    line = PlayedLine([frame("o", b"on\xc3"), frame("o", b"\xbc\nrest"), end("stop", exit=143)])
    result = call.stream(line, "b", Command(("tail",)), on_line, stop)
    assert (result.exit, result.out, lines, line.sent[1:]) == (143, b"", ["onü", "rest"], [b"s"])


def test_stop_does_not_wait_for_an_answer_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "STOP_ANSWER", -1.0)
    stop = Event()
    stop.set()
    line = PlayedLine([])
    assert call.stream(line, "b", Command(("tail",)), print, stop).exit == 143
    assert line.closed


def test_missing_file_is_its_own_kind() -> None:
    with pytest.raises(NoSuchFile, match="b: cannot read /x: No such file"):
        call.read(PlayedLine([end("failed", code="ENOENT", text="No such file")]), "b", "/x", 0, None)


def test_long_command_lines_are_cut_in_sentences() -> None:
    assert call.shown(Command(("echo", "a b"))) == "echo 'a b'"
    assert len(call.shown(Command(("x" * 500,)))) == 120


def test_closed_slots_refuse() -> None:
    slots = call.Slots("b")
    slots.closed.set()
    with pytest.raises(Unreachable, match="was closed"), slots.one():
        raise AssertionError


def test_stop_while_all_slots_are_taken() -> None:
    slots = call.Slots("b")
    stop = Event()
    stop.set()
    with ExitStack() as taken:
        for _ in range(call.CHANNELS):
            taken.enter_context(slots.one())
        with pytest.raises(call.StoppedWaiting), slots.one(stop):
            raise AssertionError
