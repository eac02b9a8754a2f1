"""Pack the Engram rows that a rank owns onto this node's disk, or check what is packed. Runs on a node.

Argument: {"files": [...], "check", "threads", "samples", "gentle", "reserve"}; a file has layer, low, high, total,
layout (dense, paged), chunk_rows, source, weight_at, scale_at, out; `reserve` bytes of the disk stay free. Answers in
JSON lines: begin, progress, done, refused; exit code 1 when anything was refused. `chunk_rows` is a multiple of 7680:
whole 4096-byte pages of the file in either layout.

Rows go to OUT.part; OUT.part.log names the chunks that are on the disk, with their checksums, so that a pack that was
ended goes on there. OUT.sums keeps the checksums, and of what file they are: its inode, size and time of change. OUT
appears last, by a rename, and is complete when it does. One that changed since is read whole before it counts.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
import time
import zlib
from typing import Any

from cluster.agent.pack_check import check, crc_of, is_proved
from cluster.agent.pack_chunks import in_parallel, keep_sums, progress, proof, sync_folder
from cluster.agent.pack_job import PAGE, Job
from cluster.agent.pack_rows import Log, Reader, Target
from cluster.agent.say import Refused, say


def pack(job: Job, threads: int, spare: int) -> None:
    os.makedirs(os.path.dirname(job.out) or ".", exist_ok=True)
    log = Log(job)
    done = log.read() if os.path.exists(job.part) else {}
    target = Target(job)
    if not done or not is_trustworthy(job, done):
        done = {}
        log.restart()
    target.reserve(spare)
    say("begin", out=job.out, size=job.size, done=sum(job.span(chunk)[3] for chunk in done))
    write_chunks(job, target, log, done, threads)
    target.finish()
    keep_sums(job, [done[chunk] for chunk in range(job.chunks)], proof(os.stat(job.part)))
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


def handle(job: Job, request: dict[str, Any]) -> None:
    started = time.monotonic()
    samples, threads, only_check = request["samples"], request["threads"], request["check"]
    try:
        check(job, samples, only_check or not is_proved(job), threads)
        is_new = False
    except Refused:
        if only_check:
            raise
        pack(job, threads, request["reserve"])
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
