"""Write the pieces of a file, front to back, and tell how much is written. A part of `assemble`."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from typing import Iterator

from cluster.agent.assemble_pieces import BLOCK, Piece, Sources
from cluster.agent.say import refuse, say

LARGE = 1 << 20  # from here on the kernel copies from file to file
STEP = 16 << 20  # what is copied between two looks at the progress
DIRTY = 16 << 20  # bytes after which the disk is told to begin
SYNC_FILE_RANGE_WRITE = 2
LIBRARY = ctypes.CDLL(None)
UNSUPPORTED = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


class Tally:
    """Bytes written so far by all threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.done = 0
        self.lock = threading.Lock()
        self.began = time.monotonic()

    def add(self, count: int) -> None:
        with self.lock:
            self.done += count

    def say(self) -> None:
        rate = self.done / max(1e-3, time.monotonic() - self.began)
        say("progress", done=self.done, size=self.size, rate=round(rate))


class Writer:
    """The file that is written, front to back: small pieces are gathered, large ones left to the kernel."""

    def __init__(self, path: str, tally: Tally) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self.tally = tally
        self.buffer = bytearray(BLOCK)
        self.view = memoryview(self.buffer)
        self.dirty = 0
        self.start = self.filled = 0  # where the gathered bytes go, and how many there are

    def room(self, at: int, length: int) -> memoryview:
        """Where to put bytes that follow the gathered ones; zeros fill what lies between."""
        gap = at - self.start - self.filled
        if gap < 0 or self.filled + gap + length > BLOCK:
            self.flush()
            self.start, gap = at, 0
        self.view[self.filled : self.filled + gap] = bytes(gap)
        self.filled += gap + length
        return self.view[self.filled - length : self.filled]

    def flush(self) -> None:
        self.write(self.view[: self.filled], self.start)
        self.start, self.filled = self.start + self.filled, 0

    def write(self, view: memoryview, at: int) -> None:
        while view:
            done = os.pwrite(self.file, view[:BLOCK], at)
            self.wrote(done, at)
            view, at = view[done:], at + done

    def wrote(self, count: int, at: int) -> None:
        """Let the disk begin now, so that the sync in the end has little left to do."""
        self.tally.add(count)
        self.dirty += count
        if self.dirty >= DIRTY:
            start_writing(self.file, at + count - self.dirty, self.dirty)
            self.dirty = 0

    def copy(self, sources: Sources, source: int, start: int, at: int, length: int) -> int:
        """As many bytes as the kernel copies itself; the rest is the caller's. Blocks are shared where they can be."""
        done = 0
        while done < length:
            step = min(STEP, length - done)
            try:
                got = os.copy_file_range(sources.files[source], self.file, step, start + done, at + done)
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    raise
                return done
            if not got:
                refuse("SOURCE_TRUNCATED", "%s ends at byte %d" % (sources.paths[source], start + done))
            self.wrote(got, at + done)
            done += got
        return done

    def close(self) -> None:
        os.close(self.file)


def write_pieces(writer: Writer, pieces: list[Piece], spare: memoryview) -> None:
    for piece in pieces:
        skip = 0
        if piece.kind == "copy" and piece.length >= LARGE:
            writer.flush()
            source, start = piece.parts[0]
            skip = writer.copy(piece.sources, source, start, piece.at, piece.length)
            writer.start = piece.at + skip
        if skip < piece.length:
            for offset, length in piece.blocks() if not skip else rest(piece, skip):
                write_block(writer, piece, offset, length, spare)
    writer.flush()


def rest(piece: Piece, skip: int) -> Iterator[tuple[int, int]]:
    for offset in range(skip, piece.length, BLOCK):
        yield offset, min(BLOCK, piece.length - offset)


def write_block(writer: Writer, piece: Piece, offset: int, length: int, spare: memoryview) -> None:
    if length > BLOCK:  # a round of rows larger than a block
        whole = memoryview(bytearray(length))
        piece.read(whole, offset, spare)
        writer.flush()
        writer.write(whole, piece.at + offset)
        writer.start = piece.at + offset + length
    else:
        piece.read(writer.room(piece.at + offset, length), offset, spare)


def start_writing(file: int, at: int, length: int) -> None:
    """Nothing depends on it, so a system that cannot is none worse."""
    call = getattr(LIBRARY, "sync_file_range", None)
    if call is not None:
        call(file, ctypes.c_longlong(max(0, at)), ctypes.c_longlong(length), SYNC_FILE_RANGE_WRITE)
