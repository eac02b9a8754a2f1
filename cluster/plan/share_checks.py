"""What sharing the weights would take, as a check; and what other checks mean before it was done."""

from collections.abc import Iterable
from dataclasses import replace

from cluster.errors import SparkctlError
from cluster.model.checks import Finding, Severity
from cluster.model.settings import Settings
from cluster.model.steps import Plan
from cluster.share.base import count

PLAN = "SHARE.PLAN"
LATER = ("MODEL.PRESENT", "RANKS.MODEL")


def planned(settings: Settings, plan: Plan) -> Finding:
    """Whoever plans has looked at all nodes: no refusal means that it can be done."""
    way = f"by {settings.weights.sync}"
    if plan.is_empty:
        return Finding(PLAN, Severity.OK, "", f"the weights are shared already, {way}")
    first = [f"{step.node}: {step.why}" for stage in plan.stages for step in stage.steps]
    return Finding(PLAN, Severity.NOTE, "", f"{count(plan)} steps will share the weights {way}", details=tuple(first))


def impossible(error: SparkctlError) -> Finding:
    return Finding(PLAN, Severity.REFUSAL, error.where, error.what, "weights on every node", error.fix, error.evidence)


def before_sharing(settings: Settings, found: Iterable[Finding], share: Finding) -> list[Finding]:
    """Workers that lack the model are to get it: that is no refusal, unless it cannot be done."""
    if share.severity is not Severity.NOTE:
        return [*found, share]
    workers = {node.name for node in settings.workers}
    return [*(_later(one) if one.id in LATER and one.node in {"", *workers} else one for one in found), share]


def _later(finding: Finding) -> Finding:
    if finding.severity is not Severity.REFUSAL:
        return finding
    return replace(finding, severity=Severity.NOTE, expected="", fix="", details=("start shares the weights first",))
