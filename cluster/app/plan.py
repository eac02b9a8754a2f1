"""`plan`: every step that `start` would take, contacting nobody."""

from cluster.app.ranks import RUNTIME
from cluster.model.deployment import DeploymentId
from cluster.model.settings import NodeSettings, Settings
from cluster.model.steps import Plan, Stage
from cluster.plan.launch import Wiring, launch_spec

BOOT = "BOOT"  # stands for the boot's name, which is made when it begins


def plan(settings: Settings) -> tuple[Plan, tuple[str, ...]]:
    """The plan, and what is only known once the nodes are asked."""
    wiring = tuple(_wiring(node) for node in settings.nodes)
    spec = launch_spec(settings, DeploymentId(settings.deployment, BOOT), wiring)
    stages = (
        Stage("prepare", RUNTIME.prepare(spec)),
        Stage("launch", RUNTIME.launch(spec), in_order=True),
    )
    return Plan(stages), tuple(_notes(settings))


def _wiring(node: NodeSettings) -> Wiring:
    interface = node.interface or f"<interface of {node.address}>"
    return Wiring(node.address, interface, node.hca, node.gid)


def _notes(settings: Settings) -> list[str]:
    notes = [
        f"{node.name}: the interface is read on the node: the one that carries {node.address}"
        for node in settings.nodes
        if not node.interface
    ]
    notes.append("before this: checks on every node (addresses, ports, server, model, equal versions, disk, key file)")
    notes.append("after this: wait until every rank lives and one token was made")
    return notes
