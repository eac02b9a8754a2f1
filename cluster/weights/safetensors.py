"""Read the header of a safetensors file from its first bytes: every tensor's place, and the exact size of the file."""

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeGuard

from cluster.errors import Refused

LONGEST_HEADER = 100_000_000  # the library refuses more
LENGTH_FIELD = 8

_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


class Fault(Enum):
    """What a file that should be safetensors is instead; the value ends the sentence "the file is ..."."""

    EMPTY = "empty"
    LFS_POINTER = "a Git LFS pointer, not the weights it stands for"
    NOT_SAFETENSORS = "not a safetensors file"
    TRUNCATED_HEADER = "cut off inside its header"
    BAD_HEADER = "damaged in its header"
    TRUNCATED = "cut off"
    TRAILING_BYTES = "longer than its header says"


class BadShard(Refused):
    """`fault` is for programs, the sentence for people."""

    def __init__(self, fault: Fault, where: str, detail: str = "") -> None:
        super().__init__(
            f"the file is {fault.value}",
            where=where,
            evidence=[detail] if detail else [],
            fix="git lfs pull, or download the file" if fault is Fault.LFS_POINTER else "download the file again",
        )
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Tensor:
    """`start` and `end` count from the beginning of the file, not from that of the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """`size` is what the whole file must have: no byte less, and none more."""

    tensors: tuple[Tensor, ...]
    size: int

    def tensor(self, name: str) -> Tensor | None:
        return next((tensor for tensor in self.tensors if tensor.name == name), None)


def header_end(first: bytes, where: str) -> int:
    """How many bytes from the start hold the header. Eight first bytes suffice; more help to say why not."""
    if not first:
        raise BadShard(Fault.EMPTY, where)
    if first.startswith(b"version https://git-lfs"[: max(8, len(first))]):
        raise BadShard(Fault.LFS_POINTER, where)
    if len(first) < LENGTH_FIELD:
        raise BadShard(Fault.NOT_SAFETENSORS, where, f"{len(first)} bytes in all")
    length: int = struct.unpack("<Q", first[:LENGTH_FIELD])[0]
    if length > LONGEST_HEADER:
        raise BadShard(Fault.NOT_SAFETENSORS, where, f"begins with {first[:16]!r}")
    return LENGTH_FIELD + length


def read_header(first: bytes, where: str) -> Header:
    """The header in the first `header_end` bytes or more. BadShard when they are fewer, or say what cannot be."""
    end = header_end(first, where)
    if len(first) < end:
        raise BadShard(Fault.TRUNCATED_HEADER, where, f"{len(first)} bytes, the header alone takes {end}")
    try:
        tensors = tuple(_tensor(name, entry, end) for name, entry in _entries(first[LENGTH_FIELD:end]))
    except ValueError as error:
        raise BadShard(Fault.BAD_HEADER, where, str(error)) from error
    ordered = tuple(sorted(tensors, key=lambda tensor: (tensor.start, tensor.end)))
    at = end
    for tensor in ordered:
        if tensor.start != at:
            raise BadShard(Fault.BAD_HEADER, where, f"{tensor.name} begins at byte {tensor.start}, not at {at}")
        at = tensor.end
    return Header(ordered, at)


def check_size(header: Header, size: int, where: str) -> None:
    """A reader that maps the file would take a missing tail for zeros."""
    if size != header.size:
        fault = Fault.TRUNCATED if size < header.size else Fault.TRAILING_BYTES
        raise BadShard(fault, where, f"{size} bytes, must be {header.size}")


def _entries(text: bytes) -> Iterator[tuple[str, object]]:
    match json.loads(text):
        case dict(found):
            found.pop("__metadata__", None)
            yield from found.items()
        case other:
            raise ValueError(f"it is no JSON object but {str(other)[:100]}")


def _tensor(name: str, entry: object, data: int) -> Tensor:
    told = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = told.get("dtype"), told.get("shape"), told.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _BITS or not _whole(shape) or not _whole(offsets):
        raise ValueError(f"{name} is described by {str(entry)[:100]}")
    if len(offsets) != 2:
        raise ValueError(f"{name} has the offsets {offsets}")
    start, end = offsets
    if (end - start) * 8 != math.prod(shape) * _BITS[dtype]:
        raise ValueError(f"{name} is {dtype} {list(shape)} but takes {end - start} bytes")
    return Tensor(name, dtype, tuple(shape), data + start, data + end)


def _whole(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(isinstance(item, int) and item >= 0 for item in value)
