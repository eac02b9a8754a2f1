"""Write safetensors files out of pieces of others, and place links beside them. Runs on a node.

Argument: {"folder", "orders": [file, ...], "links": [[name, target, how], ...], "digest": [name, ...], "threads",
"verify", "sums", "size"}; `how` is symlink, hardlink or copy; files to `digest` are only read. An order is a JSON file
{"name", "size", "header", "sources", "pieces"}; a piece is ["copy", at, length, source, start], or
["weave", at, length, [[source, start], ...], run], rows of `run` bytes from every part in turn, or
["same", at, length, [[source, start], ...], tensor], parts that must be equal, of which the first is taken.
What no piece covers is zero. Orders are removed in the end, when all went well.

Answers in JSON lines: progress, done, refused; exit code 1 when anything was refused. A file has the name NAME.part
until its bytes are on the disk and, with `verify`, were read back and compared.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import queue
import struct
import sys
import threading
import time
from typing import Any, Iterator, NoReturn

# The memory of a thread is three of these. Measured in a virtual machine with 4 MiB: the same join took two to three
# times the system time, spent in the copy from a block into the page cache.
BLOCK = 1 << 20
LARGE = 1 << 20  # from here on the kernel copies from file to file
STEP = 16 << 20  # what is copied between two looks at the progress
VECTORS = 1024  # the most buffers that one readv takes
DIRTY = 16 << 20  # bytes after which the disk is told to begin
SYNC_FILE_RANGE_WRITE = 2
LIBRARY = ctypes.CDLL(None)
SAY_EVERY = 0.5  # seconds
UNSUPPORTED = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


class Refused(Exception):
    def __init__(self, fault: str, text: str) -> None:
        super().__init__(text)
        self.fault = fault


def refuse(fault: str, text: str) -> NoReturn:
    raise Refused(fault, text)


def say(kind: str, **values: Any) -> None:
    sys.stdout.write(json.dumps(dict(values, kind=kind)) + "\n")
    sys.stdout.flush()


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
                refuse("NOT_EQUAL", "%s differs between the ranks, and must not: %s" % (self.tensor, self.names()))

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


@contextlib.contextmanager
def synced(file: int) -> Iterator[None]:
    """On the disk at the end; the disk works while something else is done."""
    failed: list[OSError] = []

    def sync() -> None:
        try:
            os.fsync(file)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failed:
        raise failed[0]


def verify(file: int, path: str, order: dict[str, Any], pieces: list[Piece], spare: memoryview) -> None:
    """Compare what the file holds with the sources, byte by byte."""
    size = os.fstat(file).st_size
    if size != order["size"]:
        refuse("WRONG_SIZE", "%s has %d bytes, must have %d" % (path, size, order["size"]))
    header = head_of(order)
    if os.pread(file, len(header), 0) != header:
        refuse("WRONG_BYTES", "%s: its header is not what was written" % path)
    want, have = bytearray(BLOCK), bytearray(BLOCK)
    for piece in pieces:
        for offset, length in piece.blocks():
            if length > len(want):  # a round of rows larger than a block
                want, have = bytearray(length), bytearray(length)
            piece.read(memoryview(want)[:length], offset, spare)
            got = os.preadv(file, [memoryview(have)[:length]], piece.at + offset)
            whole = got == length == len(want)
            if got != length or (want != have if whole else want[:length] != have[:length]):
                refuse("WRONG_BYTES", "%s: the bytes from %d on are not the source's" % (path, piece.at + offset))


def digest(path: str) -> str:
    found = hashlib.sha256()
    buffer = bytearray(BLOCK)
    with open(path, "rb", buffering=0) as file:
        while True:
            got = file.readinto(buffer)
            if not got:
                return found.hexdigest()
            found.update(memoryview(buffer)[:got])


def tell_digest(folder: str, name: str) -> None:
    path = os.path.join(folder, name)
    sha256 = digest(path)
    say("done", name=name, size=os.stat(path).st_size, seconds=0.0, sha256=sha256, how="digest")


def head_of(order: dict[str, Any]) -> bytes:
    text: bytes = order["header"].encode()
    return struct.pack("<Q", len(text)) + text


def assemble(folder: str, order: dict[str, Any], tally: Tally, request: dict[str, Any]) -> None:
    began = time.monotonic()
    path = os.path.join(folder, order["name"])
    part = path + ".part"
    sources = Sources(order["sources"])
    spare = memoryview(bytearray(BLOCK))
    try:
        pieces = [Piece(sources, listed) for listed in order["pieces"]]
        writer = Writer(part, tally)
        try:
            header = head_of(order)
            writer.write(memoryview(header), 0)
            writer.start = len(header)
            write_pieces(writer, pieces, spare)
            os.ftruncate(writer.file, order["size"])
            with synced(writer.file):
                if request["verify"]:
                    verify(writer.file, part, order, pieces, spare)
        finally:
            writer.close()
    finally:
        sources.close()
    sha256 = digest(part) if request["sums"] else ""
    os.rename(part, path)
    seconds = round(time.monotonic() - began, 3)
    say("done", name=order["name"], size=order["size"], seconds=seconds, sha256=sha256)


def place(folder: str, name: str, target: str, how: str, sums: bool) -> None:
    """Under another name first: a link that dangles is replaced in one step."""
    path = os.path.join(folder, name)
    part = path + ".part"
    if os.path.lexists(part):
        os.unlink(part)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    done = how
    if how == "symlink":
        os.symlink(target, part)
    elif how == "hardlink":
        try:
            os.link(os.path.realpath(target), part)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
                raise
            done = "copy"
    if done == "copy":
        copy_file(target, part)
    os.rename(part, path)
    size = os.stat(path).st_size
    say("done", name=name, size=size, seconds=0.0, sha256=digest(path) if sums else "", how=done)


def copy_file(source: str, target: str) -> None:
    tally = Tally(0)
    sources, writer = Sources([source]), Writer(target, tally)
    try:
        size = os.fstat(sources.files[0]).st_size
        write_pieces(writer, [Piece(sources, ["copy", 0, size, 0, 0])] if size else [], memoryview(bytearray(BLOCK)))
        os.fsync(writer.file)
    finally:
        writer.close()
        sources.close()


def guarded(name: str, act: Any) -> bool:
    """One file's failure is told, and the others go on."""
    try:
        act()
    except Refused as refused:
        say("refused", name=name, fault=refused.fault, text=str(refused))
    except OSError as error:
        text = "%s: %s" % (error.filename or name, error.strerror)
        say("refused", name=name, fault=errno.errorcode.get(error.errno or 0, "ERROR"), text=text)
    except Exception as error:  # a thread's root: an order that makes no sense is a failure like any other
        say("refused", name=name, fault="ERROR", text="%s: %s" % (type(error).__name__, error))
    else:
        return True
    return False


def work(todo: "queue.SimpleQueue[str]", failed: list[str], request: dict[str, Any], tally: Tally) -> None:
    while True:
        try:
            file = todo.get_nowait()
        except queue.Empty:
            return
        with open(file, encoding="utf-8") as opened:
            order = json.load(opened)
        if not guarded(order["name"], lambda order=order: assemble(request["folder"], order, tally, request)):
            failed.append(order["name"])
            part = os.path.join(request["folder"], order["name"] + ".part")
            if os.path.lexists(part):
                os.unlink(part)


def main(request: dict[str, Any]) -> int:
    request["folder"] = folder = os.path.realpath(os.path.expanduser(request["folder"]))
    os.makedirs(folder, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("refused", name=folder, fault="BUSY", text="another run writes into %s" % folder)
        return 1
    tally, failed = Tally(request["size"]), []
    todo: queue.SimpleQueue[str] = queue.SimpleQueue()
    for file in request["orders"]:
        todo.put(file)
    for name, target, how in request["links"]:
        if not guarded(name, lambda: place(folder, name, target, how, request["sums"])):  # noqa: B023  # called at once
            failed.append(name)
    failed += [name for name in request["digest"] if not guarded(name, lambda name=name: tell_digest(folder, name))]
    threads = [
        threading.Thread(target=work, args=(todo, failed, request, tally), daemon=True)
        for _ in range(min(request["threads"], len(request["orders"])))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(SAY_EVERY)
            tally.say()
    os.fsync(lock)
    if not failed:
        clean(request["orders"])
    return 1 if failed else 0


def clean(orders: list[str]) -> None:
    for file in orders:
        os.unlink(file)
    for folder in {os.path.dirname(file) for file in orders}:
        os.rmdir(folder)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
