"""The memory plan as a report, and what changes of settings would win."""

from collections.abc import Sequence

from cluster.model.fit import Amount, Fit, FitNode, FitReport
from cluster.model.memory import ModelShape
from cluster.model.serve import Speculation
from cluster.model.settings import Settings
from cluster.plan.memory import PHASES, NodePlan, capacity, gib, loading
from cluster.plan.memory_checks import describe, judge, remedy
from cluster.weights.budget import budget

ORDER = (Fit.FITS, Fit.TIGHT, Fit.SHORT, Fit.NEVER)


def report(settings: Settings, shape: ModelShape, plans: Sequence[NodePlan]) -> FitReport:
    nodes = tuple(_node(settings, plan) for plan in plans)
    worst = max((node.fit for node in nodes), key=ORDER.index)
    changes = changes_for(settings, shape) if worst is not Fit.FITS else ()
    return FitReport(
        settings.deployment, settings.serve.served_model_name or settings.serve.model, worst, nodes, changes
    )


def _node(settings: Settings, plan: NodePlan) -> FitNode:
    fit, have = judge(plan), capacity(plan.facts.info)
    names = dict.fromkeys(part.name for need in plan.needs for part in need.parts)
    left = {phase: have - sum(need.taken(phase) for need in plan.needs) for phase in PHASES}
    return FitNode(
        node=plan.facts.node,
        fit=fit,
        total=plan.facts.info.total,
        available=have,
        free=plan.facts.info.free,
        needed=plan.needed,
        parts=tuple(Amount(name, sum(need.size(name) for need in plan.needs)) for name in names),
        phases=tuple(Amount(name, size) for name, size in left.items()),
        held=tuple(Amount(one.name, one.whole) for one in plan.facts.holders),
        tokens=plan.needs[0].tokens,
        measured=plan.measured.taken if plan.measured else None,
        boot=plan.measured.boot if plan.measured else "",
        observed=describe(plan),
        fix="" if fit is Fit.FITS else remedy(settings, plan),
    )


def changes_for(settings: Settings, shape: ModelShape) -> tuple[str, ...]:
    """What could be given up, and the GiB of each rank that it wins; only what wins something."""
    sizes = {bucket.name: max(bucket.ranks) for bucket in budget(shape, loading(settings)).buckets}
    draft = sum(size for name, size in sizes.items() if name.startswith("draft"))
    pool = settings.serve.kv_cache_memory_bytes or 0
    wins = (
        ("SPEC_METHOD=none", draft if settings.serve.speculation is not Speculation.NONE else 0, "slower answers"),
        ("LANGUAGE_MODEL_ONLY=1", sizes.get("vision", 0), "no images"),
        (f"KV_CACHE_MEMORY_BYTES={pool // 2}", pool // 2, "half the tokens"),
    )
    return tuple(f"{setting} wins {gib(size)} GiB: {price}" for setting, size, price in wins if size >= 2**29)
