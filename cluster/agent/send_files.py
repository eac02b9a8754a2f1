"""Send files of a folder to another node, in pieces over several ssh streams. Runs on the head.

Argument: JSON {"folder", "to", "files": [name, ...], "receiver": [words], "streams", "limit": bytes a second or 0,
"piece", "block", "silence"}. Answer: lines of JSON {"done", "total", "rate"}, at the end {"sent", "kept"} or
{"error", "words"}.

Every stream takes the next piece of the one list, so none is idle while another has a large file left. The bytes go
from the file to ssh without passing through here. Of a file that was begun before, both sides tell the digest of each
block, and only the blocks that differ are sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Dict, Iterator, List, Tuple

EVERY = 0.5
STEP = 1 << 20
SSH_EXIT = 255
MEANINGS = {
    "cut": "the way to the worker broke; what came stays there, and the same command goes on from it",
    "silence": "the way to the worker was blocked; what came stays there, and the same command goes on from it",
    "no_space": "the worker's disk is full; what came stays there: make room and run the same command again, or detach",
    "changed": "somebody writes to the weights; wait until that ends",
}

Json = Dict[str, Any]


class Failed(Exception):
    def __init__(self, kind: str, *words: str) -> None:
        super().__init__(kind)
        self.kind, self.words = kind, list(words)


def tell(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class File:
    """One file, and how many of its pieces are still on their way."""

    def __init__(self, folder: str, name: str) -> None:
        self.name, self.path = name, os.path.join(folder, name)
        self.seen = os.stat(self.path)
        self.size = self.seen.st_size
        self.left = 0
        self.is_begun = False

    def pieces(self, size: int) -> List[Tuple[int, int]]:
        cut = [(at, min(size, self.size - at)) for at in range(0, self.size, size)] or [(0, 0)]
        self.left = len(cut)
        return cut

    def must_be_unchanged(self) -> None:
        now = os.stat(self.path)
        if (now.st_size, now.st_mtime_ns) != (self.size, self.seen.st_mtime_ns):
            raise Failed("changed", "%s changed while it was sent" % self.path)


class Budget:
    """How many bytes may go now, over all streams together."""

    def __init__(self, limit: float) -> None:
        self.limit, self.lock, self.next = limit, threading.Lock(), time.monotonic()

    def take(self, size: int) -> None:
        if not self.limit:
            return
        with self.lock:
            now = time.monotonic()
            self.next = max(self.next, now - 0.1) + size / self.limit
            wait = self.next - now
        if wait > 0:
            time.sleep(wait)


class Stream:
    """One ssh with a receiver behind it."""

    def __init__(self, wanted: Json, budget: Budget) -> None:
        # A socket instead of a pipe: four times as much waits in it, so both sides are woken more rarely.
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STEP)
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  # read after its end
        words: List[str] = wanted["receiver"]
        self.process = subprocess.Popen(words, stdin=theirs.fileno(), stdout=subprocess.PIPE, stderr=self.errors)
        theirs.close()
        self.into, self.budget, self.waiting = ours, budget, 0
        self.sent = self.kept = 0
        self.say(folder=wanted["to"], silence=wanted["silence"])

    def say(self, **what: Any) -> None:
        self.into.sendall(json.dumps(what).encode() + b"\n")

    def hear(self) -> Json:
        """Its next answer; whatever is no JSON is what a login shell printed."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                if isinstance(said, dict):
                    if "error" in said:
                        raise Failed(said["error"], *said["words"])
                    return said
        raise self.ended()

    def settle(self, most: int = 0) -> None:
        """Until no more than `most` pieces wait for the word that they are written."""
        while self.waiting > most:
            self.hear()
            self.waiting -= 1

    def ask(self, **what: Any) -> Json:
        self.settle()
        self.say(**what)
        return self.hear()

    def send(self, file: int, name: str, at: int, size: int) -> None:
        self.say(piece=name, at=at, size=size)
        end = at + size
        while at < end:
            step = min(STEP, end - at)
            self.budget.take(step)
            gone = os.sendfile(self.into.fileno(), file, at, step)
            if not gone:
                raise Failed("changed", "%s became shorter while it was sent" % name)
            at += gone
            self.sent += gone
        self.waiting += 1
        self.settle(1)

    def ended(self) -> Failed:
        self.close()
        code = self.process.wait()
        self.errors.seek(0)
        words = self.errors.read().decode("utf-8", "replace").splitlines()[-5:]
        return Failed("cut" if code == SSH_EXIT else "receiver", *(words or ["exit code %d" % code]))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.into.close()

    def kill(self) -> None:
        self.close()
        with contextlib.suppress(OSError):
            self.process.kill()


class Sending:
    """All files over all streams."""

    def __init__(self, wanted: Json) -> None:
        self.wanted = wanted
        folder = os.path.expanduser(wanted["folder"])
        self.files = [File(folder, name) for name in wanted["files"]]
        self.total = sum(one.size for one in self.files)
        self.queue: queue.SimpleQueue[Tuple[File, int, int]] = queue.SimpleQueue()
        self.lock, self.stop = threading.Lock(), threading.Event()
        self.streams: List[Stream] = []
        self.failures: List[Failed] = []
        pieces = [(one, at, size) for one in self.files for at, size in one.pieces(wanted["piece"])]
        for piece in pieces:
            self.queue.put(piece)
        # A login takes as long as many small files.
        self.many = min(wanted["streams"], 1 + self.total // wanted["piece"])

    def run(self) -> None:
        budget = Budget(self.wanted["limit"])
        self.streams = [Stream(self.wanted, budget) for _ in range(self.many)]
        threads = [threading.Thread(target=self.work, args=(one,), daemon=True) for one in self.streams]
        try:
            begun = set(self.streams[0].ask(parts=[one.name for one in self.files])["parts"])
            for one in self.files:
                one.is_begun = one.name in begun
            for thread in threads:
                thread.start()
            self.watch(threads)
        finally:
            for stream in self.streams:
                stream.kill() if self.failures else stream.close()
        if self.failures:
            raise self.failures[0]
        for stream in self.streams:
            if stream.process.wait():
                raise stream.ended()

    def watch(self, threads: List[threading.Thread]) -> None:
        before, at = 0, time.monotonic()
        while any(one.is_alive() for one in threads):
            for one in threads:
                one.join(EVERY / len(threads))
            if self.failures:
                return
            now, sent = time.monotonic(), self.sum("sent")
            tell(done=sent + self.sum("kept"), total=self.total, rate=(sent - before) / max(now - at, 1e-3))
            before, at = sent, now

    def sum(self, what: str) -> int:
        return sum(getattr(one, what) for one in self.streams)

    def work(self, stream: Stream) -> None:
        try:
            while not self.stop.is_set():
                self.carry(stream, *self.queue.get_nowait())
        except queue.Empty:
            stream.close()  # or its receiver would take the silence for a head that is gone
        except Failed as failed:
            self.fail(failed)
        except ConnectionError:
            try:
                while True:
                    stream.hear()
            except Failed as failed:  # the receiver's own word tells more than that it is gone
                self.fail(failed)
        except OSError as error:
            self.fail(Failed("file", "%s: %s" % (error.filename or self.wanted["folder"], error.strerror)))

    def fail(self, failed: Failed) -> None:
        with self.lock:
            self.failures.append(failed)
        self.stop.set()

    def carry(self, stream: Stream, file: File, at: int, size: int) -> None:
        source = os.open(file.path, os.O_RDONLY)
        try:
            for start, length in self.missing(stream, file, source, at, size):
                stream.send(source, file.name, start, length)
        finally:
            os.close(source)
        stream.settle()
        with self.lock:
            file.left -= 1
            is_last = not file.left
        if is_last:
            file.must_be_unchanged()
            seen = file.seen
            stream.ask(finish=file.name, size=file.size, mtime=seen.st_mtime_ns, mode=seen.st_mode & 0o777)

    def missing(self, stream: Stream, file: File, source: int, at: int, size: int) -> Iterator[Tuple[int, int]]:
        """The piece; of a file that was begun only the blocks that are not there as they are here, joined."""
        if not file.is_begun or not size:
            yield at, size
            return
        block = self.wanted["block"]
        there = stream.ask(digests=file.name, at=at, size=size, block=block)["digests"]
        begin = end = at
        for number, digest in enumerate(there):
            start = at + number * block
            length = min(block, at + size - start)
            if digest and digest == hashlib.sha256(os.pread(source, length, start)).hexdigest():
                stream.kept += length
                if end > begin:
                    yield begin, end - begin
                begin = end = start + length
            else:
                end = start + length
        if end > begin:
            yield begin, end - begin


def main(wanted: Json) -> int:
    sending = None
    try:
        sending = Sending(wanted)
        sending.run()
    except Failed as failed:
        kind, words = failed.kind, failed.words
    except OSError as error:
        kind, words = "file", ["%s: %s" % (error.filename or "", error.strerror)]
    else:
        tell(sent=sending.sum("sent"), kept=sending.sum("kept"))
        return 0
    tell(error=kind, words=words, sent=sending.sum("sent") if sending else 0)
    sys.stderr.write("\n".join([*words, MEANINGS.get(kind, "")]) + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
