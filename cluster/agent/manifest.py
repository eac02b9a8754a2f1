"""Look at the files of a folder of weights, and read as many of them as is asked for. Runs on a node.

Argument: JSON, or a list of such, {"folder", "files": {name: "sha256" | "sha1"} | null, "hash": bool, "again": bool,
"threads", "cache", "pads": prefix, "record": path}. `files` null: all that lie there. `hash` false: contents only where
the cache knows them; `again`: the cache is not asked. Answer: JSON lines {"kind": "room"}, {"kind": "record"} if one
was named, {"kind": "progress"}, one {"kind": "file"} for each file, and {"kind": "index"} if there is one.

The cache, a file beside our state, holds each digest with the inode, size and times of the file it was read from: what
changed since then is read again, what was read before an interruption is not.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any, Deque, Dict, List, Optional, Tuple

BLOCK = 8 << 20
LONGEST_HEADER = 100_000_000
INDEX = "model.safetensors.index.json"
TOLD_EVERY = 0.5
SHOWN = 5
SAY = threading.Lock()


def tell(**said: Any) -> None:
    with SAY:
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


class Cache:
    """Digests by path. Replaced as a whole after every file, so that an end at any moment leaves it readable."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.known: Dict[str, List[Any]] = {}
        try:
            with open(path, encoding="utf-8") as file:
                self.known = dict(json.load(file))
        except (OSError, ValueError, TypeError):
            pass

    def get(self, path: str, kind: str, seen: os.stat_result) -> str:
        entry = self.known.get(kind + " " + path)
        return str(entry[-1]) if entry and entry[:-1] == identity(seen) else ""

    def put(self, path: str, kind: str, seen: os.stat_result, digest: str) -> None:
        with self.lock:
            self.known[kind + " " + path] = [*identity(seen), digest]
            temporary = "%s.%d" % (self.path, os.getpid())
            try:
                os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
                with open(temporary, "w", encoding="utf-8") as file:
                    json.dump(self.known, file)
                os.replace(temporary, self.path)
            except OSError:
                pass  # a verdict that cannot be kept is still a verdict


def identity(seen: os.stat_result) -> List[int]:
    return [seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns]


class Files:
    """The wanted files: first each one's outside, then the contents by several threads, the largest first."""

    def __init__(self, want: Dict[str, Any]) -> None:
        self.want = want
        self.folder = os.path.expanduser(want["folder"])
        self.cache = Cache(os.path.expanduser(want["cache"]))
        self.kinds: Dict[str, str] = want["files"] if want["files"] is not None else self.lying()
        self.facts: Dict[str, Dict[str, Any]] = {}
        self.queue: Deque[Tuple[str, os.stat_result]] = deque()
        self.done = self.total = 0
        self.lock = threading.Lock()

    def lying(self) -> Dict[str, str]:
        found = {}
        for base, folders, names in os.walk(self.folder, followlinks=True):
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            for name in sorted(names):
                if not name.startswith("."):
                    found[os.path.relpath(os.path.join(base, name), self.folder)] = "sha256"
        for name in indexed(self.folder):
            found.setdefault(name, "sha256")
        return found

    def look(self) -> None:
        waiting = []
        for name, kind in self.kinds.items():
            path = os.path.join(self.folder, name)
            fact: Dict[str, Any] = {"name": name, "size": None, "part": part(self.folder, name)}
            self.facts[name] = fact
            if os.path.islink(path) or os.path.realpath(path) != os.path.abspath(path):
                fact["link"] = os.path.realpath(path)
                fact["dangling"] = not os.path.exists(path)
            try:
                seen = os.stat(path)
                fact["size"] = seen.st_size
                fact.update(outside(path, seen.st_size))
            except FileNotFoundError:
                continue
            except OSError as error:
                fact["error"] = error.strerror
                continue
            known = "" if self.want["again"] else self.cache.get(os.path.realpath(path), kind, seen)
            if known:
                fact.update(digest=known, cached=True)
            elif self.want["hash"]:
                waiting.append((name, seen))
                self.total += seen.st_size
        self.queue.extend(sorted(waiting, key=lambda one: -one[1].st_size))

    def read_all(self) -> None:
        threads = [
            threading.Thread(target=self.work, daemon=True) for _ in range(min(self.want["threads"], len(self.queue)))
        ]
        for thread in threads:
            thread.start()
        before, at, alive = 0, time.monotonic(), True
        while alive:
            for thread in threads:
                thread.join(TOLD_EVERY / len(threads))
            alive, now = any(thread.is_alive() for thread in threads), time.monotonic()
            rate = (self.done - before) / max(now - at, 1e-3)
            before, at = self.done, now
            tell(kind="progress", done=self.done, total=self.total, rate=rate)

    def work(self) -> None:
        buffer = memoryview(bytearray(BLOCK))
        while True:
            try:
                name, seen = self.queue.popleft()
            except IndexError:
                return
            path, kind = os.path.join(self.folder, name), self.kinds[name]
            try:
                digest = self.digest(path, kind, seen, buffer)
                after = os.stat(path)
            except OSError as error:
                self.facts[name]["error"] = error.strerror
                continue
            if identity(after) != identity(seen):
                self.facts[name]["error"] = "it changed while it was read"
                continue
            self.facts[name]["digest"] = digest
            self.cache.put(os.path.realpath(path), kind, seen, digest)

    def digest(self, path: str, kind: str, seen: os.stat_result, buffer: memoryview) -> str:
        made = hashlib.sha256() if kind == "sha256" else hashlib.sha1(b"blob %d\0" % seen.st_size)
        file = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            at = 0
            while True:
                got = os.preadv(file, [buffer], at)
                if not got:
                    return kind + ":" + made.hexdigest()
                made.update(buffer[:got])
                # what is read once must not push out what a server reads all the time
                os.posix_fadvise(file, at, got, os.POSIX_FADV_DONTNEED)
                at += got
                with self.lock:
                    self.done += got
        finally:
            os.close(file)


def came(seen: os.stat_result) -> int:
    """A copy has holes where nothing came yet."""
    return min(seen.st_size, seen.st_blocks * 512)


def part(folder: str, name: str) -> int:
    """Bytes of an unfinished download: ours, or one of the publisher's client."""
    sizes = [0]
    with suppress(OSError):
        parts = os.path.join(folder, ".sparkctl", "parts")
        sizes += [
            came(os.stat(os.path.join(parts, one)))
            for one in os.listdir(parts)
            if one.startswith(name.replace("/", "--") + ".") and one.endswith(".part")
        ]
    cache = os.path.join(folder, ".cache", "huggingface", "download", os.path.dirname(name))
    with suppress(OSError):
        sizes += [
            os.stat(os.path.join(cache, one)).st_size
            for one in os.listdir(cache)
            if one.startswith(os.path.basename(name) + ".") and one.endswith(".incomplete")
        ]
    return max(sizes)


def outside(path: str, size: int) -> Dict[str, Any]:
    """The first bytes; of a safetensors file also the size that its header asks for."""
    with open(path, "rb") as file:
        first = file.read(64)
        said: Dict[str, Any] = {"first": first.hex()}
        if not path.endswith(".safetensors") or len(first) < 8:
            return said
        length = struct.unpack("<Q", first[:8])[0]
        if length > LONGEST_HEADER or 8 + length > size:
            return said
        try:
            said["expected"] = 8 + length + max(tensors(path).values(), default=0)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            said["header"] = str(error) or type(error).__name__
    return said


def tensors(path: str) -> Dict[str, int]:
    """Every tensor's name, and where it ends."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        entries = json.loads(file.read(length))
    entries.pop("__metadata__", None)
    return {name: int(one["data_offsets"][1]) for name, one in entries.items()}


def indexed(folder: str) -> Dict[str, List[str]]:
    """Shard -> the tensors that the index puts there."""
    try:
        with open(os.path.join(folder, INDEX), encoding="utf-8") as file:
            weight_map = json.load(file)["weight_map"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    found: Dict[str, List[str]] = {}
    for name, shard in weight_map.items():
        found.setdefault(str(shard), []).append(name)
    return found


def against_index(files: Files) -> Optional[Dict[str, Any]]:
    """Both ways: what the index names and its shard lacks, what a shard holds and the index does not name."""
    shards = indexed(files.folder)
    if not shards:
        return None
    missing, surplus = [], []
    for shard, names in sorted(shards.items()):
        fact = files.facts.get(shard)
        if fact is None or fact.get("expected") is None:
            continue  # told as a file
        held = tensors(os.path.join(files.folder, shard))
        missing += ["%s, not in %s" % (name, shard) for name in names if name not in held]
        named = set(names)
        pads = files.want["pads"]
        surplus += ["%s in %s" % (name, shard) for name in held if name not in named and not name.startswith(pads)]
    return {
        "missing": missing[:SHOWN],
        "missing_count": len(missing),
        "surplus": surplus[:SHOWN],
        "surplus_count": len(surplus),
        "elsewhere": sorted(set(shards) - set(files.kinds))[:SHOWN],
    }


def begun(folder: str) -> int:
    """Bytes of all files that were begun and not ended."""
    parts, size = os.path.join(folder, ".sparkctl", "parts"), 0
    with suppress(OSError):
        size = sum(came(os.stat(os.path.join(parts, one))) for one in os.listdir(parts))
    return size


def room(folder: str) -> Dict[str, Any]:
    """What is free where the folder is, or will be."""
    there = os.path.abspath(folder)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    seen = os.statvfs(there)
    return {
        "path": os.path.realpath(folder),
        "present": os.path.isdir(folder),
        "free": seen.f_bavail * seen.f_frsize,
        # file systems without a table of inodes say 0 of 0
        "inodes": seen.f_favail if seen.f_files else None,
        "writable": os.access(there, os.W_OK),
        "begun": begun(folder),
    }


def main(want: Dict[str, Any]) -> None:
    files = Files(want)
    tell(kind="room", **room(files.folder))
    if want.get("record"):
        tell(kind="record", **record(want["record"]))
    files.look()
    if files.queue:
        files.read_all()
    for fact in files.facts.values():
        tell(kind="file", **fact)
    found = against_index(files)
    if found is not None:
        tell(kind="index", **found)


def record(path: str) -> Dict[str, Any]:
    """What a share says that it has brought here."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            said = json.load(file)
        return {"names": [str(one) for one in said["files"]], "made": bool(said["made"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {"names": None, "made": False}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    for one in asked if isinstance(asked, list) else [asked]:
        main(one)
