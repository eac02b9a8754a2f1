"""Rows from a checkpoint's shard into the packed file, and the note of what is on the disk. A part of `pack`."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import struct
import zlib

from cluster.agent.pack_job import PAGE, PAGE_ROWS, ROW, SCALE, WEIGHT, Job
from cluster.agent.say import refuse


class Window:
    """Bytes of the source, read past the page cache where the file system can: whole pages around what is wanted."""

    def __init__(self, file: int, size: int, at: int) -> None:
        self.file, self.end = file, os.fstat(file).st_size
        self.ahead = at % PAGE  # the same for every chunk: each is whole pages long in the source too
        self.room = memoryview(mmap.mmap(-1, -(-(self.ahead + size) // PAGE) * PAGE))
        self.data = self.room[self.ahead : self.ahead + size]

    def fill(self, at: int, size: int) -> int:
        """How many of the bytes wanted there are: fewer only at the end of the file."""
        begin, wanted = at - self.ahead, self.ahead + size
        got = 0
        while got < wanted and begin + got < self.end:
            more = os.preadv(self.file, [self.room[got : -(-wanted // PAGE) * PAGE]], begin + got)
            if not more:
                break
            got += more
        return min(wanted, got) - self.ahead


class Reader:
    """Builds chunks from the source. One join of many pieces is what copies fastest without a library of our own."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.file = open_direct(job.source, os.O_RDONLY)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        self.out = memoryview(mmap.mmap(-1, -(-job.length(job.chunk_rows) // PAGE) * PAGE))
        self.weights = Window(self.file, job.chunk_rows * WEIGHT, job.weight_at + job.low * WEIGHT)
        self.scales = Window(self.file, job.chunk_rows * SCALE, job.scale_at + job.low * SCALE)
        self.pieces = self.in_order()

    def in_order(self) -> list[memoryview]:
        """Every piece of the chunk as the file has it: a row's weight, its scale, the end of a page."""
        pieces = []
        rest = memoryview(bytes(PAGE - PAGE_ROWS * ROW))
        for row in range(self.job.chunk_rows):
            pieces.append(self.weights.data[row * WEIGHT : (row + 1) * WEIGHT])
            pieces.append(self.scales.data[row * SCALE : (row + 1) * SCALE])
            if self.job.layout == "paged" and row % PAGE_ROWS == PAGE_ROWS - 1:
                pieces.append(rest)
        return pieces

    def build(self, chunk: int) -> memoryview:
        job = self.job
        first, rows, _, length = job.span(chunk)
        for window, start, size in ((self.weights, job.weight_at, WEIGHT), (self.scales, job.scale_at, SCALE)):
            at = start + (job.low + first) * size
            if window.fill(at, rows * size) < rows * size:
                refuse("SOURCE_TRUNCATED", "%s ends inside the table" % job.source)
            os.posix_fadvise(self.file, at, rows * size, os.POSIX_FADV_DONTNEED)
        self.arrange(rows)
        if job.layout == "paged":
            self.seal(first // PAGE_ROWS, length // PAGE)
        return self.out[:length]

    def arrange(self, rows: int) -> None:
        if rows < self.job.chunk_rows:
            self.out[:] = bytes(len(self.out))
            pages = rows // PAGE_ROWS if self.job.layout == "paged" else 0
            block = b"".join(self.pieces[: 2 * rows + pages])
        else:
            block = b"".join(self.pieces)
        self.out[: len(block)] = block

    def seal(self, number: int, pages: int) -> None:
        for page in range(pages):
            start = page * PAGE
            struct.pack_into("<Q", self.out, start + PAGE_ROWS * ROW, number + page)
            crc = zlib.crc32(self.out[start : start + PAGE - 4])
            struct.pack_into("<I", self.out, start + PAGE - 4, crc)

    def close(self) -> None:
        os.close(self.file)


def open_direct(path: str, flags: int) -> int:
    """Past the page cache where the file system can."""
    try:
        return os.open(path, flags | getattr(os, "O_DIRECT", 0), 0o644)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags, 0o644)


class Target:
    """The file that is written: past the page cache where the file system can, else with the pages dropped again."""

    def __init__(self, job: Job) -> None:
        self.file = open_direct(job.part, os.O_RDWR | os.O_CREAT)
        self.job = job

    def reserve(self, spare: int) -> None:
        """Take the disk space now: better to be refused before an hour's work than after."""
        seen, system = os.fstat(self.file), os.fstatvfs(self.file)
        missing = self.job.size - seen.st_blocks * 512
        free = system.f_bavail * system.f_frsize
        if missing + spare > free:
            refuse("NO_SPACE", "%d bytes are missing, %d are free and %d must stay free" % (missing, free, spare))
        library = ctypes.CDLL(None, use_errno=True)
        size = ctypes.c_longlong(self.job.size)
        if hasattr(library, "fallocate") and library.fallocate(self.file, 0, ctypes.c_longlong(0), size) == 0:
            return
        os.ftruncate(self.file, max(seen.st_size, self.job.size))

    def write(self, data: memoryview, at: int) -> None:
        while data:
            done = os.pwritev(self.file, [data], at)
            data, at = data[done:], at + done

    def sync(self) -> None:
        os.fdatasync(self.file)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)

    def finish(self) -> None:
        header = memoryview(mmap.mmap(-1, PAGE))
        header[:] = self.job.header()
        self.write(header, 0)
        os.ftruncate(self.file, self.job.size)
        os.fsync(self.file)
        os.close(self.file)


class Log:
    """The chunks that are on the disk. Held locked, so that two packs cannot write one file."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.file = os.open(job.log, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refuse("BUSY", "another pack of %s is at work" % job.out)

    def read(self) -> dict[int, int]:
        """Chunk -> checksum. Nothing when the log is of another file; a line that was cut off does not count."""
        text = b""
        while True:
            part = os.pread(self.file, 1 << 20, len(text))
            if not part:
                break
            text += part
        lines = text.split(b"\n")[:-1]
        if not lines or lines[0] != self.first_line():
            return {}
        return {int(chunk): int(crc, 16) for chunk, crc in (line.split() for line in lines[1:])}

    def restart(self) -> None:
        os.ftruncate(self.file, 0)
        self.write(self.first_line() + b"\n")

    def first_line(self) -> bytes:
        return json.dumps(self.job.identity(), sort_keys=True).encode()

    def append(self, done: dict[int, int]) -> None:
        self.write(b"".join(b"%d %08x\n" % item for item in done.items()))

    def write(self, data: bytes) -> None:
        os.write(self.file, data)
        os.fsync(self.file)
