"""What boots really took of each node's memory, kept on the head and used by the next prediction."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from cluster.errors import Unreadable
from cluster.model.units import Bytes

VERSION = 1
KEPT = 100


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides how much a boot takes; two boots of one shape on one node can be compared."""

    weights: int
    tensor_parallel: int
    pipeline_parallel: int
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    kv_cache_memory_bytes: int | None
    gpu_memory_utilization: str
    speculation: str
    enforce_eager: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """One rank of one boot that came to serve.

    before     available before anything was launched
    lowest     least that was available while it booted
    serving    available when the first token was made
    loaded, pool, graphs   what the server's log says that weights, KV pool and graphs took; None when it does not
    tokens     what the KV pool has room for, by the log
    """

    boot: str
    recipe: str
    node: str
    rank: int
    shape: Shape
    predicted: int
    before: int
    lowest: int
    serving: int
    loaded: int | None = None
    pool: int | None = None
    graphs: int | None = None
    tokens: int | None = None

    @property
    def taken(self) -> Bytes:
        return Bytes(max(0, self.before - self.lowest))


@dataclass(frozen=True, slots=True)
class Ledger:
    entries: tuple[Measured, ...] = ()

    def add(self, more: Iterable[Measured]) -> "Ledger":
        """The newest are kept; a boot is entered once."""
        fresh = tuple(more)
        known = {(one.boot, one.node) for one in fresh}
        kept = tuple(one for one in self.entries if (one.boot, one.node) not in known)
        return replace(self, entries=(*kept, *fresh)[-KEPT:])

    def last(self, recipe: str, node: str, shape: Shape) -> Measured | None:
        """The newest boot like this one on this node."""
        fitting = (one for one in reversed(self.entries) if (one.recipe, one.node, one.shape) == (recipe, node, shape))
        return next(fitting, None)


def to_json(ledger: Ledger) -> bytes:
    return (
        json.dumps({"version": VERSION, "entries": [asdict(one) for one in ledger.entries]}, indent=1).encode() + b"\n"
    )


def from_json(text: str, where: str) -> Ledger:
    """Raises Unreadable naming `where`."""
    try:
        seen: dict[str, Any] = json.loads(text)
        _check(seen["version"])
        return Ledger(tuple(_entry(one) for one in seen["entries"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"cannot read the memory ledger: {error}", where=where, evidence=[text[:200]]) from error


def _check(version: object) -> None:
    if version != VERSION:
        raise ValueError(f"it has version {version}, this sparkctl reads {VERSION}")


def _entry(seen: dict[str, Any]) -> Measured:
    return Measured(**{**seen, "shape": Shape(**seen["shape"])})
