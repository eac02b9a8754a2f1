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
from typing import Any, Iterator

from cluster.agent.assemble_pieces import BLOCK, Piece, Sources
from cluster.agent.assemble_write import Tally, Writer, write_pieces
from cluster.agent.say import Refused, refuse, say

SAY_EVERY = 0.5  # seconds


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
