"""What to do, as data: commands, the kinds of step, stages and plans."""

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from cluster.model.containers import ContainerSpec
from cluster.model.units import Seconds

NodeName = str


@dataclass(frozen=True, slots=True)
class Command:
    """One program to run on a node. `argv` is never joined by hand; quoting happens in `node/`.

    env    variables added to the node's own (no secrets: others can read a process's argv, and we print this)
    stdin  bytes the program reads; it sees end of file after them
    limit  seconds after which the node itself ends the program and all its children
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    stdin: bytes = field(default=b"", repr=False)
    limit: Seconds = Seconds(60.0)
    cwd: PurePosixPath | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Run a command; any exit code but 0 fails the step. `undo` is run when a later step of the plan fails.

    tells  what its lines count, e.g. "bytes": each is then JSON with done, total and rate, and is told as progress
    """

    node: NodeName
    why: str
    command: Command
    undo: Command | None = None
    tells: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """Make a file hold exactly these bytes (temp file, fsync, rename). `~` is the node's home."""

    node: NodeName
    why: str
    path: PurePosixPath
    data: bytes = field(repr=False)
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class CreateContainer:
    """Create a container, not start it. `engine` is its engine's socket on the node."""

    node: NodeName
    why: str
    spec: ContainerSpec
    engine: str
    undo: Command | None = None


Step = Run | Write | CreateContainer


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps that may run side by side on different nodes, in order on one node, with a barrier at the end.

    `in_order` makes the steps wait for one another across nodes too (worker first, then head).
    """

    name: str
    steps: tuple[Step, ...]
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    stages: tuple[Stage, ...]

    @property
    def is_empty(self) -> bool:
        return not any(stage.steps for stage in self.stages)
