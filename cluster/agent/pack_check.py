"""Is a packed file the one that is wanted? Its header, size, some rows, in full every chunk. A part of `pack`."""

from __future__ import annotations

import json
import os
import random
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cluster.agent.pack_chunks import in_parallel, keep_sums, progress, proof
from cluster.agent.pack_job import MAGIC, PAGE, ROW, SCALE, WEIGHT, Job
from cluster.agent.say import refuse


def read_sums(job: Job) -> tuple[list[int], Any] | None:
    """The checksums, and the file as it was when it had them all; None when nobody kept any for these rows."""
    try:
        with open(job.sums, "rb") as file:
            kept = json.load(file)
    except (FileNotFoundError, ValueError):
        return None
    mine = dict(job.identity())
    sums, proved = (kept.pop(key, None) if isinstance(kept, dict) else None for key in ("crc32", "proved"))
    if kept != mine or not isinstance(sums, list) or len(sums) != job.chunks:
        return None
    return [int(crc, 16) for crc in sums], proved


def is_proved(job: Job) -> bool:
    """Whether the file was written to by nobody since all its chunks had their checksums."""
    kept = read_sums(job)
    try:
        return kept is not None and kept[1] == proof(os.stat(job.out))
    except FileNotFoundError:
        return False


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
        check_samples(job, file, samples, threads)
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


def check_samples(job: Job, file: int, samples: int, threads: int) -> None:
    rows = {0, job.rows - 1, *(random.randrange(job.rows) for _ in range(samples))}
    with open(job.source, "rb", buffering=0) as source, ThreadPoolExecutor(threads) as pool:
        for descriptor in (file, source.fileno()):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead

        def compare(row: int) -> None:
            weight = os.pread(source.fileno(), WEIGHT, job.weight_at + (job.low + row) * WEIGHT)
            scale = os.pread(source.fileno(), SCALE, job.scale_at + (job.low + row) * SCALE)
            if os.pread(file, ROW, job.place(row)) != weight + scale:
                refuse("WRONG_BYTES", "%s: row %d is not that of %s" % (job.out, job.low + row, job.source))

        list(pool.map(compare, sorted(rows)))  # the list raises what was refused
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def check_chunks(job: Job, threads: int) -> None:
    before, kept = proof(os.stat(job.out)), read_sums(job)
    sums = kept[0] if kept else None

    def compare(reader: Any, chunk: int) -> int:
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
    if kept is None or kept[1] != before:
        keep_sums(job, [found[chunk] for chunk in range(job.chunks)], before)


def crc_of(path: str, at: int, length: int) -> int:
    with open(path, "rb", buffering=0) as file:
        data = os.pread(file.fileno(), length, at)
        os.posix_fadvise(file.fileno(), at, length, os.POSIX_FADV_DONTNEED)
    return zlib.crc32(data) if len(data) == length else -1
