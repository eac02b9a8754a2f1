"""This machine as a node: the same wrapper as on a remote one, in a session of its own, so that Ctrl-C is ours."""

import contextlib
import errno
import ipaddress
import os
import select
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, cast

import psutil

from cluster.agent.wrap_files import read_file, write_file
from cluster.errors import SparkctlError, Unreachable
from cluster.model.facts import Memory
from cluster.model.steps import Command
from cluster.model.units import Bytes
from cluster.node import call
from cluster.node.base import Identity, Result
from cluster.node.failures import file_failure
from cluster.node.wire import BOOT

if TYPE_CHECKING:
    from io import FileIO


class LocalNode:
    def __init__(self, name: str) -> None:
        self._name = name
        self._slots = call.Slots(name)
        self._lock = Lock()
        self._lines: set[_Process] = set()

    @property
    def name(self) -> str:
        return self._name

    def socket(self, path: str) -> str:
        return path

    @property
    def accepted_keys(self) -> tuple[str, ...]:
        return ()

    @property
    def identity(self) -> Identity:
        return Identity(host=socket.gethostname())

    @property
    def noise(self) -> bytes:
        return b""

    def run(self, command: Command) -> Result:
        with self._slots.one(), self._line() as line:
            return call.run(line, self._name, command)

    def stream(self, command: Command, on_line: Callable[[str], None], stop: Event | None = None) -> Result:
        try:
            with self._slots.one(stop), self._line() as line:
                return call.stream(line, self._name, command, on_line, stop)
        except call.StoppedWaiting:
            return call.NEVER_RAN

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            return b"".join(read_file(path, start, length))
        except OSError as error:
            raise self._file_failure("read", path, error) from error

    def write(self, path: str, data: bytes, mode: int) -> None:
        try:
            write_file(path, data, mode)
        except OSError as error:
            raise self._file_failure("write", path, error) from error

    def close(self) -> None:
        """Tells the wrappers to end their programs; they do so within seconds, also when we are gone by then."""
        self._slots.closed.set()
        with self._lock:
            for line in self._lines:
                line.hang_up()

    @contextlib.contextmanager
    def _line(self) -> Iterator["_Process"]:
        line = _Process(self._name, self._slots.closed)
        with self._lock:
            self._lines.add(line)
        try:
            if self._slots.closed.is_set():  # between the slot and the list: close() has not seen it
                line.hang_up()
            yield line
        finally:
            with self._lock:
                self._lines.discard(line)
            line.close()

    def _file_failure(self, verb: str, path: str, error: OSError) -> SparkctlError:
        code = errno.errorcode.get(error.errno or 0, "")
        return file_failure(verb, path, code, os.strerror(error.errno or 0), self._name)


class _Process:
    """The line to a wrapper that runs here."""

    beats = False  # the kernel tells it when we are gone

    def __init__(self, node: str, closed: Event) -> None:
        self._node = node
        self._closed = closed
        self._process = subprocess.Popen(
            (sys.executable, "-IS", "-c", BOOT, "sparkctl"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._in = cast("FileIO", self._process.stdin)
        self._out = cast("FileIO", self._process.stdout)
        self._err = cast("FileIO", self._process.stderr)
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[self._in.write(view) :]
        except OSError as error:
            raise self.lost(b"", False) from error

    def receive(self, timeout: float) -> bytes | None:
        return os.read(self._out.fileno(), 1 << 18) if self._poll.poll(timeout * 1000) else None

    def lost(self, heard: bytes, started: bool) -> SparkctlError:
        if self._closed.is_set():
            return Unreachable("this node was closed while a command ran", where=self._node)
        code = self._process.wait()
        words = (heard + self._err.read()).decode("utf-8", "replace").splitlines()
        return Unreachable(
            f"the process that ran our command ended without an answer ({code})", where=self._node, evidence=words[-5:]
        )

    def noise(self) -> bytes:
        return b""

    def hang_up(self) -> None:
        self._process.terminate()

    def close(self) -> None:
        for pipe in (self._in, self._out, self._err):
            pipe.close()
        # Asked to end by the closed pipe, it may take a while to end its program: wait for it, but not here.
        if self._process.poll() is None:
            Thread(target=self._process.wait, daemon=True).start()


def memory() -> Memory:
    """Of this machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what the kernel does not count is 0
        seen, swap = psutil.virtual_memory(), psutil.swap_memory()
    sizes = (seen.total, seen.free, seen.available, seen.cached + seen.buffers, swap.used)
    return Memory(*map(Bytes, sizes))


def is_local_address(text: str) -> bool:
    """Whether a host name or address leads to this machine, and to no other."""
    own = {address.address.partition("%")[0] for card in psutil.net_if_addrs().values() for address in card}
    try:
        found = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(text.strip("[]"), None)}
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(each in own or ipaddress.ip_address(each).is_loopback for each in found)
