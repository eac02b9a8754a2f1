"""How token ids become rows of the Engram tables: a reference in numpy, the same numbers as the server's kernels."""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

DEAD = -1  # a token that takes no part: image spans, padding
_SEED = 10007
_WITNESSES = (2, 7, 61)  # enough for Miller-Rabin below 4,759,123,141
_SMALL = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LayerHash:
    """What one layer hashes with: odd multipliers, one per token of the window, and one prime range per column."""

    layer: int
    multipliers: Ids
    sizes: Ids
    offsets: Ids

    @property
    def longest(self) -> int:
        return len(self.multipliers)

    @property
    def heads(self) -> int:
        return len(self.sizes) // (self.longest - 1)


def layer_hashes(config: Any) -> tuple[LayerHash, ...]:
    """One per Engram layer of a model's text config, in the order of the config."""
    used: set[int] = set()
    hashes = []
    for layer in config.engram_layer_ids:
        sizes: list[int] = []
        for _ in range(config.engram_max_ngram_size - 1):
            sizes += _next_primes(config.engram_vocab_size, config.engram_n_heads, used)
        mixed = multipliers(layer, config.engram_max_ngram_size, config.engram_compressed_vocab_size)
        offsets = list(accumulate(sizes[:-1], initial=0))
        hashes.append(LayerHash(layer, mixed, np.array(sizes, np.int64), np.array(offsets, np.int64)))
    return tuple(hashes)


def multipliers(layer: int, longest: int, compressed: int) -> Ids:
    """Odd, and small enough that a compressed token id times one of them fits 63 bits."""
    bound = max(1, (np.iinfo(np.int64).max // compressed) // 2)
    drawn = np.random.default_rng(_SEED * layer).integers(0, bound, size=longest, dtype=np.int64)
    mixed: Ids = drawn * 2 + 1
    return mixed


def hash_rows(hashed: LayerHash, compressed_ids: Ids, pad: int) -> npt.NDArray[np.int32]:
    """The row of every position and column, for a sequence from its start: [tokens, columns].

    Once a window reaches beyond the start, or a dead token, everything further back counts as padding.
    """
    count = len(compressed_ids)
    rows = np.empty((count, len(hashed.sizes)), np.int32)
    rolling = np.zeros(count, np.int64)
    is_blocked = np.zeros(count, bool)
    for shift in range(hashed.longest):
        window = np.full(count, DEAD, np.int64)
        window[shift:] = compressed_ids[: max(count - shift, 0)]
        is_blocked |= window == DEAD
        rolling ^= np.where(is_blocked, pad, window) * hashed.multipliers[shift]
        if shift:
            columns = slice((shift - 1) * hashed.heads, shift * hashed.heads)
            rows[:, columns] = rolling[:, None] % hashed.sizes[columns] + hashed.offsets[columns]
    return rows


def owned_columns(columns: int, rank: int, ranks: int) -> range:
    """The hash columns of a rank; the last rank may have fewer than the others, and none may have none."""
    part = -(-columns // ranks)
    if part * (ranks - 1) >= columns:
        raise ValueError(f"{ranks} ranks cannot share {columns} hash columns")
    return range(rank * part, min((rank + 1) * part, columns))


def owned_rows(sizes: Ids, rank: int, ranks: int) -> range:
    columns = owned_columns(len(sizes), rank, ranks)
    ends = [0, *accumulate(int(size) for size in sizes)]
    return range(ends[columns.start], ends[columns.stop])


def _next_primes(start: int, count: int, used: set[int]) -> list[int]:
    found: list[int] = []
    candidate = start
    while len(found) < count:
        if candidate not in used and _is_prime(candidate):
            found.append(candidate)
        candidate += 1
    used.update(found)
    return found


def _is_prime(number: int) -> bool:
    if number < 2:
        return False
    for small in _SMALL:
        if number % small == 0:
            return number == small
    twos = ((number - 1) & (1 - number)).bit_length() - 1
    odd = (number - 1) >> twos
    for witness in _WITNESSES:
        if witness % number == 0:
            continue
        powers = [pow(witness, odd << step, number) for step in range(twos)]
        if powers[0] != 1 and number - 1 not in powers:
            return False
    return True
