"""Follow one program until nothing is left of it, and carry its input and output. A part of `wrap`."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from cluster.agent.wrap_copy import Copy  # noqa: TC001  # parts are joined as they are
from cluster.agent.wrap_line import TYPE_CHECKING, end, frame

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from typing import IO, Any

GRACE = {"limit": 2.0, "stop": 0.5, "gone": 5.0}  # seconds from TERM to KILL
UNKILLABLE = 1.0  # seconds after KILL; a process in uninterruptible sleep never goes
DRAIN = 0.2  # seconds for children that keep the output open after their parent ended
CHUNK = 65536
PIPE_SIZE = 1024 * 1024  # the most that Linux lets a pipe hold, for those who may not ask for more
BACKLOG = 4 * 1024 * 1024  # unsent output beyond which the program has to wait


class Call:
    """The program, what is still to be sent to it and to the caller, and why it is being ended, if it is."""

    def __init__(
        self, child: subprocess.Popen[bytes] | Copy, request: dict[str, Any], stdin: bytes, told: list[int]
    ) -> None:
        self.child = child
        self.told = told
        self.stdin = memoryview(stdin)
        self.pipes = {pipe.fileno(): kind for pipe, kind in ((child.stdout, b"o"), (child.stderr, b"e")) if pipe}
        self.unsent = bytearray()
        self.limit = request["limit"]
        self.patience = request["patience"]
        self.started = self.heard = time.monotonic()
        self.reason: str | None = None
        self.kill_at: float | None = None
        self.killed = False
        self.ended_at: float | None = None
        self.done = False
        self.gone = False
        if child.stdin is not None:
            os.set_blocking(child.stdin.fileno(), False)

    def follow(self, wake: int) -> None:
        while not self.done or (self.unsent and not self.gone):
            busy = len(self.unsent) > BACKLOG
            reading = [wake] + ([] if self.gone else [0]) + ([] if busy else list(self.pipes))
            into = self.child.stdin
            writing = ([1] if self.unsent else []) + ([into.fileno()] if into else [])
            ready, writable, _ = select.select(reading, writing, [], self.wait())
            if wake in ready:
                os.read(wake, 512)
            if 0 in ready:
                self.listen()
            for pipe in [pipe for pipe in ready if pipe in self.pipes]:
                self.relay(pipe)
            if 1 in writable:
                self.flush()
            if into and into.fileno() in writable:
                self.feed(into)
            self.judge(time.monotonic())

    def wait(self) -> float:
        now = time.monotonic()
        times = [5.0]
        if self.limit is not None and not self.reason and not self.done:
            times.append(self.started + self.limit - now)
        if self.patience is not None:
            times.append(self.heard + self.patience - now)
        if self.kill_at is not None or self.ended_at is not None:
            times.append(0.05)
        return max(0.0, min(times))

    def listen(self) -> None:
        said = os.read(0, 512)
        self.heard = time.monotonic()
        if not said:
            self.lose()
        elif b"s" in said:
            self.begin_end("stop")

    def lose(self) -> None:
        self.gone = True
        self.unsent.clear()
        self.begin_end("gone")

    def begin_end(self, reason: str) -> None:
        if self.reason is None and not self.done:
            self.reason = reason
            self.kill_at = time.monotonic() + GRACE[reason]
            signal_session(self.child.pid, signal.SIGTERM)

    def drain(self) -> None:
        """What the program wrote before it ended is all in the pipes now, and ours even when the caller is slow."""
        for pipe in list(self.pipes):
            os.set_blocking(pipe, False)
            for _ in range(PIPE_SIZE // CHUNK):  # a child that writes for ever must not hold us here
                if pipe in self.pipes:
                    self.relay(pipe)

    def relay(self, pipe: int) -> None:
        try:
            data = os.read(pipe, CHUNK)
        except BlockingIOError:
            return
        if not data:
            del self.pipes[pipe]
        elif not self.gone and not self.done:
            self.unsent += frame(self.pipes[pipe], data)

    def flush(self) -> None:
        try:
            sent = os.write(1, bytes(self.unsent[:CHUNK]))
        except BlockingIOError:
            return
        except OSError:
            self.lose()
            return
        del self.unsent[:sent]

    def feed(self, pipe: IO[bytes]) -> None:
        try:
            sent = os.write(pipe.fileno(), self.stdin[:CHUNK])
            self.stdin = self.stdin[sent:]
        except BlockingIOError:
            return
        except OSError:  # it does not want to read the rest
            self.stdin = self.stdin[:0]
        if not self.stdin:
            pipe.close()
            self.child.stdin = None

    def judge(self, now: float) -> None:
        """End what has to end, and say so once nothing is left of it."""
        if self.done:
            return
        if self.told or (self.patience is not None and now - self.heard > self.patience):
            self.lose()
        if self.limit is not None and now - self.started > self.limit and self.ended_at is None:
            self.begin_end("limit")
        if self.ended_at is None and self.child.poll() is not None:
            self.ended_at = now
            self.drain()
        if self.kill_at is not None and now >= self.kill_at:
            if self.killed:
                self.finish(alive=any_left(self.child.pid))
                return
            self.killed = True
            self.kill_at = now + UNKILLABLE
            signal_session(self.child.pid, signal.SIGKILL)
        if self.ended_at is None:
            return
        if self.reason is not None:
            if not any_left(self.child.pid):
                self.finish()
        elif not self.pipes or now - self.ended_at > DRAIN:
            self.finish()

    def finish(self, alive: bool = False) -> None:
        code = self.child.returncode
        code = 128 + signal.SIGKILL if code is None else code if code >= 0 else 128 - code
        self.unsent += end(self.reason or "exit", exit=code, alive=alive)
        self.done = True


def session_members(session: int) -> Iterator[tuple[int, int]]:
    """(pid, its group) of every process of the session that is not a zombie."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % entry) as file:
                state, _, group, its_session = file.read().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):  # it ended while we looked
            continue
        if int(its_session) == session and state != "Z":
            yield int(entry), int(group)


def any_left(session: int) -> bool:
    return next(session_members(session), None) is not None


def signal_session(session: int, number: int) -> None:
    """The group of the program at once; then those of its session that made a group of their own."""
    with contextlib.suppress(OSError):
        os.killpg(session, number)
    for pid, group in session_members(session):
        if group != session:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
