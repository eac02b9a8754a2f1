"""A plan as a result: the exact commands and files of every step, without the contents of files."""

from typing import assert_never

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
        case CreateContainer(spec=spec):
            undo = step.undo.argv if step.undo else ()
            return PlannedStep(step.node, step.why, ("docker", "create", "--name", spec.name, spec.image), (), undo)
        case _:
            assert_never(step)
