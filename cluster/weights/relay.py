"""Re-lay a pack: which shards hold tensors off the grid, and where everything goes in a shard that is written anew.

A loader that maps weights instead of copying them needs each tensor to begin on a grid of the file. The format allows
no gap, so the room between two tensors is a tensor of its own, whose name no other shard has.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from cluster.errors import SettingsError
from cluster.weights.assembly import Assembly, Copy, Entry, header_bytes, joined, metadata_of, round_up
from cluster.weights.safetensors import Header, Tensor

PAD = "__align_pad__"
# The Engram tables are read by rows where they lie, and their projections need only the grid of their element size:
# moving those shards would write 190 GiB for nothing.
SKIP = (".engram.",)
_COARSE = {"I16": 16, "U16": 16}  # what the mapping loader reads in vectors; other types by the element
_ELEMENT = {"U8": 1, "I8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F4": 1, "F6_E2M3": 1, "F6_E3M2": 1,
            "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8, "C64": 8}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rules:
    """`grid` in bytes; tensors below `smallest`, or with one of `skip` in their name, move no shard."""

    grid: int = 64
    smallest: int = 2**20
    skip: tuple[str, ...] = SKIP

    def __post_init__(self) -> None:
        if self.grid < 8 or self.grid & (self.grid - 1):
            what = f"a grid is a power of two from 8 on, not {self.grid}"
            raise SettingsError(what, where="--align", fix="--align 64")


def is_pad(name: str) -> bool:
    return name.startswith(PAD)


def off_grid(header: Header, rules: Rules) -> tuple[Tensor, ...]:
    """The tensors for whose sake a shard is written anew."""
    return tuple(
        one
        for one in header.tensors
        if one.start % rules.grid
        and one.end - one.start >= rules.smallest
        and not is_pad(one.name)
        and not any(part in one.name for part in rules.skip)
    )


def relaid(name: str, source: str, first: bytes, header: Header, rules: Rules) -> Assembly:
    """The shard with every tensor on the grid. `first` are the bytes of its old header."""
    stem = name.removesuffix(".safetensors")
    entries: list[Entry] = []
    moves: list[tuple[Tensor, int]] = []
    at = pads = 0
    for one in header.tensors:
        if is_pad(one.name):
            continue
        start = round_up(at, rules.grid)
        if start > at:
            entries.append(Entry(f"{PAD}.{stem}.{pads}", "U8", (start - at,), at, start))
            pads += 1
        at = start + one.end - one.start
        entries.append(Entry(one.name, one.dtype, one.shape, start, at))
        moves.append((one, start))
    new = header_bytes(entries, metadata_of(first), rules.grid)
    copies = joined(Copy(0, one.start, len(new) + start, one.end - one.start) for one, start in moves)
    return Assembly(name, new, (source,), copies, len(new) + at)


class Reach(StrEnum):
    """What a loader that maps weights does with a tensor."""

    ALIASED = "aliased"
    COPIED = "copied"
    SMALL = "small"


@dataclass(slots=True)
class _Sum:
    size: int = 0
    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Share:
    """All tensors of one fate and type; `examples` name the first five."""

    reach: Reach
    dtype: str
    size: int
    count: int
    examples: tuple[str, ...] = ()


def alignment(headers: Iterable[Header], smallest: int = 2**20) -> tuple[Share, ...]:
    """How much of a pack can be mapped as it lies, largest first."""
    sums: dict[tuple[Reach, str], _Sum] = {}
    for header in headers:
        for one in header.tensors:
            if is_pad(one.name):
                continue
            found = sums.setdefault((reach(one, smallest), one.dtype), _Sum())
            found.size += one.end - one.start
            found.count += 1
            if len(found.examples) < 5:
                found.examples.append(one.name)
    shares = [Share(how, dtype, one.size, one.count, tuple(one.examples)) for (how, dtype), one in sums.items()]
    return tuple(sorted(shares, key=lambda one: (-one.size, one.reach, one.dtype)))


def reach(one: Tensor, smallest: int) -> Reach:
    if one.end - one.start < smallest:
        return Reach.SMALL
    grid = _COARSE.get(one.dtype) or _ELEMENT[one.dtype]
    return Reach.COPIED if one.start % grid else Reach.ALIASED


def is_overlay(name: str) -> bool:
    """Parts that are laid beside a pack's own shards, which an index does not list."""
    return not name.startswith("model-") and name != "model.safetensors"


def speeds_up(headers: Iterable[Header]) -> bool:
    """Whether parts laid beside the shards hold the attention they are there for; without it a pack is just slow."""
    return any(
        one.name.startswith("layers.0.attn.") and one.name.endswith(".trellis")
        for header in headers
        for one in header.tensors
    )
