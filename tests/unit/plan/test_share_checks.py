from dataclasses import replace

from cluster.errors import Refused
from cluster.model.checks import Finding, Severity
from cluster.model.kit import Sync, Weights
from cluster.model.steps import Command, Plan, Run, Stage
from cluster.plan.share_checks import before_sharing, impossible, planned
from tests.build import pair

SETTINGS = replace(pair(), weights=Weights(sync=Sync.NFS))
STEPS = Plan((Stage("mount", (Run("spark-b", "mount the model read-only", Command(("mount",))),)),))
ABSENT = Finding("MODEL.PRESENT", Severity.REFUSAL, "spark-b", "no config.json", "the model", "put it there")


def test_what_is_shared_already_is_right():
    assert planned(SETTINGS, Plan(())) == Finding(
        "SHARE.PLAN", Severity.OK, "", "the weights are shared already, by nfs"
    )


def test_steps_to_come_are_told_and_make_a_missing_model_no_refusal():
    share = planned(SETTINGS, STEPS)
    assert (share.severity, share.details) == (Severity.NOTE, ("spark-b: mount the model read-only",))
    later, told = before_sharing(SETTINGS, [ABSENT], share)
    assert (later.severity, later.details, told) == (Severity.NOTE, ("start shares the weights first",), share)


def test_a_head_without_the_model_stays_a_refusal():
    at_head = replace(ABSENT, node="spark-a")
    assert before_sharing(SETTINGS, [at_head], planned(SETTINGS, STEPS))[0] == at_head


def test_what_cannot_be_shared_refuses_with_the_reason():
    error = Refused("no NFS server", where="spark-a", evidence=["x"], fix="apt-get install it")
    share = impossible(error)
    assert share == Finding(
        "SHARE.PLAN",
        Severity.REFUSAL,
        "spark-a",
        "no NFS server",
        "weights on every node",
        "apt-get install it",
        ("x",),
    )
    assert before_sharing(SETTINGS, [ABSENT], share) == [ABSENT, share]
