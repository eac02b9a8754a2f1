"""A safetensors file to be, as data: its header, and from which bytes of which files each byte of it comes."""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.weights.safetensors import LENGTH_FIELD

# The program that writes it, part by part, as `model.bundle` joins them.
ASSEMBLER = ("say", "assemble_pieces", "assemble_write", "assemble")
HEADER_GRID = 8  # the library itself pads headers to this


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of the new file; `start` and `end` count from the beginning of its data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes of one source file; all places count from the beginning of the files."""

    source: int
    start: int
    at: int
    length: int


@dataclass(frozen=True, slots=True)
class Weave:
    """Rows of `run` bytes taken in turn from every part: how tensors are joined along their second dimension."""

    parts: tuple[tuple[int, int], ...]  # (source, start)
    run: int
    rows: int
    at: int

    @property
    def length(self) -> int:
        return self.run * self.rows * len(self.parts)


@dataclass(frozen=True, slots=True)
class Same:
    """The first part, after all parts were seen to be equal byte by byte."""

    parts: tuple[tuple[int, int], ...]
    at: int
    length: int
    name: str = ""


Piece = Copy | Weave | Same


@dataclass(frozen=True, slots=True)
class Assembly:
    """One file to be written. What no piece covers is zero."""

    name: str
    header: bytes
    sources: tuple[str, ...]
    pieces: tuple[Piece, ...]
    size: int


def header_bytes(entries: Iterable[Entry], metadata: Mapping[str, Any] | None = None, grid: int = HEADER_GRID) -> bytes:
    """Length field and JSON, padded with blanks so that the data begins on the grid."""
    tree: dict[str, Any] = {"__metadata__": metadata} if metadata is not None else {}
    for one in entries:
        tree[one.name] = {"dtype": one.dtype, "shape": list(one.shape), "data_offsets": [one.start, one.end]}
    text = json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()
    text = text.ljust(round_up(LENGTH_FIELD + len(text), grid) - LENGTH_FIELD)
    return struct.pack("<Q", len(text)) + text


def metadata_of(first: bytes) -> Mapping[str, Any] | None:
    """The free part of a header; None when it has none."""
    length = struct.unpack("<Q", first[:LENGTH_FIELD])[0]
    found: Mapping[str, Any] | None = json.loads(first[LENGTH_FIELD : LENGTH_FIELD + length]).get("__metadata__")
    return found


def joined(copies: Iterable[Copy]) -> tuple[Copy, ...]:
    """Neighbours in the source that stay neighbours are one piece."""
    return tuple(_joined(copies))


def _joined(copies: Iterable[Copy]) -> Iterator[Copy]:
    last: Copy | None = None
    for one in copies:
        if last and (one.source, one.start, one.at) == (
            last.source,
            last.start + last.length,
            last.at + last.length,
        ):
            last = Copy(last.source, last.start, last.at, last.length + one.length)
            continue
        if last:
            yield last
        last = one
    if last:
        yield last


def as_order(assembly: Assembly) -> bytes:
    """What the program `agent/assemble.py` reads: the same, as JSON."""
    return json.dumps(
        {
            "name": assembly.name,
            "size": assembly.size,
            "header": assembly.header[LENGTH_FIELD:].decode(),
            "sources": assembly.sources,
            "pieces": [_listed(piece) for piece in assembly.pieces if piece.length],
        },
        separators=(",", ":"),
    ).encode()


def _listed(piece: Piece) -> list[Any]:
    match piece:
        case Copy():
            return ["copy", piece.at, piece.length, piece.source, piece.start]
        case Weave():
            return ["weave", piece.at, piece.length, piece.parts, piece.run]
        case Same():
            return ["same", piece.at, piece.length, piece.parts, piece.name]


def round_up(value: int, grid: int) -> int:
    return -(-value // grid) * grid
