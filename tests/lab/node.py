"""One node of the lab, seen from the host: run commands in it, see its processes, signal them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

FABRIC, CONTROL = "eth9", "lan0"
SSH_CONFIG = PurePosixPath("/root/.ssh/config")
SMALL_DISK = PurePosixPath("/root/.local/state")
# Moves itself into the control groups before "--", then becomes the command after it.
JOINING = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift; exec "$@"'
JOIN = ("sh", "-c", JOINING, "join")
OF_THE_SYSTEM = re.compile(r"sshd|dbus-daemon|/lib/systemd/")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class InNode:
    """A process of a node: its number inside, its number on the host, and what it calls itself."""

    pid: int
    host_pid: int
    argv: tuple[str, ...]
    state: str

    @property
    def title(self) -> str:
        return " ".join(self.argv)


class Running:
    """A command started in a node. `signal` reaches the command itself, not the `nsenter` in front of it."""

    def __init__(self, entry: subprocess.Popen[str]) -> None:
        self.entry = entry
        self.host_pid = child_of(entry)

    def signal(self, number: int) -> None:
        if self.host_pid and self.entry.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.host_pid, number)

    def wait(self, timeout: float | None = None) -> int:
        return self.entry.wait(timeout)

    def poll(self) -> int | None:
        return self.entry.poll()

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:  # noqa: A002
        return self.entry.communicate(input, timeout)

    def end(self) -> int:
        self.signal(signal.SIGKILL)
        code = self.entry.wait(10)
        close_pipes(self.entry)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@dataclass(slots=True)
class Node:
    name: str
    control_address: str
    fabric_address: str
    folder: Path
    holder: subprocess.Popen[str] = field(repr=False)
    init: int
    groups: tuple[Path, ...] = ()
    interface: str = FABRIC
    small_disk: PurePosixPath = SMALL_DISK
    ssh_config: PurePosixPath = SSH_CONFIG

    def interfaces(self) -> tuple[tuple[str, str], ...]:
        return ((FABRIC, self.fabric_address), (CONTROL, self.control_address))

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "/root",
        input: str | None = None,  # noqa: A002
        timeout: float = 120,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run to its end inside the node; on timeout the command is killed, not only the way in."""
        pipe = subprocess.PIPE
        stdin = subprocess.DEVNULL if input is None else pipe
        running = self.popen(argv, env=env, cwd=cwd, stdin=stdin, stdout=pipe, stderr=pipe)
        try:
            stdout, stderr = running.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            running.end()
            raise
        code = running.entry.returncode
        if check and code:
            raise AssertionError(f"{self.name}: {' '.join(argv)} exited {code}\n{stdout}\n{stderr}")
        return subprocess.CompletedProcess(tuple(argv), code, stdout, stderr)

    def popen(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "/root",
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
    ) -> Running:
        for group in self.groups:
            # systemd removes an empty group that it does not know.
            group.mkdir(exist_ok=True)
        entry = subprocess.Popen(
            entering(self.init, argv, env=env, cwd=cwd, groups=self.groups),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        return Running(entry)

    def path(self, inside: str | PurePosixPath) -> Path:
        """Where the host finds a path of the node; absolute links in it would lead out of the node."""
        return Path(f"/proc/{self.init}/root") / str(inside).lstrip("/")

    def processes(self, containing: str = "") -> tuple[InNode, ...]:
        """What runs here beyond the system itself (process 1, sshd, systemd's own), whose titles contain the text."""
        found = (process for process in self.all_processes() if containing in process.title)
        return tuple(process for process in found if process.pid != 1 and not OF_THE_SYSTEM.search(process.argv[0]))

    def all_processes(self) -> tuple[InNode, ...]:
        own = Path(f"/proc/{self.init}/ns/pid").stat().st_ino
        return tuple(sorted(_processes_of(own), key=lambda process: process.pid))

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Signal the process that has this number inside the node."""
        os.kill(next(process.host_pid for process in self.all_processes() if process.pid == pid), number)

    def down(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        self.holder.wait(30)
        close_pipes(self.holder)


def entering(
    init: int,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str = "/root",
    groups: Sequence[Path] = (),
) -> list[str]:
    """The host command that runs argv in a node, with a login's environment and nothing of the host's."""
    environment = {"PATH": PATH, "HOME": "/root", "USER": "root", "LOGNAME": "root", "LANG": "C.UTF-8", **(env or {})}
    words = [f"{name}={value}" for name, value in environment.items()]
    spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")
    enter = ["nsenter", f"--target={init}", *spaces, "--", "env", "-i", f"--chdir={cwd}", *words, *argv]
    return [*JOIN, *map(str, groups), "--", *enter] if groups else enter


def until(holds: Callable[[], bool], what: str, seconds: float = 10) -> None:
    """Wait for something the kernel does on its own time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not so after {seconds:.0f} s: {what}"
        time.sleep(0.01)


def close_pipes(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def child_of(parent: subprocess.Popen[str]) -> int:
    """The one process that nsenter or unshare runs for us; 0 when it has come and gone already."""
    listing = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    end = time.monotonic() + 10
    while parent.poll() is None:
        with contextlib.suppress(OSError):
            if children := listing.read_text().split():
                return int(children[0])
        assert time.monotonic() < end, f"{parent.args!r} started nothing"
        time.sleep(0.002)
    return 0


def _processes_of(namespace: int) -> Iterator[InNode]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if (folder / "ns" / "pid").stat().st_ino != namespace:
                continue
            status = dict(
                line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line
            )
            words = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            argv = tuple(words) if words != [""] else (f"[{status['Name']}]",)
            yield InNode(int(status["NSpid"].split()[-1]), int(folder.name), argv, status["State"][0])
