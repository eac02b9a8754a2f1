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

from cluster.agent.pack_job import PAGE, PAGE_ROWS, ROW, SCALE, WEIGHT, Job, refuse

VECTORS = 1024  # the most buffers that one readv takes
AHEAD = 4  # chunks that the disk is asked for before they are needed
ASKED = 512 << 10  # bytes: of a longer advice the kernel would take only the beginning


class Reader:
    """Builds chunks from the source. The kernel puts each row's weight where it belongs; nothing is copied twice."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.file = os.open(job.source, os.O_RDONLY)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        self.out = memoryview(mmap.mmap(-1, -(-job.length(job.chunk_rows) // PAGE) * PAGE))
        self.scales = memoryview(mmap.mmap(-1, job.chunk_rows * SCALE))
        starts = [job.place(row) - PAGE for row in range(job.chunk_rows)]
        self.weights = [self.out[start : start + WEIGHT] for start in starts]

    def build(self, chunk: int) -> memoryview:
        job = self.job
        first, rows, _, length = job.span(chunk)
        self.ask_for(chunk + AHEAD)
        if rows < job.chunk_rows:
            self.out[:] = bytes(len(self.out))
        weight_at = job.weight_at + (job.low + first) * WEIGHT
        for start in range(0, rows, VECTORS):
            self.fill(self.weights[start : min(start + VECTORS, rows)], weight_at + start * WEIGHT)
        scale_at = job.scale_at + (job.low + first) * SCALE
        self.fill([self.scales[: rows * SCALE]], scale_at)
        for at, size in ((weight_at, rows * WEIGHT), (scale_at, rows * SCALE)):
            os.posix_fadvise(self.file, at, size, os.POSIX_FADV_DONTNEED)
        self.place_scales(rows)
        if job.layout == "paged":
            self.seal(first // PAGE_ROWS, length // PAGE)
        return self.out[:length]

    def ask_for(self, chunk: int) -> None:
        """By itself the kernel reads a quarter of a MiB ahead, which leaves a fast disk idle between two requests."""
        if chunk >= self.job.chunks:
            return
        first, rows, _, _ = self.job.span(chunk)
        begin = self.job.weight_at + (self.job.low + first) * WEIGHT
        for at in range(begin, begin + rows * WEIGHT, ASKED):
            os.posix_fadvise(self.file, at, ASKED, os.POSIX_FADV_WILLNEED)

    def fill(self, views: list[memoryview], at: int) -> None:
        whole = sum(map(len, views))
        got = os.preadv(self.file, views, at)
        while got != whole:
            if not got:
                refuse("SOURCE_TRUNCATED", "%s ends inside the table, at byte %d" % (self.job.source, at))
            at, whole = at + got, whole - got
            done = 0
            while got >= len(views[done]):
                got -= len(views[done])
                done += 1
            views = [views[done][got:], *views[done + 1 :]]
            got = os.preadv(self.file, views, at)

    def place_scales(self, rows: int) -> None:
        words, scales = self.out.cast("Q"), self.scales.cast("Q")
        if self.job.layout == "dense":
            words[WEIGHT // 8 : rows * ROW // 8 : ROW // 8] = scales[:rows]
            return
        for slot in range(min(PAGE_ROWS, rows)):
            column = scales[slot:rows:PAGE_ROWS]
            start = (slot * ROW + WEIGHT) // 8
            words[start : start + (len(column) - 1) * (PAGE // 8) + 1 : PAGE // 8] = column

    def seal(self, number: int, pages: int) -> None:
        for page in range(pages):
            start = page * PAGE
            struct.pack_into("<Q", self.out, start + PAGE_ROWS * ROW, number + page)
            crc = zlib.crc32(self.out[start : start + PAGE - 4])
            struct.pack_into("<I", self.out, start + PAGE - 4, crc)

    def close(self) -> None:
        os.close(self.file)


class Target:
    """The file that is written: past the page cache where the file system can, else with the pages dropped again."""

    def __init__(self, job: Job) -> None:
        flags = os.O_RDWR | os.O_CREAT
        try:
            self.file = os.open(job.part, flags | getattr(os, "O_DIRECT", 0), 0o644)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self.file = os.open(job.part, flags, 0o644)
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
