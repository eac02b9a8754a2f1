"""What a boot will take of each node's memory, phase by phase, and what to say when that is more than there is."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.model.ledger import Measured
from cluster.model.memory import GIB, MemInfo, MemoryFacts, ModelShape
from cluster.model.serve import Speculation
from cluster.model.settings import Settings
from cluster.model.units import Bytes
from cluster.plan.exl3_checks import HEADROOM, keeps_pages, resident
from cluster.weights.budget import Loading, budget

# Measured on pairs of GB10 that serve at 600000 tokens: what the driver, the kernels' workspaces and torch take beside
# weights and pool; the server's own processes; NCCL's pinned buffers with its defaults and with small ones.
CONTEXT_AND_WORKSPACES = 4 * GIB
GRAPHS = 3 * GIB // 2
STAGING = 1 * GIB
SERVER_ON_GPU = 5 * GIB // 2
WORKER_ON_GPU = 7 * GIB // 4
NCCL_DEFAULT = 4.7 * GIB
NCCL_BUFFER, NCCL_CHANNELS = 4 * 2**20, 32
SERVER_ON_CPU = 7 * GIB // 4
WORKER_ON_CPU = 5 * GIB // 4
UTILIZATION = 0.92  # vLLM's own default
PROMPT_TOKEN = 3500  # bytes of the longest prompt's workspace for each of its tokens: 2.0 GiB at 601k
KNOWN_TOKEN = {"deepseek_v41": 3466}  # bytes of KV cache a token, where config.json does not say; as served
DEFAULT_TOKEN = 128 * 2**10
DEFAULT_CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that takes memory, from the phase on that it is listed with."""

    name: str
    size: Bytes
    phase: str
    until: str = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """What is taken in all when this phase is at its worst."""

    name: str
    taken: Bytes


PHASES = ("load", "KV pool", "graphs", "longest prompt")


@dataclass(frozen=True, slots=True)
class Need:
    """What one rank will take of its node.

    tokens       what the KV pool has room for
    floor        no boot can end well with less: weights, and the pool where its size is pinned
    wanted_free  what vLLM wants to be free before it loads anything
    """

    rank: int
    parts: tuple[Part, ...]
    tokens: int
    floor: Bytes
    wanted_free: Bytes = Bytes(0)

    def size(self, name: str) -> Bytes:
        return Bytes(sum(part.size for part in self.parts if part.name == name))

    @property
    def phases(self) -> tuple[Phase, ...]:
        return tuple(Phase(name, self.taken(name)) for name in PHASES)

    def taken(self, phase: str) -> Bytes:
        """Everything of this phase and those before it, less what was given back."""
        now = PHASES.index(phase)
        return Bytes(
            sum(
                part.size
                for part in self.parts
                if PHASES.index(part.phase) <= now and not (part.until and PHASES.index(part.until) < now)
            )
        )

    @property
    def peak(self) -> Bytes:
        return Bytes(max(phase.taken for phase in self.phases))


def loading(settings: Settings) -> Loading:
    serve = settings.serve
    return Loading(
        tensor_parallel=serve.tensor_parallel,
        pipeline_parallel=serve.pipeline_parallel,
        drafting=serve.speculation is not Speculation.NONE,
        vision=not serve.language_model_only,
        vision_split=serve.mm_encoder_tp_mode == "weights",
    )


def token_bytes(shape: ModelShape, tensor_parallel: int) -> int:
    """KV cache of one token on one rank, 16 bits a number. A latent cache is not split over ranks."""
    if shape.kind in KNOWN_TOKEN:
        return KNOWN_TOKEN[shape.kind]
    if shape.latent:
        return shape.layers * shape.latent * 2
    heads = -(-(shape.kv_heads or shape.heads) // tensor_parallel)
    return 2 * shape.layers * heads * shape.head_size * 2 or DEFAULT_TOKEN


def predict(settings: Settings, shape: ModelShape, has_gpu: bool, total: Bytes) -> tuple[Need, ...]:
    """What each rank will take, rank 0 first. Never less for a longer context, more sequences or fewer ranks."""
    if keeps_pages(settings):
        return (_held(settings, shape),)
    weights = budget(shape, loading(settings)).ranks
    return tuple(_need(settings, shape, has_gpu, total, rank, size) for rank, size in enumerate(weights))


def _need(settings: Settings, shape: ModelShape, has_gpu: bool, total: Bytes, rank: int, weights: Bytes) -> Need:
    per_token = max(1, token_bytes(shape, settings.serve.tensor_parallel) // settings.serve.pipeline_parallel)
    fixed = _fixed(settings, has_gpu, rank)
    prompt = _context(settings, shape) * PROMPT_TOKEN if has_gpu else 0
    pool = _pool(settings, shape, per_token, total, weights + sum(part.size for part in fixed))
    parts = (
        Part("weights", weights, "load"),
        *fixed,
        Part("KV pool", Bytes(pool), "KV pool"),
        Part("longest prompt", Bytes(prompt), "longest prompt"),
    )
    floor = Bytes(weights + (settings.serve.kv_cache_memory_bytes or 0))
    return Need(rank, parts, pool // per_token, floor, _start_check(settings, has_gpu, total))


def _held(settings: Settings, shape: ModelShape) -> Need:
    """What is copied must fit, with some room; mapped weights take none that cannot be had back."""
    size = resident(settings, shape)
    parts = (Part("weights", size, "load"), Part("headroom", HEADROOM, "load"))
    return Need(0, parts, settings.serve.max_model_len or 0, Bytes(size + HEADROOM))


def _fixed(settings: Settings, has_gpu: bool, rank: int) -> tuple[Part, ...]:
    if not has_gpu:
        return (Part("server processes", Bytes(WORKER_ON_CPU if rank else SERVER_ON_CPU), "load"),)
    graphs = 0 if settings.serve.enforce_eager else GRAPHS
    return (
        Part("server processes", Bytes(WORKER_ON_GPU if rank else SERVER_ON_GPU), "load"),
        Part("loader's buffers", Bytes(STAGING), "load", until="load"),
        Part("driver and workspaces", Bytes(CONTEXT_AND_WORKSPACES), "load"),
        Part("NCCL", _nccl(settings), "load"),
        Part("graphs", Bytes(graphs), "graphs"),
    )


def _nccl(settings: Settings) -> Bytes:
    """In proportion to a channel's buffer and the number of channels; half of it is LL128's."""
    if len(settings.nodes) == 1:
        return Bytes(0)
    buffer, channels = settings.nccl.buffsize or NCCL_BUFFER, settings.nccl.max_nchannels or NCCL_CHANNELS
    share = 0.5 if settings.nccl.proto == "^LL128" else 1.0
    return Bytes(int(NCCL_DEFAULT * share * buffer / NCCL_BUFFER * channels / NCCL_CHANNELS))


def _context(settings: Settings, shape: ModelShape) -> int:
    return settings.serve.max_model_len or shape.longest or DEFAULT_CONTEXT


def _pool(settings: Settings, shape: ModelShape, per_token: int, total: Bytes, others: int) -> int:
    """The pinned pool; else what vLLM takes: its share of all memory, or what one request needs if that is more."""
    pinned = settings.serve.kv_cache_memory_bytes
    if pinned is not None:
        return pinned
    asked = _context(settings, shape) * per_token * max(1, settings.serve.max_num_seqs or 1)
    share = float(settings.serve.gpu_memory_utilization or UTILIZATION)
    return max(asked, int(share * total) - others)


def _start_check(settings: Settings, has_gpu: bool, total: Bytes) -> Bytes:
    """vLLM refuses to start unless this much is free, and on a GB10 free means MemFree: the page cache counts."""
    share = settings.serve.gpu_memory_utilization
    return Bytes(int(float(UTILIZATION if share is None else share) * total)) if has_gpu else Bytes(0)


def capacity(info: MemInfo) -> Bytes:
    """What a process can get: the huge pages where there are any, else MemAvailable (NVIDIA's rule for unified memory).

    Swap is left out: what the driver holds cannot be swapped.
    """
    return Bytes(info.huge_free * info.huge_size) if info.huge_total else info.available


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node's prediction beside what it has; ranks that share a machine share its memory.

    needed    what must be available before the boot
    margin    the part of it that the user asked for beside the weights; None: it is the prediction
    measured  what the last boot like this one took here
    """

    facts: MemoryFacts
    needs: tuple[Need, ...]
    margin: Bytes | None = None
    measured: Measured | None = None
    problems: tuple[str, ...] = ()

    @property
    def weights(self) -> Bytes:
        return Bytes(sum(need.size("weights") for need in self.needs))

    @property
    def peak(self) -> Bytes:
        return Bytes(sum(need.peak for need in self.needs))

    @property
    def boot(self) -> Bytes:
        """What a boot like this one takes until it serves: measured where it was, else predicted."""
        return self.measured.taken if self.measured else Bytes(sum(need.taken("graphs") for need in self.needs))

    @property
    def needed(self) -> Bytes:
        if self.margin is not None:
            return Bytes(self.weights + self.margin)
        return self.boot

    @property
    def floor(self) -> Bytes:
        return Bytes(sum(need.floor for need in self.needs))


def plan_nodes(
    settings: Settings,
    shapes: Sequence[ModelShape],
    facts: Sequence[MemoryFacts],
    measured: Sequence[Measured | None],
) -> tuple[NodePlan, ...]:
    """One plan per node, in rank order; each counts the ranks of its whole machine."""
    needs = [
        predict(settings, shape, seen.has_gpu, seen.info.total)[rank]
        for rank, (shape, seen) in enumerate(zip(shapes, facts, strict=True))
    ]
    margin = settings.guard.boot_margin_gib
    plans = []
    for rank, seen in enumerate(facts):
        mates = [other for other, one in enumerate(facts) if other == rank or (one.machine == seen.machine != "")]
        each = None if margin is None else Bytes(int(margin * GIB) * len(mates))
        mine = tuple(needs[other] for other in mates)
        plans.append(NodePlan(seen, mine, each, measured[rank], shapes[rank].problems))  # measured: the whole machine
    return tuple(plans)


def pack_fits(resident: Bytes, available: Bytes, total: Bytes, headroom: Bytes = Bytes(6 * GIB)) -> str:
    """`fits`, `short` (now), or `never` (on this machine) for a pack of which so many bytes must be resident."""
    if resident + headroom > total:
        return "never"
    return "fits" if resident + headroom <= available else "short"


def gib(amount: float) -> str:
    return f"{amount / GIB:.1f}"


def held_by(facts: MemoryFacts, smallest: int = GIB // 4) -> str:
    """`dsv41-worker (41.0 GiB), jupyter (3.1 GiB)`."""
    return ", ".join(f"{one.name} ({gib(one.whole)} GiB)" for one in facts.holders if one.whole >= smallest)
