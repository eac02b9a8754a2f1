"""A packed file to be: its sizes, its names, the bytes of its header; how the packer answers. A part of `pack`."""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any

PAGE = 4096
WEIGHT, SCALE = 256, 8
ROW = WEIGHT + SCALE
PAGE_ROWS = 15
MAGIC = {"dense": b"DSV1EN41", "paged": b"SPKPAGE1"}


class Job:
    """One file to be: its sizes, its names, and the bytes that its chunks must have."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.layer, self.low, self.high, self.total = (wanted[key] for key in ("layer", "low", "high", "total"))
        self.layout: str = wanted["layout"]
        self.source: str = os.path.expanduser(wanted["source"])
        self.weight_at, self.scale_at = wanted["weight_at"], wanted["scale_at"]
        self.out: str = os.path.expanduser(wanted["out"])
        self.part, self.log, self.sums = self.out + ".part", self.out + ".part.log", self.out + ".sums"
        self.rows: int = self.high - self.low
        self.chunk_rows: int = wanted["chunk_rows"]
        self.chunks = -(-self.rows // self.chunk_rows)
        self.size = PAGE + self.length(self.rows)

    def length(self, rows: int) -> int:
        """Bytes that rows from the beginning of a chunk take in the file."""
        return rows * ROW if self.layout == "dense" else -(-rows // PAGE_ROWS) * PAGE

    def span(self, chunk: int) -> tuple[int, int, int, int]:
        """First row (of those owned), rows, offset and length in the file."""
        first = chunk * self.chunk_rows
        rows = min(self.chunk_rows, self.rows - first)
        return first, rows, PAGE + self.length(first), self.length(rows)

    def place(self, row: int) -> int:
        """Where an owned row begins in the file."""
        if self.layout == "dense":
            return PAGE + row * ROW
        return PAGE + row // PAGE_ROWS * PAGE + row % PAGE_ROWS * ROW

    def identity(self) -> dict[str, Any]:
        """What must be equal for the chunks of an ended pack to be worth anything."""
        keys = ("layer", "low", "high", "total", "layout", "chunk_rows", "size")
        return dict({key: getattr(self, key) for key in keys}, source=os.stat(self.source).st_size, version=1)

    def header(self) -> bytes:
        fields = MAGIC[self.layout] + struct.pack("<5Q", self.layer, self.low, self.high, self.total, ROW)
        if self.layout == "dense":
            return fields.ljust(PAGE, b"\0")
        page = (fields + struct.pack("<Q", PAGE_ROWS)).ljust(PAGE - 4, b"\0")
        return page + struct.pack("<I", zlib.crc32(page))
