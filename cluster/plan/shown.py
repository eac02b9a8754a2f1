"""A plan as a result: the exact commands and files of every step, without the contents of files."""

from collections.abc import Iterator
from typing import assert_never

from cluster.model.containers import ContainerSpec, Mount
from cluster.model.events import PlannedStage, PlannedStep, PlanReport
from cluster.model.steps import CreateContainer, Plan, Run, Step, Write


def plan_report(deployment: str, plan: Plan, notes: tuple[str, ...] = ()) -> PlanReport:
    """Stages without steps are left out: there is nothing to do in them."""
    stages = tuple(
        PlannedStage(stage.name, tuple(_step(step) for step in stage.steps), stage.in_order)
        for stage in plan.stages
        if stage.steps
    )
    return PlanReport(deployment, stages, notes)


def _step(step: Step) -> PlannedStep:
    match step:
        case Run():
            undo = step.undo.argv if step.undo else ()
            return PlannedStep(step.node, step.why, step.command.argv, step.command.env, undo)
        case Write():
            size, mode = len(step.data), f"{step.mode:03o}"
            return PlannedStep(step.node, step.why, path=str(step.path), size=size, mode=mode)
        case CreateContainer(spec=spec, engine=engine):
            undo = step.undo.argv if step.undo else ()
            return PlannedStep(step.node, step.why, create_words(spec, engine), (), undo)
        case _:
            assert_never(step)


def create_words(spec: ContainerSpec, engine: str) -> tuple[str, ...]:
    """The command line that makes the same container; what the engine is really asked goes through its API."""
    return ("docker", "-H", f"unix://{engine}", "create", *_options(spec), spec.image, *spec.argv)


def _options(spec: ContainerSpec) -> Iterator[str]:
    yield from ("--name", spec.name, "--pull", "never", "--restart", "no", "--entrypoint", "")
    yield from ("--network", "host" if spec.host_network else "none")
    yield from ("--ipc", "host" if spec.host_ipc else "private")
    if spec.shm is not None and not spec.host_ipc:
        yield from ("--shm-size", str(int(spec.shm)))
    yield from ("--oom-score-adj", str(spec.oom_score), "--stop-timeout", f"{spec.stop_grace:.0f}")
    for name, limit in (("memlock", spec.memlock), ("stack", spec.stack)):
        if limit is not None:
            yield from ("--ulimit", f"{name}={int(limit)}:{int(limit)}")
    if spec.gpus:
        yield from ("--gpus", "all")
    many = {
        "--device": (f"{path}:{path}:rwm" for path in spec.devices),
        "--cap-add": iter(spec.capabilities),
        "--security-opt": _security(spec),
        "--mount": map(_mounted, spec.mounts),
        "--label": (f"{name}={value}" for name, value in spec.labels),
        "--env": (f"{name}={value}" for name, value in spec.environment),
    }
    for option, values in many.items():
        for value in values:
            yield from (option, value)
    yield from ("--log-driver", "json-file", "--log-opt", f"max-size={int(spec.log_bytes)}")
    yield from ("--log-opt", f"max-file={spec.keep_logs}")


def _security(spec: ContainerSpec) -> Iterator[str]:
    yield from spec.security
    if spec.seccomp:
        yield f"seccomp={spec.seccomp.path}"


def _mounted(mount: Mount) -> str:
    kind = "bind" if "/" in mount.source else "volume"
    parts = (f"type={kind}", f"source={mount.source}", f"target={mount.target}")
    return ",".join((*parts, "readonly") if mount.read_only else parts)
