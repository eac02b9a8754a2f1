"""Packed Engram files: one per layer and rank, weight and scale of a row side by side. Header, exact size, refusals.

Two layouts, told apart by the first eight bytes. DENSE is the published one: a 4096-byte header, then rows of 264
bytes, and nothing that could tell a hole from rows. PAGED holds as many whole rows as fit each 4096-byte page, then
the page's number, and in the page's last four bytes the CRC-32 of all before them; its header ends in one too.
"""

import struct
import zlib
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from cluster.errors import Refused
from cluster.weights.engram import Engram, Source, Table, owned_rows

PAGE = 4096
PAGE_NUMBER = 8  # bytes
CHECKSUM = 4
# What is read, written and has one checksum at a time, 2 MiB: whole pages of the file in either layout.
CHUNK_ROWS = 7_680
# The packer's program, part by part, as `model.bundle` joins them.
PACKER = ("say", "pack_job", "pack_rows", "pack_chunks", "pack_check", "pack")

_FIELDS = struct.Struct("<8s5Q")
_PAGED_FIELDS = struct.Struct("<Q")


class Layout(Enum):
    DENSE = b"DSV1EN41"
    PAGED = b"SPKPAGE1"


class Fault(Enum):
    """Why a file is not the packed file that is wanted; the value completes the sentence "the packed file ..."."""

    NOT_PACKED = "is no packed Engram file"
    DAMAGED_HEADER = "is damaged in its header"
    WRONG_LAYOUT = "has the other layout"
    WRONG_LAYER = "belongs to another layer"
    WRONG_TABLE = "was made from another table"
    WRONG_ROWS = "holds the rows of another rank or another number of ranks"
    TRUNCATED = "is cut off"
    TRAILING_BYTES = "is longer than its header says"


class BadPack(Refused):
    """`fault` is for programs, the sentence for people."""

    def __init__(self, fault: Fault, where: str, detail: str = "") -> None:
        super().__init__(
            f"the packed file {fault.value}",
            where=where,
            evidence=[detail] if detail else [],
            fix="sparkctl pack",
        )
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Packed:
    """What a packed file holds: the rows `rows` of the table of `layer`, which has `total` rows."""

    layer: int
    rows: range
    total: int
    row_bytes: int = 264
    layout: Layout = Layout.DENSE

    @property
    def rows_per_page(self) -> int:
        return (PAGE - PAGE_NUMBER - CHECKSUM) // self.row_bytes

    @property
    def size(self) -> int:
        """Bytes that the whole file must have."""
        if self.layout is Layout.DENSE:
            return PAGE + len(self.rows) * self.row_bytes
        return PAGE + -(-len(self.rows) // self.rows_per_page) * PAGE

    def offset(self, row: int) -> int:
        """Where a row of the table begins in the file."""
        place = self.rows.index(row)
        if self.layout is Layout.DENSE:
            return PAGE + place * self.row_bytes
        page, slot = divmod(place, self.rows_per_page)
        return PAGE + page * PAGE + slot * self.row_bytes

    def header(self) -> bytes:
        fields = _FIELDS.pack(
            self.layout.value, self.layer, self.rows.start, self.rows.stop, self.total, self.row_bytes
        )
        if self.layout is Layout.DENSE:
            return fields.ljust(PAGE, b"\0")
        return sealed((fields + _PAGED_FIELDS.pack(self.rows_per_page)).ljust(PAGE - CHECKSUM, b"\0"))


def packed(engram: Engram, table: Table, rank: int, ranks: int, layout: Layout = Layout.DENSE) -> Packed:
    """The file that a rank needs for a layer."""
    return Packed(table.layer, owned_rows(table, rank, ranks), table.rows, engram.row_bytes, layout)


def pack_file(wanted: Packed, source_path: PurePosixPath, source: Source, out: PurePosixPath) -> dict[str, object]:
    """One file of a request to the packer."""
    return {
        "layer": wanted.layer,
        "low": wanted.rows.start,
        "high": wanted.rows.stop,
        "total": wanted.total,
        "layout": wanted.layout.name.lower(),
        "chunk_rows": CHUNK_ROWS,
        "source": str(source_path),
        "weight_at": source.weight_at,
        "scale_at": source.scale_at,
        "out": str(out),
    }


def file_name(layer: int, rank: int, ranks: int) -> str:
    return f"engram-l{layer}-r{rank}of{ranks}.bin"


def sealed(page: bytes) -> bytes:
    """The page with its checksum in the last four bytes."""
    return page + struct.pack("<I", zlib.crc32(page))


def read_header(first: bytes, where: str) -> Packed:
    """What a file says of itself in its first 4096 bytes."""
    if len(first) >= 8 and first[:8] not in {layout.value for layout in Layout}:
        raise BadPack(Fault.NOT_PACKED, where, f"begins with {first[:8]!r}")
    if len(first) < PAGE:
        raise BadPack(Fault.TRUNCATED, where, f"{len(first)} bytes, the header alone takes {PAGE}")
    magic, layer, low, high, total, row_bytes = _FIELDS.unpack_from(first)
    said = Packed(layer, range(low, high), total, row_bytes, Layout(magic))
    if not low < high <= total or not 0 < row_bytes < PAGE - PAGE_NUMBER - CHECKSUM or said.header() != first[:PAGE]:
        raise BadPack(Fault.DAMAGED_HEADER, where, first[:64].hex(" ", 8))
    return said


def check(first: bytes, size: int, wanted: Packed, where: str) -> None:
    """Refuse every file but the wanted one by the name of what is wrong with it. Rows are not looked at."""
    seen = read_header(first, where)
    for fault, is_value, must_be in (
        (Fault.WRONG_LAYER, seen.layer, wanted.layer),
        (Fault.WRONG_TABLE, (seen.total, seen.row_bytes), (wanted.total, wanted.row_bytes)),
        (Fault.WRONG_ROWS, seen.rows, wanted.rows),
        (Fault.WRONG_LAYOUT, seen.layout.name, wanted.layout.name),
    ):
        if is_value != must_be:
            raise BadPack(fault, where, f"{is_value}, must be {must_be}")
    if size != wanted.size:
        fault = Fault.TRUNCATED if size < wanted.size else Fault.TRAILING_BYTES
        raise BadPack(fault, where, f"{size} bytes, must be {wanted.size}")
