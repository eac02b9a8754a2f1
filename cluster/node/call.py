"""One call to the wrapper on a node, from request to result, over any line that carries bytes both ways."""

import codecs
import contextlib
import logging
import secrets
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import BoundedSemaphore, Event
from time import monotonic
from typing import Protocol

from cluster.errors import SparkctlError, StepFailed, TimedOut, ToolMissing, Unreachable, Unreadable
from cluster.model.steps import Command
from cluster.node import wire
from cluster.node.base import Result
from cluster.node.failures import file_failure

logger = logging.getLogger(__name__)

CHANNELS = 8  # OpenSSH refuses the eleventh; two stay free for what people do beside us
BEAT = 5.0  # seconds between signs of life
PATIENCE = 60.0  # seconds without one, after which a node ends our command
OVERTIME = 20.0  # seconds beyond the limit in which the node must have said that it ended the command
FILE_LIMIT = 60.0
STOP_ANSWER = 0.9
NEVER_RAN = Result(128 + 15, b"", b"")  # stopped while it waited for a channel


class Line(Protocol):
    """Bytes to and from a wrapper that was started for this call. Foreign errors come out as Unreachable."""

    beats: bool

    def send(self, data: bytes) -> None: ...

    def receive(self, timeout: float) -> bytes | None:
        """b"" at the end, None when nothing came in time."""
        ...

    def lost(self, heard: bytes, started: bool) -> SparkctlError:
        """Why the line ended without an answer."""
        ...

    def noise(self) -> bytes:
        """What came beside the answer, on the other stream."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Answer:
    end: wire.End
    out: bytes
    err: bytes
    noise: bytes
    seconds: float


class Slots:
    """At most eight calls at once; further ones wait for a free one, for `stop`, or for the node to be closed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._free = BoundedSemaphore(CHANNELS)
        self.closed = Event()

    @contextlib.contextmanager
    def one(self, stop: Event | None = None) -> Iterator[None]:
        while not self._free.acquire(timeout=0.2):
            if self.closed.is_set() or (stop and stop.is_set()):
                break
        else:
            try:
                self._refuse_when_closed()
                yield
                return
            finally:
                self._free.release()
        self._refuse_when_closed()
        raise StoppedWaiting

    def _refuse_when_closed(self) -> None:
        if self.closed.is_set():
            raise Unreachable("the connection to this node was closed", where=self._name)


class StoppedWaiting(Exception):
    """`stop` was set before a channel was free."""


def new_marker() -> str:
    return f"sparkctl:{secrets.token_hex(8)}\n"


def run(line: Line, node: str, command: Command) -> Result:
    marker = new_marker()
    request = wire.run_request(command, marker, PATIENCE if line.beats else None)
    answer = converse(line, node, request, marker, limit=command.limit)
    logger.debug("ran %s on %s in %.2fs -> %d", command.argv, node, answer.seconds, answer.end.exit)
    return _result(answer, node, command)


def stream(line: Line, node: str, command: Command, on_line: Callable[[str], None], stop: Event | None) -> Result:
    marker = new_marker()
    request = wire.run_request(command, marker, PATIENCE if line.beats else None)
    lines = Lines(on_line)
    answer = converse(line, node, request, marker, limit=command.limit, on_out=lines.feed, stop=stop)
    lines.finish()
    logger.debug("streamed %s on %s for %.2fs -> %d", command.argv, node, answer.seconds, answer.end.exit)
    return _result(answer, node, command)


def read(line: Line, node: str, path: str, start: int, length: int | None) -> bytes:
    marker = new_marker()
    answer = converse(line, node, wire.read_request(path, start, length, marker), marker, limit=FILE_LIMIT)
    if answer.end.how == "failed":
        raise file_failure("read", path, answer.end.code, answer.end.text, node)
    return answer.out


def write(line: Line, node: str, path: str, data: bytes, mode: int) -> None:
    marker = new_marker()
    answer = converse(line, node, wire.write_request(path, data, mode, marker), marker, limit=FILE_LIMIT)
    if answer.end.how == "failed":
        raise file_failure("write", path, answer.end.code, answer.end.text, node)


def converse(
    line: Line,
    node: str,
    request: bytes,
    marker: str,
    *,
    limit: float,
    on_out: Callable[[bytes], None] | None = None,
    stop: Event | None = None,
) -> Answer:
    """Send the request, keep the line alive, collect the answer. The line is closed in any case: that ends the rest."""
    began = beat = monotonic()
    reply = wire.Reply(marker.encode())
    kept: dict[str, list[bytes]] = {"o": [], "e": []}
    stop_by: float | None = None
    try:
        line.send(request)
        while reply.end is None:
            data = line.receive(0.1 if stop else 1.0)
            now = monotonic()
            if data == b"":
                raise line.lost(reply.heard(), reply.started)
            for kind, piece in _pieces(reply, data or b"", node):
                if kind == "o" and on_out:
                    on_out(piece)
                else:
                    kept[kind].append(piece)
            if line.beats and now - beat >= BEAT:
                line.send(wire.ALIVE)
                beat = now
            if reply.end is not None:
                break
            if stop and stop.is_set() and stop_by is None:
                line.send(wire.STOP)
                stop_by = now + STOP_ANSWER
            if stop_by is not None and now > stop_by:
                reply.end = wire.End("stop", exit=128 + 15, alive=True)
            elif now > began + limit + OVERTIME:
                raise Unreachable(
                    f"no answer {now - began:.0f} s after a request with a limit of {limit:.0f} s", where=node
                )
        noise = bytes(reply.noise) + line.noise()
    finally:
        line.close()
    return Answer(reply.end, b"".join(kept["o"]), b"".join(kept["e"]), noise, monotonic() - began)


def _pieces(reply: wire.Reply, data: bytes, node: str) -> list[tuple[str, bytes]]:
    try:
        return reply.feed(data) if data else []
    except wire.Garbled as garbled:
        raise Unreadable(
            "something writes into the output of our command",
            where=node,
            evidence=(repr(garbled.args[0]),),
            fix="look for background jobs in the login shell's start files (~/.bashrc) on that node",
        ) from garbled


def _result(answer: Answer, node: str, command: Command) -> Result:
    end = answer.end
    match end.how:
        case "missing":
            raise ToolMissing(
                f"{command.argv[0]} is not in any folder we look in",
                where=node,
                evidence=(f"looked in {':'.join(end.tried)}",),
                fix=f"install {command.argv[0]} on {node}, or link it into /usr/local/bin",
            )
        case "failed":
            raise StepFailed(f"{shown(command)} could not be started: {end.text}", where=node, evidence=(end.code,))
        case "limit":
            raise TimedOut(
                f"{shown(command)} ran longer than {command.limit:g} s and was ended",
                where=node,
                evidence=_last_words(answer) + (("it could not be killed",) if end.alive else ()),
            )
        case _:
            return Result(end.exit, answer.out, answer.err, answer.seconds, answer.noise)


def _last_words(answer: Answer) -> tuple[str, ...]:
    text = (answer.err or answer.out).decode("utf-8", "replace")
    return tuple(line for line in text.splitlines() if line.strip())[-3:]


def shown(command: Command) -> str:
    """The command line as one could type it, cut to a length that fits into a sentence."""
    line = shlex.join(command.argv)
    return line if len(line) <= 120 else line[:117] + "..."


class Lines:
    """Cuts bytes into lines of text, whole characters only."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def feed(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + self._decode(data)).split("\n")
        for line in whole:
            self._on_line(line)

    def finish(self) -> None:
        self._rest += self._decode(b"", True)
        if self._rest:
            self._on_line(self._rest)
