"""A machine over SSH: one connection for everything, and an end to everything that hangs on it.

The door to fabric and paramiko, with `ssh_connect.py`. Their errors become ours here.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

import paramiko

from cluster.errors import LoginRefused, SparkctlError, ToolMissing, Unreachable
from cluster.model.steps import Command
from cluster.node import call
from cluster.node.base import Identity, Result
from cluster.node.control import Target
from cluster.node.forward import Forward, Pipe
from cluster.node.ssh_connect import Connected, Route
from cluster.node.ssh_dial import PYTHON, Closed, Dialled
from cluster.node.wire import BOOT

logger = logging.getLogger(__name__)

PROBE = 5.0
# Seconds in which sshd must answer a probe. Longer than it takes to notice a cut, because a node that loads 100 GiB of
# weights may be that slow, and giving up on it ends what we run there. Behind a jump host it is all that shows a cut.
SILENCE = 30.0
# How long sshd may go on to refuse a further session on the connection.
REFUSED = 3.0
# How long a connection that broke may still count as open.
DYING = 2.0
WRAPPER = f"exec sh -c '{PYTHON}; exec $p -IS -c \"{BOOT}\" sparkctl'"


class SshNode:
    """Safe to share between threads. A connection that was lost is made anew by the next call."""

    def __init__(
        self, name: str, target: Target, *, ssh_config: Path | None = None, accept_new_host_key: bool = False
    ) -> None:
        self._name = name
        self._route = Route(name, target, ssh_config, accept_new_host_key)
        self._slots = call.Slots(name)
        self._lock = Lock()
        self._session: _Session | None = None
        self._noise = b""
        self._forwards: dict[str, Forward] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def identity(self) -> Identity:
        return self.connect().identity

    @property
    def accepted_keys(self) -> tuple[str, ...]:
        """What `accept_new_host_key` added to known_hosts, one sentence each."""
        return tuple(self._route.accepted)

    @property
    def noise(self) -> bytes:
        return self._noise

    def connect(self) -> "_Session":
        """The open connection. Raises the NodeError that says why there is none."""
        with self._lock:
            if self._slots.closed.is_set():
                raise Unreachable("the connection to this node was closed", where=self._name)
            if self._session is None or not self._session.is_alive:
                if self._session is not None:
                    self._session.close()
                self._session = _Session(self._route.open())
                if self._slots.closed.is_set():  # meanwhile; close() does not wait for us
                    self._session.close()
            return self._session

    def run(self, command: Command) -> Result:
        with self._slots.one(), self._line() as line:
            return self._heard(call.run(line, self._name, command))

    def stream(self, command: Command, on_line: Callable[[str], None], stop: Event | None = None) -> Result:
        try:
            with self._slots.one(stop), self._line() as line:
                return self._heard(call.stream(line, self._name, command, on_line, stop))
        except call.StoppedWaiting:
            return call.NEVER_RAN

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with self._slots.one(), self._line() as line:
            return call.read(line, self._name, path, start, length)

    def write(self, path: str, data: bytes, mode: int) -> None:
        with self._slots.one(), self._line() as line:
            call.write(line, self._name, path, data, mode)

    def socket(self, path: str) -> str:
        with self._lock:
            if path not in self._forwards:
                self._forwards[path] = Forward(lambda: self._dial(path))
            return self._forwards[path].path

    def _dial(self, path: str) -> Pipe:
        """A connection that breaks counts as open for a moment; nothing was said yet, so that a new one will do."""
        session = self.connect()
        try:
            return Dialled(session.channel(), path)
        except (paramiko.SSHException, OSError, EOFError, Closed):
            if not session.has_ended(DYING):
                raise
        return Dialled(self.connect().channel(), path)

    def close(self) -> None:
        self._slots.closed.set()
        for forward in self._forwards.values():
            forward.close()
        if self._session is not None:
            self._session.close()

    @contextlib.contextmanager
    def _line(self) -> Iterator["_Channel"]:
        yield _Channel(self._name, self.connect(), self._slots.closed)

    def _heard(self, result: Result) -> Result:
        if result.noise and not self._noise:
            self._noise = result.noise
            logger.info("the login shell of %s prints into the output of commands: %r", self._name, result.noise[:200])
        return result


class _Session:
    """An open connection, and the threads that notice when the other side no longer answers."""

    def __init__(self, connected: Connected) -> None:
        self.identity = connected.identity
        self.close = connected.close
        self._transport = connected.transport
        self._answered = monotonic()
        self._cut = ""
        Thread(target=self._probe, name=f"probe {self.identity.host}", daemon=True).start()
        Thread(target=self._judge, name=f"judge {self.identity.host}", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return bool(self._transport.is_active())

    def has_ended(self, within: float) -> bool:
        self._transport.join(within)
        return not self.is_alive

    def channel(self) -> Any:
        """One that ended here may count there for a moment longer: a refusal is asked again before it is believed."""
        pause, end = Event(), monotonic() + REFUSED
        while True:
            try:
                return self._transport.open_session(timeout=SILENCE)
            except paramiko.ChannelException:
                if monotonic() > end:
                    raise
            pause.wait(0.1)

    def why_lost(self) -> tuple[str, ...]:
        seen = self._transport.saved_exception
        return tuple(text for text in (self._cut, str(seen or "")) if text)

    def _probe(self) -> None:
        """Ask for a sign of life every few seconds; "no such request" is answer enough."""
        pause = Event()
        while self.is_alive:
            with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
                self._transport.global_request("keepalive@openssh.com", wait=True)
                if self.is_alive:
                    self._answered = monotonic()
            pause.wait(PROBE)

    def _judge(self) -> None:
        """Close what went silent: every call that waits on it then ends with an error."""
        pause = Event()
        while self.is_alive:
            silent = monotonic() - self._answered
            if silent > SILENCE:
                self._cut = f"no answer for {silent:.0f} s"
                self.close()
            pause.wait(1.0)


class _Channel:
    """The line to a wrapper on the node."""

    beats = True

    def __init__(self, node: str, session: _Session, closed: Event) -> None:
        self._node = node
        self._session = session
        self._closed = closed
        self._channel: Any = None
        try:
            self._channel = session.channel()
            self._channel.exec_command(WRAPPER)
        except paramiko.ChannelException as error:
            raise Unreachable(
                "the node refused another command beside those that run",
                where=node,
                evidence=(str(error),),
                fix=f"MaxSessions in {node}'s sshd_config must be at least 10, ssh's default",
            ) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._broken(str(error)) from error

    def send(self, data: bytes) -> None:
        try:
            self._channel.settimeout(SILENCE)
            self._channel.sendall(data)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self.lost(b"", False) from error

    def receive(self, timeout: float) -> bytes | None:
        try:
            self._channel.settimeout(timeout)
            return bytes(self._channel.recv(1 << 18))
        except TimeoutError:
            return None
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self.lost(b"", False) from error

    def lost(self, heard: bytes, started: bool) -> SparkctlError:
        # A dying connection closes its channels before it counts as inactive; an ended command sends its exit code.
        self._channel.status_event.wait(2.0)
        code = self._channel.exit_status
        if code < 0 or self._closed.is_set() or not self._session.is_alive:
            return self._broken("")
        words = (heard + self.noise()).decode("utf-8", "replace").splitlines()[-5:]
        if started:
            what = f"the process that ran our command ended without an answer ({code})"
            return Unreachable(what, where=self._node, evidence=words)
        if code == 127:
            return ToolMissing(
                "python3 is not in the PATH of a non-login shell",
                where=self._node,
                evidence=words,
                fix=f"install it on {self._node}: `sudo apt-get install python3`",
            )
        return LoginRefused(
            f"the login shell does not run commands (exit code {code})",
            where=self._node,
            evidence=words,
            fix=f"`ssh {self._session.identity.host} true` must work without an answer from you",
        )

    def noise(self) -> bytes:
        parts = []
        while self._channel.recv_stderr_ready():
            parts.append(bytes(self._channel.recv_stderr(1 << 16)))
        return b"".join(parts)

    def close(self) -> None:
        if self._channel is not None:
            with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
                self._channel.close()

    def _broken(self, text: str) -> Unreachable:
        self.close()
        if self._closed.is_set():
            return Unreachable("this node was closed while a command ran", where=self._node)
        evidence = tuple(line for line in (*self._session.why_lost(), text) if line)
        return Unreachable("the connection was lost", where=self._node, evidence=dict.fromkeys(evidence))
