"""Run the image's own self-test in a container that is thrown away, on every node, before ranks are started with it."""

import secrets

from cluster.app.boxes import look_at_boxes
from cluster.app.image import engine_of
from cluster.app.pace import REAL, Pace
from cluster.app.session import Session
from cluster.errors import StepFailed, TimedOut
from cluster.model.checks import Finding
from cluster.model.containers import ContainerSpec
from cluster.model.events import Emit, StepStarted
from cluster.model.settings import Settings
from cluster.node.base import Node
from cluster.node.engine import Engine
from cluster.plan.self_test import (
    LIMIT,
    OURS_LABEL,
    Ran,
    judge_self_test,
    not_run,
    self_test_container,
    words_of,
)

STAGE = "image"


def self_test(session: Session, emit: Emit, *, without_gpu: bool = False, pace: Pace = REAL) -> list[Finding]:
    """One finding for each node. `without_gpu` also runs it where there is none; a start has nothing to learn there."""
    hosts = look_at_boxes(session)

    def check(node: Node) -> Finding:
        seen = hosts[node.name]
        reason = not_run(node.name, seen)
        if seen.image is None or (reason is not None and not (without_gpu and words_of(seen.image))):
            return reason or judge_self_test(node.name, seen, Ran(None, failed="there is no image"))
        spec = self_test_container(session.settings.deployment, seen.image, seen, secrets.token_hex(4))
        emit(StepStarted(STAGE, node.name, "run the image's self-test", f"docker run --rm {shown(spec)}"))
        return judge_self_test(node.name, seen, run(session.settings, node, spec, pace))

    return list(session.each(check).values())


def shown(spec: ContainerSpec) -> str:
    return " ".join(("--network=none", *(("--gpus=all",) if spec.gpus else ()), spec.image[:19], *spec.argv))


def run(settings: Settings, node: Node, spec: ContainerSpec, pace: Pace = REAL) -> Ran:
    """Nothing of it is left, and neither is what an earlier one left that was killed."""
    with engine_of(settings, node) as engine:
        for left in engine.containers({OURS_LABEL: settings.deployment}):
            engine.remove(left.id)
        identity, began = engine.create(spec), pace.clock()
        try:
            return _ended(engine, identity, began, pace)
        finally:
            engine.remove(identity)


def _ended(engine: Engine, identity: str, began: float, pace: Pace) -> Ran:
    try:
        engine.start(identity)
    except StepFailed as error:
        return Ran(None, failed="; ".join(error.evidence) or error.what)
    try:
        code: int | None = engine.wait(identity, LIMIT)
    except TimedOut:
        code = None
    return Ran(code, tuple(engine.output(identity).splitlines()), pace.clock() - began)
