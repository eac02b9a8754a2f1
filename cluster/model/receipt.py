"""What a start did, kept on the head; `stop` acts on it and a later reader can tell what ran."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from cluster.errors import Unreadable
from cluster.model.deployment import DeploymentId
from cluster.model.events import StageTime
from cluster.model.fabric import NOTHING_SAID, Transport

VERSION = 1


@dataclass(frozen=True, slots=True)
class RankReceipt:
    """One rank: where it runs and as what. Values of variables are left out, their names are not.

    identity  [pid, time of its start, systemd unit or ""] of the shim, or empty before launch
    hca, gid, interface  what NCCL was told to use; empty or None where it chooses itself
    transport            what it said it uses, once it serves
    """

    rank: int
    node: str
    control: str
    state_dir: str
    argv: tuple[str, ...]
    variables: tuple[str, ...]
    hostname: str
    machine_id: str
    host_key: str
    packages: tuple[tuple[str, str], ...]
    model_digest: str
    model_how: str
    memory_before: int
    identity: tuple[str, ...] = ()
    hca: str = ""
    gid: int | None = None
    interface: str = ""
    transport: Transport = NOTHING_SAID


@dataclass(frozen=True, slots=True)
class Receipt:
    """`environment_digest` covers the variables that all ranks share, for their values are not kept."""

    deployment: str
    boot: str
    recipe: str
    created: str
    url: str
    model: str
    ranks: tuple[RankReceipt, ...]
    forced: tuple[str, ...] = ()
    served: str = ""
    stopped: str = ""
    stages: tuple[StageTime, ...] = ()
    sparkctl: str = ""
    environment_digest: str = ""

    @property
    def which(self) -> DeploymentId:
        return DeploymentId(self.deployment, self.boot)


def to_json(receipt: Receipt) -> bytes:
    return json.dumps({"version": VERSION, **asdict(receipt)}, indent=1).encode() + b"\n"


def from_json(text: str, where: str) -> Receipt:
    """Raises Unreadable naming `where`; a receipt is never guessed at."""
    try:
        seen: dict[str, Any] = json.loads(text)
        _check(seen.pop("version"))
        ranks = tuple(_rank(one) for one in seen.pop("ranks"))
        stages = tuple(_stage(one) for one in seen.pop("stages"))
        return Receipt(ranks=ranks, stages=stages, forced=tuple(seen.pop("forced")), **seen)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"cannot read the receipt: {error}", where=where, evidence=[text[:200]]) from error


def _check(version: object) -> None:
    if version != VERSION:
        raise ValueError(f"it has version {version}, this sparkctl reads {VERSION}")


def _rank(seen: dict[str, Any]) -> RankReceipt:
    seen["packages"] = tuple((name, version) for name, version in seen["packages"])
    for key in ("argv", "variables", "identity"):
        seen[key] = tuple(seen[key])
    seen["transport"] = _transport(seen.get("transport"))
    return RankReceipt(**seen)


def _transport(seen: dict[str, Any] | None) -> Transport:
    if seen is None:  # of a sparkctl that did not keep it
        return NOTHING_SAID
    return Transport(seen["kind"], tuple(seen["devices"]), seen["gpu_direct"], tuple(seen["gids"]))


def _stage(seen: dict[str, Any]) -> StageTime:
    return StageTime(seen["stage"], seen["seconds"], seen["detail"], tuple(_stage(one) for one in seen["children"]))
