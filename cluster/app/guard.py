"""The memory guard of a boot: its program as one file, and its steps with a token of their own."""

import secrets
from functools import cache

from cluster.app.agents import source
from cluster.app.ledger import MemoryPlan
from cluster.model.bundle import bundle
from cluster.model.settings import Settings
from cluster.plan.guard import PARTS, GuardSteps, guard_steps
from cluster.runtime.base import LaunchSpec


@cache
def program() -> bytes:
    return bundle(source(part) for part in PARTS)


def guard_of(settings: Settings, spec: LaunchSpec, memory: MemoryPlan | None, token: str = "") -> GuardSteps:
    return guard_steps(settings, spec, memory.nodes if memory else (), program(), token or secrets.token_hex(16))
