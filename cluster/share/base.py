"""The `Share` protocol: how a worker comes to have the head's weights. Every method is pure: facts in, steps out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Protocol, TypeVar

from cluster.model.containers import Mount, with_targets
from cluster.model.kit import Weights
from cluster.model.nodes import NodeSettings
from cluster.model.steps import Command, NodeName, Plan, Stage, Step

SeenT = TypeVar("SeenT")
Source = Callable[
    ..., bytes
]  # parts of cluster/agent by name -> the one program they make, the last one being its main


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of weights.

    what     how people call it, e.g. "the model"
    name     how exports, volumes and datasets call it: model or engram
    source   where the head has it
    targets  where each worker's rank reads it, on the worker itself
    inside   where a container has it; empty for the native runtime
    """

    what: str
    name: str
    source: str
    targets: Mapping[NodeName, str]
    inside: str = ""


@dataclass(frozen=True, slots=True)
class Want:
    """What is asked for. `engine` and `image` are those of the container runtime, empty for the native one.

    ways  the words in front of a command that the head runs on a worker; none where that is the head's own machine
    """

    deployment: str
    head: NodeSettings
    workers: tuple[NodeSettings, ...]
    folders: tuple[Folder, ...]
    weights: Weights
    engine: str = ""
    image: str = ""
    ways: Mapping[NodeName, tuple[str, ...]] = field(default_factory=dict)

    @property
    def in_containers(self) -> bool:
        return bool(self.image)

    @property
    def label(self) -> str:
        """What names of ours carry on every node."""
        return f"sparkctl-{self.deployment}"

    def name(self, folder: Folder) -> str:
        return f"{self.label}-{folder.name}"


@dataclass(frozen=True, slots=True)
class Reading:
    """Where a rank reads a folder: `path` as it sees it, through `mounts` when it runs in a container."""

    path: str
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadThrough:
    """The mount that a reader had under its folder, as its kernel tells: asking for options proves nothing."""

    kind: str
    options: tuple[str, ...] = ()

    def option(self, name: str) -> str:
        """The value of `name=value`; empty when there is none."""
        return next((one.partition("=")[2] for one in self.options if one.partition("=")[0] == name), "")


class Share(Protocol[SeenT]):
    """One way to share. `SeenT` is what it wants to know of one node.

    A plan is made from facts alone and is empty when all is so already: attach, look again, plan again, and nothing is
    left. An attach that was cut off is thus gone on with, and what a step does must bear being done again.
    """

    def look(self, want: Want) -> Mapping[NodeName, Command]:
        """One question to each node that has something to say."""
        ...

    def read(self, want: Want, node: NodeName, text: str) -> SeenT:
        """Parse a node's answer. Raises Unreadable."""
        ...

    def attach(self, want: Want, seen: Mapping[NodeName, SeenT]) -> Plan:
        """Steps that are still to be taken. Raises Refused with what stands in the way, before anything was done."""
        ...

    def detach(self, want: Want, seen: Mapping[NodeName, SeenT]) -> Plan:
        """Steps back to how it was before the attach. Never removes what is not ours."""
        ...

    def reading(self, want: Want, folder: Folder, node: NodeName) -> Reading:
        """Where the rank on that worker reads the folder, once it is attached."""
        ...

    def how(
        self, want: Want, folder: Folder, node: NodeName, seen: Mapping[NodeName, SeenT], mount: ReadThrough
    ) -> str:
        """What came of it, for people: from facts looked up after the attach, and from what the reader read through.

        Raises Refused when that is not what was asked for.
        """
        ...

    def notes(self, want: Want, seen: Mapping[NodeName, SeenT]) -> tuple[str, ...]:
        """What is attached, and not as good as it could be."""
        ...


def on_host(want: Want, folder: Folder, node: NodeName) -> Reading:
    """A folder on the node itself; a container has it as a bind mount."""
    there = folder.targets.get(node, folder.source)
    if not want.in_containers:
        return Reading(there)
    return Reading(folder.inside, with_targets(Mount(there, folder.inside)))


def through(reading: Reading, want: Want, command: Command) -> Command:
    """Run a program, given on standard input, where the rank will read: in a throwaway container with its mounts."""
    if not reading.mounts:
        return command
    docker = ["docker", "-H", f"unix://{want.engine}", "run", "--rm", "-i", "--pull", "never", "--network", "none"]
    for one in reading.mounts:
        kind = "bind" if "/" in one.source else "volume"
        docker += ["--mount", f"type={kind},source={one.source},target={one.target},readonly"]
    program, *words = command.argv
    argv = (*docker, "--entrypoint", program, want.image, *words)
    return Command(argv, stdin=command.stdin, limit=command.limit)


def as_root(argv: tuple[str, ...], user: int) -> tuple[str, ...]:
    """For users that may use sudo without a password; whoever plans has looked whether they may."""
    return argv if user == 0 else ("sudo", "-n", *argv)


REMOVE_EMPTY = ("sh", "-c", '[ ! -d "$0" ] || rmdir --ignore-fail-on-non-empty "$0"')  # and the folder


def plan_of(*stages: tuple[str, tuple[Step, ...]]) -> Plan:
    """Stages with a barrier after each; those without a step are left out."""
    return Plan(tuple(Stage(name, steps) for name, steps in stages if steps))


def count(plan: Plan) -> int:
    return sum(len(stage.steps) for stage in plan.stages)


def below(folder: str, name: str) -> str:
    return str(PurePosixPath(folder) / name)
