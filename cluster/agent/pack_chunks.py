"""Several chunks at once, and what is said of them on the way. A part of `pack`."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from typing import Any, Iterator

from cluster.agent.pack_job import Job  # noqa: TC001  # parts are joined as they are
from cluster.agent.pack_rows import Reader
from cluster.agent.say import say

OFTEN, SELDOM = 0.2, 4.0  # seconds between two batches
WORTH = 20  # times as long as the last batch took to be made durable: while that is done, the disk does little else


def progress(job: Job, done: int, rate: float) -> None:
    say("progress", out=job.out, size=job.size, done=done, rate=round(rate), eta=round((job.size - done) / rate, 1))


def in_parallel(job: Job, chunks: list[int], act: Any, threads: int) -> Iterator[dict[int, int]]:
    """What `act` gave for each chunk, in batches spaced by the caller's own work. The first failure ends it all."""
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
        left, patience = len(chunks), 0.0
        while left:
            batch = collect(results, left, patience)
            left -= len(batch)
            began = time.monotonic()
            yield batch
            patience = min(SELDOM, max(OFTEN, WORTH * (time.monotonic() - began)))
    finally:
        stopping.set()
        for worker in workers:
            worker.join()


def collect(results: queue.SimpleQueue[Any], most: int, patience: float) -> dict[int, int]:
    """At least one result, and whatever else comes until it is time to make them durable."""
    batch: dict[int, int] = {}
    until = time.monotonic() + patience
    while len(batch) < most:
        try:
            result = results.get(timeout=max(0.0, until - time.monotonic()) if batch else None)
        except queue.Empty:
            break
        if isinstance(result, Exception):
            raise result
        batch[result[0]] = result[1]
    return batch


def proof(seen: os.stat_result) -> dict[str, int]:
    """What changes when a file is written to or replaced; a rename leaves it."""
    return {"inode": seen.st_ino, "size": seen.st_size, "mtime_ns": seen.st_mtime_ns}


def keep_sums(job: Job, sums: list[int], proved: dict[str, int]) -> None:
    """Written before the file has its name: a file without checksums is one that another program packed.

    `proved`: the file as it was when all its chunks had these checksums.
    """
    text = json.dumps(dict(job.identity(), proved=proved, crc32=["%08x" % crc for crc in sums])).encode()
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
