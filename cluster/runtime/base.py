"""What to launch on which node, and the `Runtime` protocol that turns it into steps."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from cluster.model.containers import Box
from cluster.model.deployment import DeploymentId
from cluster.model.steps import Command, NodeName, Step


@dataclass(frozen=True, slots=True)
class RankSpec:
    """One rank as it will be run.

    argv         the server's command line
    environment  variables for it, sorted by name; no secrets
    secrets      variable -> file on the node that holds its value (read there, never sent or logged)
    state_dir    the node's folder for our files, `~` allowed
    box          what its container gets, for the container runtime
    """

    rank: int
    node: NodeName
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    secrets: tuple[tuple[str, str], ...] = ()
    state_dir: str = "~/.local/state/sparkctl"
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """All ranks of one boot, rank 0 (the head) first."""

    which: DeploymentId
    ranks: tuple[RankSpec, ...]


@dataclass(frozen=True, slots=True)
class LogSource:
    rank: int
    node: NodeName
    command: Command
    path: PurePosixPath


class Runtime(Protocol):
    """Decides how a rank is started, found, ended and read. Every method is pure."""

    def prepare(self, spec: LaunchSpec) -> tuple[Step, ...]:
        """Files each node needs before its rank can be launched."""
        ...

    def launch(self, spec: LaunchSpec) -> tuple[Step, ...]:
        """One step per rank, workers before the head, each with its undo."""
        ...
