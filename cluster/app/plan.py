"""`plan`: every step that `start` would take, contacting nobody."""

from dataclasses import replace

from cluster.app.boxes import in_containers
from cluster.app.guard import guard_of
from cluster.app.ranks import launcher
from cluster.model.deployment import DeploymentId
from cluster.model.events import PlannedStage, PlannedStep, PlanReport
from cluster.model.settings import NodeSettings, Settings, is_alone
from cluster.model.steps import Plan, Stage
from cluster.plan.boxes import NVIDIA, RDMA, planned_box
from cluster.plan.launch import Wiring, key_step, launch_spec
from cluster.plan.share import shares
from cluster.plan.shown import plan_report
from cluster.runtime.base import RankSpec

BOOT = "BOOT"  # stands for the boot's name, which is made when it begins


def plan(settings: Settings) -> PlanReport:
    """Every step, what each rank will run, and what is only known once the nodes are asked."""
    wiring = tuple(_wiring(node) for node in settings.nodes)
    boxes = tuple(planned_box(settings, node) for node in settings.nodes) if in_containers(settings) else ()
    spec = launch_spec(settings, DeploymentId(settings.deployment, BOOT), wiring, boxes)
    guard = guard_of(settings, spec, None, token=BOOT)
    stages = (
        Stage("prepare", (*key_step(settings), *launcher(settings).prepare(spec), *guard.prepare)),
        Stage("launch", (*guard.launch, *launcher(settings).launch(spec)), in_order=True),
    )
    report = plan_report(settings.deployment, Plan(stages), tuple(_notes(settings)))
    ranks = PlannedStage("ranks", tuple(_rank(rank) for rank in spec.ranks))
    return replace(report, stages=(*report.stages, ranks))


def _rank(rank: RankSpec) -> PlannedStep:
    secrets = tuple((name, f"<from {path}>") for name, path in rank.secrets)
    return PlannedStep(rank.node, f"rank {rank.rank} runs", rank.argv, (*rank.environment, *secrets))


def _wiring(node: NodeSettings) -> Wiring:
    interface = node.interface or f"<interface of {node.address}>"
    return Wiring(node.address, interface, node.hca, node.gid)


def _notes(settings: Settings) -> list[str]:
    notes = [
        f"{node.name}: the interface is read on the node: the one that carries {node.address}"
        for node in settings.nodes
        if not node.interface and not is_alone(settings)
    ]
    if in_containers(settings):
        notes.append(
            f"each container also gets, where the node has them: {RDMA} and memlock without a limit, "
            f"{', '.join(NVIDIA)}, and --gpus all"
        )
    if shares(settings):
        notes.append(f"first the weights are shared by {settings.weights.sync}, and proven: what `sparkctl share` does")
    notes.append("before this: checks on every node (addresses, ports, server, model, equal versions, disk, key file)")
    notes.append("after this: wait until every rank lives and one token was made")
    return notes
