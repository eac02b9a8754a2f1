"""The steps that put a memory guard beside each rank, before the rank is launched; none when the guard is off."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath

from cluster.model.deployment import rank_dir
from cluster.model.kit import GuardMode, PageCache
from cluster.model.memory import GIB
from cluster.model.settings import NodeSettings, Settings
from cluster.model.steps import Command, Run, Write
from cluster.model.units import Seconds
from cluster.plan.memory import NodePlan
from cluster.plan.pages import policy
from cluster.runtime.base import LaunchSpec, RankSpec

PARTS = ("own", "guard_rule", "guard_eyes", "guard_disk", "guard")
LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class GuardSteps:
    """`prepare` and `launch` join the stages of the same names; in `launch` they come first."""

    prepare: tuple[Write, ...] = ()
    launch: tuple[Run, ...] = ()


def guard_steps(
    settings: Settings, spec: LaunchSpec, plans: Sequence[NodePlan], program: bytes, token: str
) -> GuardSteps:
    """`program` is the guard as one file; `token` signs what the guards of this boot tell each other."""
    if settings.guard.mode is GuardMode.OFF:
        return GuardSteps()
    programs = {
        (rank.node, rank.state_dir): Write(
            rank.node, "put the memory guard there", _path(rank, program), program, 0o644
        )
        for rank in spec.ranks
    }
    orders = (_order(settings, spec, rank, plans, token) for rank in spec.ranks)
    return GuardSteps((*programs.values(), *orders), tuple(_launch(spec, rank, program) for rank in spec.ranks))


def _path(rank: RankSpec, program: bytes) -> PurePosixPath:
    return PurePosixPath(rank.state_dir) / "agent" / f"guard-{sha256(program).hexdigest()[:12]}.py"


def _order(settings: Settings, spec: LaunchSpec, rank: RankSpec, plans: Sequence[NodePlan], token: str) -> Write:
    """The file that says what this guard may do; only its owner reads it, for it holds the token."""
    floor = int(settings.guard.floor_gib * GIB)
    mine = settings.nodes[rank.rank]
    order = {
        "mode": settings.guard.mode.value,
        "warn": 2 * floor,
        "floor": floor,
        "last": 2 * floor // 3,
        "foreign": settings.guard.foreign.value,
        "allowance": _allowance(plans, rank.rank),
        "drop": [settings.serve.model] if policy(settings) is not PageCache.KEEP else [],
        "ranks": [str(_folder(spec, one)) for one in spec.ranks if _same_machine(settings.nodes[one.rank], mine)],
        "grace": settings.watch.stop_grace,
        "address": mine.address,
        "port": port(settings, rank.rank),
        "peers": [
            [node.address, port(settings, other)] for other, node in enumerate(settings.nodes) if other != rank.rank
        ],
        "token": token,
        "meminfo": None,
    }
    data = (json.dumps(order, indent=1) + "\n").encode()
    why = f"write what the guard of rank {rank.rank} may do"
    return Write(rank.node, why, _folder(spec, rank) / "guard-spec.json", data)


def _allowance(plans: Sequence[NodePlan], rank: int) -> int | None:
    """What our ranks may take before they exceed their plan. A prediction alone convicts nobody: it may be wrong."""
    plan = plans[rank] if rank < len(plans) else None
    if plan is None or plan.measured is None:
        return None
    return plan.measured.taken + sum(need.size("longest prompt") for need in plan.needs)


def port(settings: Settings, rank: int) -> int:
    """UDP beside the rendezvous' TCP: the same number is no clash, and ranks on one machine differ."""
    above = settings.serve.master_port + rank
    return above if above <= LAST_PORT else settings.serve.master_port - rank


def _same_machine(one: NodeSettings, other: NodeSettings) -> bool:
    return one == other or one.control == other.control


def _folder(spec: LaunchSpec, rank: RankSpec) -> PurePosixPath:
    return rank_dir(rank.state_dir, spec.which, rank.rank)


def _launch(spec: LaunchSpec, rank: RankSpec, program: bytes) -> Run:
    folder = str(_folder(spec, rank))
    unit = re.sub(r"[^A-Za-z0-9_.-]", "-", f"sparkctl-{spec.which.name}-guard{rank.rank}-{spec.which.boot}")
    request = {"dir": folder, "program": str(_path(rank, program)), "unit": unit}
    return Run(
        rank.node,
        f"start the memory guard of rank {rank.rank}",
        _python(program, "launch", request, Seconds(30)),
        undo=_python(program, "stop", {"dir": folder}, Seconds(30)),
    )


def _python(program: bytes, verb: str, request: dict[str, str], limit: Seconds) -> Command:
    argv = ("python3", "-IS", "-", verb, json.dumps(request, separators=(",", ":")))
    return Command(argv, stdin=program, limit=limit)
