"""Which bytes of a model land on which rank: the rules by which vLLM splits, keeps whole or leaves out each tensor."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from cluster.model.memory import ModelShape, TensorGroup
from cluster.model.units import Bytes


class Split(Enum):
    """What tensor parallelism does to a tensor."""

    SHARDED = "sharded"  # one part per rank
    WHOLE = "whole"  # a copy on every rank
    BY_HEAD = "by head"  # one part per rank, but never less than one KV head
    ON_DISK = "on disk"  # read by rows when needed; never resident


@dataclass(frozen=True, slots=True)
class Loading:
    """How a model is loaded. Without drafting its `mtp` part stays on disk, without vision its image part does."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    drafting: bool = True
    vision: bool = True
    vision_split: bool = False


@dataclass(frozen=True, slots=True)
class Bucket:
    """One part of a model: its bytes in the files, and on each rank."""

    name: str
    total: Bytes
    ranks: tuple[Bytes, ...]


@dataclass(frozen=True, slots=True)
class Budget:
    """Resident bytes of the weights; `ranks` in rank order."""

    buckets: tuple[Bucket, ...]
    ranks: tuple[Bytes, ...]

    @property
    def total(self) -> Bytes:
        return Bytes(sum(bucket.total for bucket in self.buckets))


# Low-rank parts, norms and the sparse indexer are small or feed every head: each rank has them whole.
_WHOLE_ATTENTION = re.compile(
    r"wq_a|wkv|wo_b|q_norm|kv_norm|k_norm|indexer|compress|q_a_proj|kv_a_proj|layernorm|attn_sink"
)
_RULES: tuple[tuple[re.Pattern[str], str, Split], ...] = tuple(
    (re.compile(pattern), bucket, split)
    for pattern, bucket, split in (
        (r"^__align_pad__", "padding", Split.ON_DISK),
        (r"(^|\.)engram\.embed\.", "engram tables", Split.ON_DISK),
        (r"^(vision|visual|vision_tower|aligner|image_|multi_modal_projector)", "vision", Split.WHOLE),
        (r"^mtp\..*\.experts\.", "draft experts", Split.SHARDED),
        (r"^mtp\..*\.shared_experts?\.", "draft shared", Split.SHARDED),
        (r"^mtp\..*\b(self_)?attn\.", "draft attention", Split.SHARDED),
        (r"^mtp\.", "draft other", Split.WHOLE),
        (r"^(embed|embed_tokens|wte|tok_embeddings)\.", "embedding", Split.SHARDED),
        (r"^(head|lm_head|output)\.", "output head", Split.SHARDED),
        (r"\.experts\.", "routed experts", Split.SHARDED),
        (r"\.shared_experts?\.", "shared experts", Split.SHARDED),
        (r"\.(ffn|mlp|feed_forward)\.(gate|router)\.", "router", Split.WHOLE),
        (r"\.engram\.", "engram projection", Split.WHOLE),
        (r"\b(self_)?attn\.(k|v|qkv)_proj\.", "attention", Split.BY_HEAD),
        (r"\b(self_)?attn\.", "attention", Split.SHARDED),
        (r"\.(ffn|mlp|feed_forward)\.(?!.*norm)", "dense", Split.SHARDED),
        (r"^layers\.", "layers, other", Split.WHOLE),
        (r"", "other", Split.WHOLE),
    )
)
_PREFIX = re.compile(r"^(model\.language_model\.|language_model\.model\.|language_model\.|model\.)+")


def classify(name: str) -> tuple[str, Split]:
    """The part of the model that a tensor belongs to, and what becomes of it. Source of the rules: the loaders."""
    plain = _PREFIX.sub("", name)
    bucket, split = next((bucket, split) for pattern, bucket, split in _RULES if pattern.search(plain))
    if bucket.endswith("attention") and _WHOLE_ATTENTION.search(plain):
        return bucket, Split.WHOLE
    return bucket, split


def budget(shape: ModelShape, loading: Loading) -> Budget:
    """Per bucket and rank; a rank's bytes never grow when there are more ranks."""
    count = loading.tensor_parallel * loading.pipeline_parallel
    totals: dict[str, int] = {}
    ranks: dict[str, list[int]] = {}
    stages = _stages(shape, loading.pipeline_parallel)
    for group in shape.groups:
        bucket, split = classify(group.name)
        totals[bucket] = totals.get(bucket, 0) + group.size
        mine = ranks.setdefault(bucket, [0] * count)
        if not is_loaded(bucket, loading):
            continue
        part = _part(group, _chosen(bucket, split, loading), loading.tensor_parallel, shape.kv_heads)
        for stage in _where(group, bucket, stages, loading.pipeline_parallel):
            for rank in range(stage * loading.tensor_parallel, (stage + 1) * loading.tensor_parallel):
                mine[rank] += part
    buckets = tuple(Bucket(name, Bytes(totals[name]), tuple(map(Bytes, ranks[name]))) for name in totals)
    return Budget(
        tuple(sorted(buckets, key=lambda one: -one.total)),
        tuple(Bytes(sum(one[rank] for one in ranks.values())) for rank in range(count)),
    )


def is_loaded(bucket: str, loading: Loading) -> bool:
    if bucket.startswith("draft"):
        return loading.drafting
    return loading.vision if bucket == "vision" else True


def copied(groups: Iterable[TensorGroup], pattern: str) -> Bytes:
    """Bytes that a loader with a copy pattern takes out of the page cache; an empty pattern copies nothing.

    The pattern is searched in the tensor's name. Engram parts are read where they lie.
    """
    if not pattern:
        return Bytes(0)
    wanted = re.compile(pattern)
    return Bytes(sum(one.size for one in groups if "engram." not in one.name and wanted.search(_named(one))))


def parts(groups: Iterable[TensorGroup]) -> dict[str, Bytes]:
    """A pack's bytes by what can be left out of memory: text, the drafting part, the Engram part."""
    sums = {"text": 0, "mtp": 0, "engram": 0}
    for one in groups:
        if not one.name.startswith("__align_pad__"):
            sums["engram" if "engram." in one.name else "mtp" if one.name.startswith("mtp.") else "text"] += one.size
    return {name: Bytes(size) for name, size in sums.items()}


def _named(group: TensorGroup) -> str:
    return group.name if group.layer is None else group.name.replace("#", str(group.layer), 1)


def _chosen(bucket: str, split: Split, loading: Loading) -> Split:
    return Split.SHARDED if bucket == "vision" and loading.vision_split else split


def _part(group: TensorGroup, split: Split, ranks: int, kv_heads: int) -> int:
    match split:
        case Split.SHARDED:
            return -(-group.size // ranks)
        case Split.BY_HEAD:
            return -(-group.size // (min(ranks, kv_heads) if kv_heads else ranks))
        case Split.WHOLE:
            return group.size
        case Split.ON_DISK:
            return 0


def _stages(shape: ModelShape, pipeline: int) -> tuple[int, ...]:
    """The stage of each layer, split as vLLM does: what is left over goes to the stages before the last."""
    numbered = [group.layer for group in shape.groups if group.layer is not None and _is_layer(group.name)]
    layers = max([shape.layers, *(layer + 1 for layer in numbered)])
    sizes = [layers // pipeline] * pipeline
    for extra in range(2, layers % pipeline + 2):
        sizes[-extra] += 1
    return tuple(stage for stage, size in enumerate(sizes) for _ in range(size))


def _is_layer(name: str) -> bool:
    return _PREFIX.sub("", name).startswith("layers.")


def _where(group: TensorGroup, bucket: str, stages: tuple[int, ...], pipeline: int) -> Iterator[int]:
    if pipeline == 1:
        yield 0
    elif _is_layer(group.name) and group.layer is not None:
        yield stages[group.layer]
    elif bucket in ("embedding", "vision"):
        yield 0
    else:  # the head, its norm and the drafting part
        yield pipeline - 1
