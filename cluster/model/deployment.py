"""What identifies a deployment on its nodes, and the states that we judge it to be in."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath


class State(StrEnum):
    """The judged state of a whole deployment."""

    ABSENT = "absent"
    LOADING = "loading"
    SERVING = "serving"
    DEGRADED = "degraded"
    HUNG = "hung"
    CANNOT_TELL = "cannot-tell"


@dataclass(frozen=True, slots=True)
class DeploymentId:
    """`name` is the user's; `boot` is new for every start and sorts by time, e.g. `20261130T173000Z-3f9a`."""

    name: str
    boot: str


def deployment_root(state_dir: str, name: str) -> PurePosixPath:
    """Where a node keeps everything about one deployment."""
    return PurePosixPath(state_dir) / "deployments" / name


def rank_dir(state_dir: str, which: DeploymentId, rank: int) -> PurePosixPath:
    """The folder of one rank of one boot: spec.json, rank.json, log, exit.json."""
    return deployment_root(state_dir, which.name) / "boots" / which.boot / f"rank{rank}"
