"""Pack the Engram rows that a rank owns onto this node's disk, or check what is packed. Runs on a node.

Argument: {"files": [...], "check", "threads", "samples", "gentle"}; a file has layer, low, high, total, layout (dense,
paged), chunk_rows, source, weight_at, scale_at, out. Answers in JSON lines: begin, progress, done, refused; exit code
1 when anything was refused. `chunk_rows` is a multiple of 7680: whole 4096-byte pages of the file in either layout.

Rows go to OUT.part; OUT.part.log names the chunks that are on the disk, with their checksums, so that a pack that was
ended goes on there. OUT.sums keeps the checksums; OUT appears last, by a rename, and is complete when it does.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import queue
import random
import struct
import sys
import threading
import time
import zlib
from typing import Any, Iterator, NoReturn

PAGE = 4096
WEIGHT, SCALE = 256, 8
ROW = WEIGHT + SCALE
PAGE_ROWS = 15
MAGIC = {"dense": b"DSV1EN41", "paged": b"SPKPAGE1"}
VECTORS = 1024  # the most buffers that one readv takes
SYNC_EVERY = 1.0  # seconds
RESERVE = 1 << 30  # bytes that stay free


class Refused(Exception):
    def __init__(self, fault: str, text: str) -> None:
        super().__init__(text)
        self.fault = fault


def refuse(fault: str, text: str) -> NoReturn:
    raise Refused(fault, text)


def say(kind: str, **values: Any) -> None:
    print(json.dumps(dict(values, kind=kind)), flush=True)


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

    def reserve(self) -> None:
        """Take the disk space now: better to be refused before an hour's work than after."""
        seen, system = os.fstat(self.file), os.fstatvfs(self.file)
        missing = self.job.size - seen.st_blocks * 512
        free = system.f_bavail * system.f_frsize
        if missing + RESERVE > free:
            refuse("NO_SPACE", "%d bytes are missing, %d are free and %d must stay free" % (missing, free, RESERVE))
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


def pack(job: Job, threads: int) -> None:
    os.makedirs(os.path.dirname(job.out) or ".", exist_ok=True)
    log = Log(job)
    done = log.read() if os.path.exists(job.part) else {}
    target = Target(job)
    if not done or not is_trustworthy(job, done):
        done = {}
        log.restart()
    target.reserve()
    say("begin", out=job.out, size=job.size, done=sum(job.span(chunk)[3] for chunk in done))
    write_chunks(job, target, log, done, threads)
    target.finish()
    keep_sums(job, [done[chunk] for chunk in range(job.chunks)])
    os.rename(job.part, job.out)
    os.unlink(job.log)
    sync_folder(job.out)


def is_trustworthy(job: Job, done: dict[int, int]) -> bool:
    """One chunk that is said to be there is compared with the file and with the source, which may have changed."""
    chunk = max(done)
    reader = Reader(job)
    try:
        built = zlib.crc32(reader.build(chunk))
    finally:
        reader.close()
    _, _, at, length = job.span(chunk)
    return built == done[chunk] == crc_of(job.part, at, length)


def crc_of(path: str, at: int, length: int) -> int:
    with open(path, "rb", buffering=0) as file:
        data = os.pread(file.fileno(), length, at)
        os.posix_fadvise(file.fileno(), at, length, os.POSIX_FADV_DONTNEED)
    return zlib.crc32(data) if len(data) == length else -1


def write_chunks(job: Job, target: Target, log: Log, done: dict[int, int], threads: int) -> None:
    """Workers build and write; this thread makes what they wrote durable, then notes it, then tells of it."""

    def write(reader: Reader, chunk: int) -> int:
        data = reader.build(chunk)
        crc = zlib.crc32(data)
        whole = -(-len(data) // PAGE) * PAGE  # the last one ends inside a page: cut off again at the end
        target.write(reader.out[:whole], job.span(chunk)[2])
        return crc

    started = time.monotonic()
    written = 0
    todo = [chunk for chunk in range(job.chunks) if chunk not in done]
    for batch in in_parallel(job, todo, write, threads):
        target.sync()
        log.append(batch)
        done.update(batch)
        written += sum(job.span(chunk)[3] for chunk in batch)
        progress(job, sum(job.span(chunk)[3] for chunk in done), written / (time.monotonic() - started))


def progress(job: Job, done: int, rate: float) -> None:
    say("progress", out=job.out, size=job.size, done=done, rate=round(rate), eta=round((job.size - done) / rate, 1))


def in_parallel(job: Job, chunks: list[int], act: Any, threads: int) -> Iterator[dict[int, int]]:
    """What `act` gave for each chunk, in batches of about a second. The first failure ends it all."""
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for chunk in chunks:
        todo.put(chunk)
    stopping = threading.Event()

    def work() -> None:
        try:
            reader = Reader(job)
            try:
                while not stopping.is_set():
                    chunk = todo.get_nowait()
                    results.put((chunk, act(reader, chunk)))
            finally:
                reader.close()
        except queue.Empty:
            pass
        except Exception as error:  # a thread's root: raised again below
            results.put(error)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(max(1, min(threads, len(chunks))))]
    for worker in workers:
        worker.start()
    try:
        left = len(chunks)
        while left:
            batch = collect(results, left)
            left -= len(batch)
            yield batch
    finally:
        stopping.set()
        for worker in workers:
            worker.join()


def collect(results: queue.SimpleQueue[Any], most: int) -> dict[int, int]:
    """At least one result, and whatever else comes until it is time to make them durable."""
    batch: dict[int, int] = {}
    until = time.monotonic() + SYNC_EVERY
    while len(batch) < most:
        try:
            result = results.get(timeout=max(0.0, until - time.monotonic()) if batch else None)
        except queue.Empty:
            break
        if isinstance(result, Exception):
            raise result
        batch[result[0]] = result[1]
    return batch


def keep_sums(job: Job, sums: list[int]) -> None:
    """Written before the file has its name: a file without checksums is one that another program packed."""
    text = json.dumps(dict(job.identity(), crc32=["%08x" % crc for crc in sums])).encode()
    descriptor = os.open(job.sums + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    with open(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    os.rename(job.sums + ".new", job.sums)


def sync_folder(path: str) -> None:
    descriptor = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def read_sums(job: Job) -> list[int] | None:
    """None when nobody kept any for this very file."""
    try:
        with open(job.sums, "rb") as file:
            kept = json.load(file)
    except (FileNotFoundError, ValueError):
        return None
    mine = dict(job.identity())
    sums = kept.pop("crc32", None) if isinstance(kept, dict) else None
    if kept != mine or not isinstance(sums, list) or len(sums) != job.chunks:
        return None
    return [int(crc, 16) for crc in sums]


def check(job: Job, samples: int, full: bool, threads: int) -> None:
    """Header, size, some rows against the source; in full, every chunk against its checksum, or else the source."""
    try:
        file = os.open(job.out, os.O_RDONLY)
    except FileNotFoundError:
        refuse("ABSENT", "%s does not exist" % job.out)
    try:
        check_header(job, os.pread(file, PAGE, 0))
        size = os.fstat(file).st_size
        if size != job.size:
            fault = "TRUNCATED" if size < job.size else "TRAILING_BYTES"
            refuse(fault, "%s has %d bytes, must have %d" % (job.out, size, job.size))
        check_samples(job, file, samples)
    finally:
        os.close(file)
    if full:
        check_chunks(job, threads)


def check_header(job: Job, seen: bytes) -> None:
    if len(seen) >= 8 and seen[:8] not in MAGIC.values():
        refuse("NOT_PACKED", "%s is no packed Engram file" % job.out)
    if len(seen) < PAGE:
        refuse("TRUNCATED", "%s has %d bytes, its header alone takes %d" % (job.out, len(seen), PAGE))
    layer, low, high, total, row = struct.unpack_from("<5Q", seen, 8)
    for fault, is_right, text in (
        ("WRONG_LAYER", layer == job.layer, "belongs to layer %d, not %d" % (layer, job.layer)),
        ("WRONG_TABLE", (total, row) == (job.total, ROW), "was made from another table, of %d rows" % total),
        (
            "WRONG_ROWS",
            (low, high) == (job.low, job.high),
            "holds rows %d to %d of another rank or number of ranks, not %d to %d" % (low, high, job.low, job.high),
        ),
        ("WRONG_LAYOUT", seen[:8] == MAGIC[job.layout], "does not have the %s layout" % job.layout),
        ("DAMAGED_HEADER", seen == job.header(), "is damaged in its header"),
    ):
        if not is_right:
            refuse(fault, "%s %s" % (job.out, text))


def check_samples(job: Job, file: int, samples: int) -> None:
    rows = {0, job.rows - 1, *(random.randrange(job.rows) for _ in range(samples))}
    with open(job.source, "rb", buffering=0) as source:
        for descriptor in (file, source.fileno()):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
        for row in sorted(rows):
            weight = os.pread(source.fileno(), WEIGHT, job.weight_at + (job.low + row) * WEIGHT)
            scale = os.pread(source.fileno(), SCALE, job.scale_at + (job.low + row) * SCALE)
            if os.pread(file, ROW, job.place(row)) != weight + scale:
                refuse("WRONG_BYTES", "%s: row %d is not that of %s" % (job.out, job.low + row, job.source))
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def check_chunks(job: Job, threads: int) -> None:
    sums = read_sums(job)

    def compare(reader: Reader, chunk: int) -> int:
        first, rows, at, length = job.span(chunk)
        wanted = sums[chunk] if sums else zlib.crc32(reader.build(chunk))
        if crc_of(job.out, at, length) != wanted:
            place = "rows %d to %d" % (job.low + first, job.low + first + rows - 1)
            against = "when they were packed" if sums else "in " + job.source
            refuse("WRONG_BYTES", "%s: some of %s are not what they were %s" % (job.out, place, against))
        return wanted

    started = time.monotonic()
    found: dict[int, int] = {}
    done = 0
    for batch in in_parallel(job, list(range(job.chunks)), compare, threads):
        found.update(batch)
        done += sum(job.span(chunk)[3] for chunk in batch)
        progress(job, done, done / (time.monotonic() - started))
    if not sums:
        keep_sums(job, [found[chunk] for chunk in range(job.chunks)])


def handle(job: Job, request: dict[str, Any]) -> None:
    started = time.monotonic()
    samples, threads, only_check = request["samples"], request["threads"], request["check"]
    try:
        check(job, samples, only_check, threads)
        is_new = False
    except Refused:
        if only_check:
            raise
        pack(job, threads)
        check(job, samples, False, threads)
        is_new = True
    seconds = time.monotonic() - started
    say("done", out=job.out, size=job.size, seconds=round(seconds, 2), packed=is_new, sums=os.path.exists(job.sums))


def be_gentle() -> None:
    """Beside a server that answers: last in line for the processor and for the disk."""
    os.nice(15)
    numbers = {"x86_64": 251, "aarch64": 30}
    if os.uname().machine in numbers:  # ioprio_set(this process, idle)
        ctypes.CDLL(None).syscall(numbers[os.uname().machine], 1, 0, 3 << 13)


def main(request: dict[str, Any]) -> int:
    if request["gentle"]:
        be_gentle()
    code = 0
    for wanted in request["files"]:
        job = Job(wanted)
        try:
            handle(job, request)
        except Refused as refused:
            say("refused", out=job.out, fault=refused.fault, text=str(refused))
            code = 1
        except OSError as error:
            text = "%s: %s" % (error.filename or job.out, error.strerror)
            say("refused", out=job.out, fault=errno.errorcode.get(error.errno or 0, "ERROR"), text=text)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
