"""The `Node` protocol: all that a machine can do for us."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

from cluster.model.steps import Command


@dataclass(frozen=True, slots=True)
class Result:
    """What a command left behind.

    exit     its exit status; 128 + n when signal n ended it
    out, err what it wrote, and only that: what a login shell printed around it is in `noise`
    seconds  wall time, round trip included
    """

    exit: int
    out: bytes = field(repr=False)
    err: bytes = field(repr=False)
    seconds: float = 0.0
    noise: bytes = field(default=b"", repr=False)

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace")

    @property
    def err_text(self) -> str:
        return self.err.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Identity:
    """Which machine answered, for receipts. The last three are empty for the local machine.

    host_key  the fingerprint as `ssh-keygen -l` prints it: `SHA256:...`
    """

    host: str
    port: int = 0
    user: str = ""
    host_key: str = ""


class Node(Protocol):
    """One machine. Safe to use from several threads; at most eight commands at once, further ones wait."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> Identity: ...

    @property
    def accepted_keys(self) -> tuple[str, ...]:
        """What was added to known_hosts on the way here, one sentence each with the fingerprint."""
        ...

    @property
    def noise(self) -> bytes:
        """What the login shell printed around our first noisy command; rsync and zfs pipes would trip over it."""
        ...

    def run(self, command: Command) -> Result:
        """Run to the end and return any exit code.

        Raises TimedOut when the limit ended it (on the node, children too), ToolMissing when argv[0] is in no
        folder we look in, Unreachable when the connection is or was lost (the node then ends the command itself).
        """
        ...

    def stream(self, command: Command, on_line: Callable[[str], None], stop: Event | None = None) -> Result:
        """Like `run`, but hands over each line of stdout as it comes; `out` of the result is empty.

        When `stop` is set the command is ended on the node and the result so far returned, within a second.
        """
        ...

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file; a leading `~/` is the node's home. Raises StepFailed naming node and path."""
        ...

    def write(self, path: str, data: bytes, mode: int) -> None:
        """Replace a file in one step: temporary name, fsync, rename; parents are made with mode 0700."""
        ...

    def socket(self, path: str) -> str:
        """A Unix socket on this machine that leads to the socket `path` on the node; only we can open it."""
        ...

    def close(self) -> None:
        """End running commands and the connection. Idempotent."""
        ...
