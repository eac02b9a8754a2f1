"""Engram tables: which rows exist, which hash column and which rank owns them, where they lie in the checkpoint.

A layer hashes every position into (longest - 1) x heads columns, order by order: all heads of the 2-grams first. Every
column owns a bucket range of the layer's table, and the size of each range is a prime that no other range has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from cluster.errors import Refused, Unreadable
from cluster.weights.safetensors import Header, Tensor

SCALE_BLOCK = 32  # columns that share one scale byte
EMBED = ".engram.embed."

# Enough for every number below 4,759,123,141, far above any bucket count that int32 ids can address.
_WITNESSES = (2, 7, 61)
_PRIME_LIMIT = 4_759_123_141
_SMALL = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)


@dataclass(frozen=True, slots=True)
class Engram:
    """The engram part of a model's text config."""

    layers: tuple[int, ...]
    rows: tuple[int, ...]
    vocabulary: int
    compressed: int
    heads: int
    longest: int
    width: int
    pad: int

    @property
    def columns(self) -> int:
        return (self.longest - 1) * self.heads

    @property
    def row_bytes(self) -> int:
        return self.width + self.width // SCALE_BLOCK


@dataclass(frozen=True, slots=True)
class Table:
    """One layer's table: the sizes of its bucket ranges, one per hash column, in the order of the columns."""

    layer: int
    rows: int
    sizes: tuple[int, ...]

    @property
    def offsets(self) -> tuple[int, ...]:
        """The first row of each column's range."""
        return tuple(accumulate(self.sizes[:-1], initial=0))


@dataclass(frozen=True, slots=True)
class Source:
    """Where a layer's rows begin in the checkpoint's shard: bytes from the start of the file."""

    weight_at: int
    scale_at: int


def engram_of(config: Mapping[str, object], where: str) -> Engram | None:
    """The tables that a model's config.json describes; None for a model without any."""
    nested = config.get("text_config")
    text = nested if isinstance(nested, Mapping) else config
    if not text.get("engram_layer_ids"):
        return None

    def number(key: str) -> int:
        value = text.get(key)
        if not isinstance(value, int) or value < 0:
            raise Unreadable(f"{key} is {value!r}, not a number", where=where)
        return value

    def numbers(key: str) -> tuple[int, ...]:
        value = text.get(key)
        if not isinstance(value, list) or not all(isinstance(item, int) and item >= 0 for item in value):
            raise Unreadable(f"{key} is {value!r}, not a list of numbers", where=where)
        return tuple(value)

    engram = Engram(
        layers=numbers("engram_layer_ids"),
        rows=numbers("engram_num_embeddings"),
        vocabulary=number("engram_vocab_size"),
        compressed=number("engram_compressed_vocab_size"),
        heads=number("engram_n_heads"),
        longest=number("engram_max_ngram_size"),
        width=number("engram_head_dim"),
        pad=number("engram_pad_token_id"),
    )
    if len(engram.layers) != len(engram.rows):
        raise Unreadable("engram_layer_ids and engram_num_embeddings differ in length", where=where)
    return engram


def is_prime(number: int) -> bool:
    """Miller-Rabin, exact for what fits the limit; ValueError above it."""
    if number >= _PRIME_LIMIT:
        raise ValueError(f"{number} is too large to tell whether it is prime")
    if number < 2:
        return False
    for small in _SMALL:
        if number % small == 0:
            return number == small
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_may_be_prime(number, witness, odd, twos) for witness in _WITNESSES)


def tables(engram: Engram) -> tuple[Table, ...]:
    """One table per layer. Each n-gram order takes the next unused primes from the vocabulary's size on."""
    used: set[int] = set()
    found = []
    for layer, rows in zip(engram.layers, engram.rows, strict=True):
        sizes: list[int] = []
        for _ in range(engram.longest - 1):
            fresh = _next_primes(engram.vocabulary, engram.heads, used)
            used.update(fresh)
            sizes += fresh
        found.append(Table(layer, rows, tuple(sizes)))
    return tuple(found)


def owned_rows(table: Table, rank: int, ranks: int) -> range:
    """Whole hash columns, an equal number per rank (the last may have fewer): what vLLM's all-gather expects."""
    part = -(-len(table.sizes) // ranks)
    if part * (ranks - 1) >= len(table.sizes):
        raise Refused(
            f"{ranks} ranks cannot share {len(table.sizes)} hash columns: a rank would own none",
            where=f"engram layer {table.layer}",
            fix="use fewer ranks",
        )
    ends = [0, *accumulate(table.sizes)]
    return range(ends[rank * part], ends[min((rank + 1) * part, len(table.sizes))])


def tensor_names(layer: int) -> tuple[str, str]:
    return f"layers.{layer}{EMBED}weight", f"layers.{layer}{EMBED}scale"


def source(header: Header, engram: Engram, table: Table, where: str) -> Source:
    """Where the rows begin in the shard; refused when the shard does not hold the table that the config describes."""
    weight, scale = (header.tensor(name) for name in tensor_names(table.layer))
    wanted = (
        ("F8_E4M3", (table.rows, engram.width)),
        ("F8_E8M0", (table.rows, engram.width // SCALE_BLOCK)),
    )
    seen = tuple((tensor.dtype, tensor.shape) if tensor else None for tensor in (weight, scale))
    if weight is None or scale is None or seen != wanted:
        raise Refused(
            f"the shard does not hold the engram table of layer {table.layer}",
            where=where,
            evidence=[
                f"{name}: {_describe(tensor)}, must be {dtype} {list(shape)}"
                for name, tensor, (dtype, shape) in zip(tensor_names(table.layer), (weight, scale), wanted, strict=True)
            ],
            fix="point to the directory that has config.json and the shards of the same checkpoint",
        )
    return Source(weight.start, scale.start)


def needed_shards(weight_map: Mapping[str, str], layers: Iterable[int]) -> dict[int, str]:
    """Layer -> the one shard with its weight and its scale. Refused when a table is absent, or spread over two."""
    found = {}
    for layer in layers:
        shards = {weight_map.get(name, "") for name in tensor_names(layer)}
        if len(shards) != 1 or "" in shards:
            raise Refused(
                f"the index names no single shard for the engram table of layer {layer}",
                where="model.safetensors.index.json",
                evidence=[f"{name}: {weight_map.get(name, 'absent')}" for name in tensor_names(layer)],
            )
        found[layer] = shards.pop()
    return found


def embed_only(weight_map: Mapping[str, str]) -> dict[str, str]:
    """The part of an index that a directory with nothing but the tables may have, else vLLM looks for all shards."""
    return {name: shard for name, shard in weight_map.items() if EMBED in name}


def _may_be_prime(number: int, witness: int, odd: int, twos: int) -> bool:
    power = pow(witness, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


def _next_primes(start: int, count: int, used: set[int]) -> list[int]:
    found: list[int] = []
    candidate = start
    while len(found) < count:
        if candidate not in used and is_prime(candidate):
            found.append(candidate)
        candidate += 1
    return found


def _describe(tensor: Tensor | None) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}" if tensor else "absent"
