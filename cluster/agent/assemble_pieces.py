"""The pieces of a file to be, asked for block by block from the files that they come from. A part of `assemble`."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Iterator

from cluster.agent.say import refuse

# The memory of a thread is three of these. Measured in a virtual machine with 4 MiB: the same join took two to three
# times the system time, spent in the copy from a block into the page cache.
BLOCK = 1 << 20
MIXED = "files of two packs are mixed, download them again"
VECTORS = 1024  # the most buffers that one readv takes


class Sources:
    """The files that pieces come from, open."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.files: list[int] = []
        self.cut: dict[tuple[int, int, int, int], list[list[memoryview]]] = {}
        for path in paths:
            self.files.append(os.open(path, os.O_RDONLY))
            os.posix_fadvise(self.files[-1], 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def fill(self, source: int, views: list[memoryview], at: int) -> None:
        """All of `views`, from one place on."""
        whole = sum(map(len, views))
        while whole:
            got = os.preadv(self.files[source], views, at)
            if not got:
                refuse("SOURCE_TRUNCATED", "%s ends at byte %d, inside a tensor" % (self.paths[source], at))
            if got == whole:
                return
            at, whole, done = at + got, whole - got, 0
            while got >= len(views[done]):
                got -= len(views[done])
                done += 1
            views = [views[done][got:], *views[done + 1 :]]

    def rows(self, view: memoryview, run: int, count: int) -> list[list[memoryview]]:
        """For each of `count` parts its rows of `run` bytes; kept, since most blocks lie where the last one lay."""
        key = (ctypes.addressof(ctypes.c_char.from_buffer(view)), len(view), run, count)
        if key not in self.cut:
            self.cut = {
                key: [
                    [view[at : at + run] for at in range(number * run, len(view), count * run)]
                    for number in range(count)
                ]
            }
        return self.cut[key]

    def close(self) -> None:
        self.cut = {}
        for file in self.files:
            os.close(file)


class Piece:
    """A piece of an order: its bytes can be asked for in blocks."""

    def __init__(self, sources: Sources, listed: list[Any]) -> None:
        self.sources = sources
        self.kind, self.at, self.length = listed[:3]
        if self.kind == "copy":
            self.parts, self.run, self.tensor = [(listed[3], listed[4])], 0, ""
        else:
            self.parts = [tuple(part) for part in listed[3]]
            self.run = listed[4] if self.kind == "weave" else 0
            self.tensor = listed[4] if self.kind == "same" else ""

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Offset in the piece and length of each block; a woven block holds whole rounds of rows."""
        step = BLOCK
        if self.kind == "weave":
            round_of_rows = self.run * len(self.parts)
            step = max(1, BLOCK // round_of_rows) * round_of_rows
        for offset in range(0, self.length, step):
            yield offset, min(step, self.length - offset)

    def read(self, view: memoryview, offset: int, spare: memoryview) -> None:
        length = len(view)
        if self.kind == "weave":
            self.weave(view, offset)
            return
        self.sources.fill(self.parts[0][0], [view], self.parts[0][1] + offset)
        for source, start in self.parts[1:]:
            other = spare[:length]
            self.sources.fill(source, [other], start + offset)
            if bytes(other) != bytes(view):
                refuse(
                    "NOT_EQUAL",
                    "%s differs between the ranks, and must not: %s; %s" % (self.tensor, self.names(), MIXED),
                )

    def weave(self, view: memoryview, offset: int) -> None:
        count, run = len(self.parts), self.run
        rounds = len(view) // (run * count)
        first = offset // (run * count)
        rows = self.sources.rows(view, run, count)
        for number, (source, start) in enumerate(self.parts):
            for begin in range(0, rounds, VECTORS):
                self.sources.fill(source, rows[number][begin : begin + VECTORS], start + (first + begin) * run)

    def names(self) -> str:
        return ", ".join(os.path.basename(self.sources.paths[source]) for source, _ in self.parts)
