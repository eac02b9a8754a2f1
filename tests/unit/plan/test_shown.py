"""A plan becomes a result without the contents of files."""

from pathlib import PurePosixPath

from cluster.model.events import PlannedStage, PlannedStep, PlanReport
from cluster.model.steps import Command, Plan, Run, Stage, Write
from cluster.plan.shown import plan_report


def test_steps_keep_their_commands_and_lose_their_contents():
    plan = Plan(
        (
            Stage("prepare", (Write("a", "writing its file", PurePosixPath("~/spec.json"), b"secret", 0o40),)),
            Stage("share", ()),
            Stage(
                "launch", (Run("b", "starting", Command(("run",), (("A", "1"),)), Command(("undo",))),), in_order=True
            ),
        )
    )
    assert plan_report("demo", plan, ("a note",)) == PlanReport(
        "demo",
        (
            PlannedStage("prepare", (PlannedStep("a", "writing its file", path="~/spec.json", size=6, mode="040"),)),
            PlannedStage("launch", (PlannedStep("b", "starting", ("run",), (("A", "1"),), ("undo",)),), in_order=True),
        ),
        ("a note",),
    )
