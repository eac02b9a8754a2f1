"""Ask nodes for their memory and the head for the sizes in the model's files, and plan a boot's memory."""

from collections.abc import Mapping

from cluster.app.agents import agent
from cluster.app.ledger import MemoryPlan, read_ledger, shape_of_boot
from cluster.app.observe import told
from cluster.app.session import OpenNode, Session
from cluster.errors import Refused
from cluster.model.events import Emit, Finding, Severity
from cluster.model.fit import FitReport
from cluster.model.memory import MemoryFacts, ModelShape
from cluster.model.settings import RuntimeKind, Settings
from cluster.model.steps import Command
from cluster.node.base import Node
from cluster.plan.fit import report
from cluster.plan.memory import plan_nodes
from cluster.plan.memory_checks import check_memory
from cluster.probe.headers import parse_shape
from cluster.probe.memory import parse_facts

HEADERS_LIMIT = 300.0  # 200 000 tensors on a disk that may be busy
MOST = 12


def memory_question() -> Command:
    return agent("memory", {"most": MOST})


def shape_question(name: str, settings: Settings) -> Command:
    return agent("headers", {"model": model_on(name, settings)}, HEADERS_LIMIT)


def memory_of(node: Node) -> MemoryFacts:
    return parse_facts(node.name, told(node, node.run(memory_question())))


def shape_on(node: Node, settings: Settings) -> ModelShape | None:
    return parse_shape(node.name, told(node, node.run(shape_question(node.name, settings))))


def model_on(name: str, settings: Settings) -> str:
    """The model's folder on a node itself; inside a container it may stand somewhere else."""
    mine = next(one for one in settings.nodes if one.name == name)
    is_inside = settings.launch.runtime is RuntimeKind.CONTAINER
    return (mine.model if is_inside else "") or settings.serve.model


def plan_memory(session: Session, emit: Emit, *, remote: bool = False) -> MemoryPlan:
    """One question to every node, one more to the head. The model is counted on the head: it is equal on all ranks.

    `remote`: on the hub, when nothing of it is on the head yet.
    """
    settings, head = session.settings, session.settings.head.name
    asked, shape = session.at_once(
        lambda: session.each(memory_of), lambda: session.on(head, lambda node: shape_on(node, settings))
    )
    if (shape is None or not shape.groups) and remote and settings.weights.repo:
        from cluster.app.remote import remote_shape

        shape = remote_shape(settings, emit)
    return planned(session, emit, asked, shape)


def planned(session: Session, emit: Emit, seen: Mapping[str, MemoryFacts], shape: ModelShape | None) -> MemoryPlan:
    """From what the nodes and the head's model were found to be, and what earlier boots took."""
    settings = session.settings
    facts = tuple(seen[node.name] for node in settings.nodes)
    if shape is None or not shape.groups:
        return MemoryPlan(facts, None, ())
    ledger = session.on(settings.head.name, lambda node: read_ledger(node, settings, emit))
    kind = shape_of_boot(settings, shape)
    measured = tuple(ledger.last(settings.recipe, node.name, kind) for node in settings.nodes)
    return MemoryPlan(facts, shape, plan_nodes(settings, (shape,) * len(facts), facts, measured))


def memory_findings(settings: Settings, plan: MemoryPlan) -> list[Finding]:
    if plan.shape is None:
        told_where = f"no safetensors in {settings.serve.model}: how much it will take is not known"
        return [Finding("MEM.BOOT_MARGIN", Severity.NOT_CHECKED, settings.head.name, told_where)]
    return [finding for node in plan.nodes for finding in check_memory(settings, node)]


def fit(settings: Settings, open_one: OpenNode, emit: Emit) -> FitReport:
    """What a boot would take of each node, beside what it has now. Changes nothing."""
    with Session(settings, open_one, emit) as session:
        session.need_all()
        plan = plan_memory(session, emit, remote=True)
    if plan.shape is None:
        raise Refused(
            "there is no model to count",
            where=f"{settings.head.name}:{settings.serve.model}",
            evidence=("no *.safetensors there",),
            fix="put the model there, or set MODEL_DIR; HF_MODEL_REPO counts it on the hub",
        )
    return report(settings, plan.shape, plan.nodes)
