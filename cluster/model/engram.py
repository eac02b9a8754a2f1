"""The report of `pack`: what became of every packed Engram file, and of the folders with nothing but the tables."""

from dataclasses import dataclass
from enum import StrEnum


class PackedState(StrEnum):
    """What became of a packed file, or, of a check, what it is."""

    PACKED = "packed"
    RIGHT = "right"
    WRONG = "wrong"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PackedFile:
    """One layer's rows of one rank, on its node; `size` in bytes.

    source  the shard that the rows come from
    fault   for programs: ABSENT, TRUNCATED, WRONG_ROWS, ENOSPC ...; empty when nothing is wrong
    """

    node: str
    rank: int
    layer: int
    path: str
    size: int
    source: str
    state: PackedState
    seconds: float = 0.0
    fault: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TablesFolder:
    """A folder with the tables' shards, index and config.json; `made` are the names that were not right before."""

    node: str
    path: str
    ok: bool
    made: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EngramReport:
    """Every packed file that the nodes need. `checked`: all was read and nothing written."""

    deployment: str
    ok: bool
    checked: bool
    files: tuple[PackedFile, ...]
    folders: tuple[TablesFolder, ...] = ()
