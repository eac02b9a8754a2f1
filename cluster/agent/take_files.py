"""Take pieces of files in on a worker: write each at its place in a part file, tell what of it is there already.

Runs at the far end of an ssh from the head, once per stream. Input: lines of JSON, first {"folder", "silence":
seconds}, then, each answered by one:
  {"parts": [name, ...]}                  which of them were begun before -> {"parts": [name, ...]}
  {"digests": name, "at", "size", "block"}  sha256 of each block that lies there, "" where nothing does -> {"digests"}
  {"piece": name, "at", "size"}           followed by that many bytes -> {"got": size}
  {"finish": name, "size", "mtime", "mode"}  all of it came: on the disk, then under its name -> {"finished": name}
A part file has holes where nothing came yet, so it says by itself what to go on with.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import sys
import threading
import time
from typing import Any, Dict, List

PARTS = os.path.join(".sparkctl", "parts")
ENDING = ".copy.part"
BUFFER = 1 << 20
F_SETPIPE_SZ = 1031  # fcntl has the name since Python 3.10

Json = Dict[str, Any]


class Trouble(Exception):
    """What is told to the head; `kind` is one word for a program."""

    def __init__(self, kind: str, *words: str) -> None:
        super().__init__(kind)
        self.kind, self.words = kind, list(words)


def tell(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Folder:
    """Where the files go. Nothing is written outside of it, whatever a name says."""

    def __init__(self, path: str) -> None:
        self.path = os.path.expanduser(path)
        self.open: Dict[str, int] = {}
        os.makedirs(os.path.join(self.path, PARTS), mode=0o755, exist_ok=True)

    def place(self, name: str) -> str:
        parts = name.split("/")
        if name.startswith("/") or ".." in parts or parts[0] == ".sparkctl":
            raise Trouble("name", "%r is no name of a file in the folder" % name)
        return os.path.join(self.path, name)

    def part(self, name: str) -> str:
        self.place(name)
        mark = hashlib.sha256(name.encode()).hexdigest()[:8]  # a/b and a--b are two files
        return os.path.join(self.path, PARTS, "%s.%s%s" % (name.replace("/", "--"), mark, ENDING))

    def file(self, name: str) -> int:
        if name not in self.open:
            self.open[name] = os.open(self.part(name), os.O_RDWR | os.O_CREAT, 0o644)
        return self.open[name]

    def begun(self, names: List[str]) -> List[str]:
        return [name for name in names if os.path.exists(self.part(name))]

    def digests(self, name: str, at: int, size: int, block: int) -> List[str]:
        file = self.file(name)
        return [block_digest(file, start, min(block, at + size - start)) for start in range(at, at + size, block)]

    def take(self, name: str, at: int, size: int, pieces: Pieces) -> None:
        file = self.file(name)
        for data in pieces.raw(size):
            view = data
            while view:
                wrote = os.pwrite(file, view, at)
                at += wrote
                view = view[wrote:]

    def finish(self, name: str, size: int, mtime: int, mode: int) -> None:
        """Other streams have written to it too: it is the file that is flushed, not what came through here."""
        file, place = self.file(name), self.place(name)
        found = os.fstat(file).st_size
        if found > size:
            os.ftruncate(file, size)  # a longer file of that name was begun before
        elif found < size:
            raise Trouble("short", "%s has %d bytes, not %d" % (name, found, size))
        os.fchmod(file, mode)
        os.utime(file, ns=(mtime, mtime))
        os.fsync(file)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.rename(self.part(name), place)
        os.close(self.open.pop(name))


def block_digest(file: int, at: int, size: int) -> str:
    try:
        if os.lseek(file, at, os.SEEK_DATA) >= at + size:
            return ""
    except OSError as error:
        if error.errno == errno.ENXIO:
            return ""  # behind its end
    data = os.pread(file, size, at)
    return hashlib.sha256(data).hexdigest() if len(data) == size else ""


class Pieces:
    """Standard input: lines, and raw bytes between them. A head that is gone is noticed by its silence."""

    silence = 120.0

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(BUFFER))
        self.heard = time.monotonic()
        self.is_reading = False
        with contextlib.suppress(OSError):
            fcntl.fcntl(0, F_SETPIPE_SZ, BUFFER)  # of a pipe: to be woken for more at a time
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self) -> None:
        """Beside the reading, which asks for nothing but bytes."""
        while not self.is_reading or time.monotonic() - self.heard < self.silence:
            time.sleep(min(1.0, self.silence))
        tell(error="silence", words=["nothing came for %d s" % self.silence])
        os._exit(1)

    def read(self, most: int) -> memoryview:
        self.heard = time.monotonic()
        self.is_reading = True
        size = os.readv(0, [self.buffer[:most]])
        self.is_reading = False
        return self.buffer[:size]

    def raw(self, size: int) -> Any:
        while size:
            data = self.read(min(size, BUFFER))
            if not data:
                raise Trouble("cut", "the connection ended in the middle of a piece")
            size -= len(data)
            yield data

    def line(self) -> Json:
        """One byte at a time: what follows it must stay where it is."""
        text = bytearray()
        while True:
            data = self.read(1)
            if not data:
                return {}
            if data[0] == 10:
                said: Json = json.loads(text)
                return said
            text += data


def serve(folder: Folder, pieces: Pieces) -> None:
    while True:
        said = pieces.line()
        if not said:
            return
        if "piece" in said:
            folder.take(said["piece"], said["at"], said["size"], pieces)
            tell(got=said["size"])
        elif "digests" in said:
            tell(digests=folder.digests(said["digests"], said["at"], said["size"], said["block"]))
        elif "finish" in said:
            folder.finish(said["finish"], said["size"], said["mtime"], said["mode"])
            tell(finished=said["finish"])
        else:
            tell(parts=folder.begun(said["parts"]))


def main() -> int:
    pieces, folder = Pieces(), ""
    try:
        wanted = pieces.line()
        folder, pieces.silence = wanted["folder"], wanted["silence"]
        serve(Folder(folder), pieces)
    except Trouble as trouble:
        tell(error=trouble.kind, words=trouble.words)
    except OSError as error:
        kind = "no_space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "file"
        tell(error=kind, words=["%s: %s" % (error.filename or folder, error.strerror)])
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
