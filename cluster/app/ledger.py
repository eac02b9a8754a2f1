"""The memory ledger on the head: noted while a boot loads, kept once it serves, read by the next start."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from cluster.app.session import Session
from cluster.errors import SparkctlError, StepFailed
from cluster.model.events import Emit, Severity, Told
from cluster.model.ledger import Ledger, Measured, Shape, from_json, to_json
from cluster.model.memory import MemoryFacts, ModelShape
from cluster.model.receipt import Receipt
from cluster.model.settings import Settings
from cluster.node.base import Node
from cluster.node.failures import NoSuchFile
from cluster.plan.boot import Observation
from cluster.plan.memory import NodePlan
from cluster.probe.boot_figures import BootFigures, read_on
from cluster.probe.ranks import NodeLook


def ledger_path(settings: Settings) -> PurePosixPath:
    return PurePosixPath(settings.head.state_dir) / "ledger.json"


def read_ledger(head: Node, settings: Settings, emit: Emit) -> Ledger:
    """A ledger that cannot be read costs a better prediction, not a start."""
    path = ledger_path(settings)
    try:
        return from_json(head.read(str(path)).decode("utf-8", "replace"), f"{head.name}:{path}")
    except NoSuchFile:
        return Ledger()
    except StepFailed as error:
        emit(Told(Severity.WARNING, f"{error.what}; predictions rest on the model's files alone", error.where))
        return Ledger()


def shape_of_boot(settings: Settings, model: ModelShape) -> Shape:
    serve = settings.serve
    return Shape(
        weights=model.size,
        tensor_parallel=serve.tensor_parallel,
        pipeline_parallel=serve.pipeline_parallel,
        max_model_len=serve.max_model_len,
        max_num_seqs=serve.max_num_seqs,
        max_num_batched_tokens=serve.max_num_batched_tokens,
        kv_cache_memory_bytes=serve.kv_cache_memory_bytes,
        gpu_memory_utilization=str(serve.gpu_memory_utilization or ""),
        speculation=serve.speculation.value,
        enforce_eager=serve.enforce_eager,
    )


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a boot will take of each node; `shape` is None when the head has no model to count."""

    facts: tuple[MemoryFacts, ...]
    shape: ModelShape | None
    nodes: tuple[NodePlan, ...]


class Meter:
    """Notes what is available on each node while a boot loads, and what the ranks say of it."""

    def __init__(self) -> None:
        self.lowest: dict[str, int] = {}
        self.latest: dict[str, int] = {}
        self.figures: dict[int, BootFigures] = {}

    def note(self, seen: Observation, looks: Mapping[str, NodeLook]) -> None:
        for name, look in looks.items():
            self.latest[name] = look.memory.available
            self.lowest[name] = min(self.lowest.get(name, look.memory.available), look.memory.available)
        for rank in seen.ranks:
            known = self.figures.get(rank.rank, BootFigures())
            self.figures[rank.rank] = read_on(known, (line.text for line in rank.lines))

    def measured(self, receipt: Receipt, shape: Shape, plans: tuple[NodePlan, ...]) -> tuple[Measured, ...]:
        return tuple(
            self._measured(receipt, shape, plan, rank)
            for rank, plan in enumerate(plans)
            if receipt.ranks[rank].node in self.lowest
        )

    def _measured(self, receipt: Receipt, shape: Shape, plan: NodePlan, rank: int) -> Measured:
        node, figures = receipt.ranks[rank].node, self.figures.get(rank, BootFigures())
        return Measured(
            boot=receipt.boot,
            recipe=receipt.recipe,
            node=node,
            rank=rank,
            shape=shape,
            predicted=sum(need.taken("graphs") for need in plan.needs),
            before=plan.facts.info.available,
            lowest=self.lowest[node],
            serving=self.latest[node],
            loaded=figures.loaded,
            pool=figures.pool,
            graphs=figures.graphs,
            tokens=figures.tokens,
        )


def enter(session: Session, receipt: Receipt, plan: MemoryPlan, meter: Meter, emit: Emit) -> None:
    """Add a boot that serves. What goes wrong with it is told and ends nothing."""
    if plan.shape is None:
        return
    settings, shape = session.settings, shape_of_boot(session.settings, plan.shape)
    entries = meter.measured(receipt, shape, plan.nodes)

    def write(head: Node) -> None:
        ledger = read_ledger(head, settings, emit).add(entries)
        head.write(str(ledger_path(settings)), to_json(ledger), 0o600)

    try:
        session.on(settings.head.name, write)
    except SparkctlError as error:
        emit(Told(Severity.WARNING, f"the memory ledger was not kept: {error.what}", error.where))
