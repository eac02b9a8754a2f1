"""The reports about Engram tables in files: what `pack` made of them, and how fast their rows come."""

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


@dataclass(frozen=True, slots=True)
class RowStream:
    """How fast rows of one packed file came, for one kind of ids and one size of batch; percentiles are of batches.

    stream  uniform: any row; zipf: few rows often; text: the n-grams of a text
    batch   decode: four tokens; prefill: 1024
    """

    node: str
    rank: int
    layer: int
    engine: str
    stream: str
    batch: str
    batch_rows: int
    rows_per_s: float
    reads_per_s: float
    reads_per_row: float
    bytes_per_useful_byte: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    slowest_ms: float


@dataclass(frozen=True, slots=True)
class EngramBenchReport:
    """What every node's disk gives."""

    deployment: str
    streams: tuple[RowStream, ...]
