"""What a rank's log says of the memory that it took, as vLLM 0.32 and 0.33 write it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from cluster.model.memory import GIB

_LOADED = re.compile(r"Model loading took ([\d.]+) GiB")
_POOL = re.compile(r"Available KV cache memory: ([\d.]+) GiB|Explicitly set \(([\d.]+)/[\d.]+\) GiB for KV cache")
_TOKENS = re.compile(r"(?:GPU|CPU) KV cache size: ([\d,]+) tokens")
_GRAPHS = re.compile(r"Graph capturing finished in .*?, took (-?[\d.]+) GiB")


@dataclass(frozen=True, slots=True)
class BootFigures:
    """Bytes, and tokens of the KV pool; None while the log has not said it."""

    loaded: int | None = None
    pool: int | None = None
    graphs: int | None = None
    tokens: int | None = None


def read_on(known: BootFigures, lines: Iterable[str]) -> BootFigures:
    """What is known after these lines too; a later line wins."""
    for line in lines:
        if found := _LOADED.search(line):
            known = replace(known, loaded=_gib(found[1]))
        elif found := _POOL.search(line):
            known = replace(known, pool=_gib(found[1] or found[2]))
        elif found := _TOKENS.search(line):
            known = replace(known, tokens=int(found[1].replace(",", "")))
        elif found := _GRAPHS.search(line):
            known = replace(known, graphs=_gib(found[1]))
    return known


def _gib(text: str) -> int:
    return int(float(text) * GIB)
