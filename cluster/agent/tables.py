"""Say which Engram tables lie in some folders, and which packed files in another. Runs on a node, changes nothing.

Argument: JSON {"folders": [folder, ...], "out": folder or ""}.
Answer: JSON {"machine": boot id, "folders": [{"path", "present", "network": bool, "device", "names": [...],
"config": {engram_...: value} | null, "index": {tensor: shard} | null, "full": whether the index names more than tables,
"shards": {name: {"size", "header": base64 of the first bytes, all of the header if it is small}}}, ...],
"out": {"path", "present", "device", "free", "writable", "direct": bool | null,
"files": [{"name", "size", "first": base64 of 4096 bytes, "part": bytes of an unfinished one, "proved": whether it is
the file whose checksums were taken, null where nobody took any}, ...]} | null}.
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import re
import struct
import sys
from typing import Any, Dict, Optional

EMBED = ".engram.embed."
INDEX = "model.safetensors.index.json"
LARGEST_HEADER = 4 << 20
LARGEST_TEXT = 256 << 20
PAGE = 4096
PACKED = re.compile(r"(engram-l\d+-r\d+of\d+\.bin)(\.part)?")
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "lustre")


def filesystem(path: str) -> str:
    """The kind of file system that holds a path, by the longest mount point above it."""
    best, kind = "", ""
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
        for line in file:
            _, point, name = line.split()[:3]
            point = point.encode().decode("unicode_escape") if "\\" in point else point
            if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
                best, kind = point, name
    return kind


def text_of(path: str) -> Any:
    """What a JSON file holds; None when there is none that can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.loads(file.read(LARGEST_TEXT))
    except (OSError, ValueError):
        return None


def engram_config(path: str) -> Optional[Dict[str, Any]]:
    seen = text_of(path)
    if not isinstance(seen, dict):
        return None
    inner = seen.get("text_config")
    both = dict(seen, **inner) if isinstance(inner, dict) else seen
    return {key: value for key, value in both.items() if key.startswith("engram_")}


def first_bytes(path: str) -> Dict[str, Any]:
    with open(path, "rb") as file:
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        if length <= LARGEST_HEADER:
            first += file.read(length)
        return {"size": os.fstat(file.fileno()).st_size, "header": base64.b64encode(first).decode()}


def look_at(path: str) -> Dict[str, Any]:
    path = os.path.realpath(os.path.expanduser(path))
    if not os.path.isdir(path):
        return {"path": path, "present": False}
    weights = (text_of(os.path.join(path, INDEX)) or {}).get("weight_map")
    index = {name: shard for name, shard in weights.items() if EMBED in name} if weights is not None else None
    shards = {}
    for name in sorted(set((index or {}).values())):
        try:
            shards[name] = first_bytes(os.path.join(path, name))
        except OSError:
            continue
    return {
        "path": path,
        "present": True,
        "network": filesystem(path) in NETWORK,
        "device": os.stat(path).st_dev,
        "names": sorted(os.listdir(path))[:4096],
        "config": engram_config(os.path.join(path, "config.json")),
        "index": index,
        "full": weights is not None and any(EMBED not in name for name in weights),
        "shards": shards,
    }


def look_into(path: str) -> Dict[str, Any]:
    """Where packed files go. A folder that does not exist yet is judged by the nearest one above that does."""
    path = os.path.abspath(os.path.expanduser(path))
    there = path
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    numbers = os.statvfs(there)
    found = (PACKED.fullmatch(name) for name in (os.listdir(path) if there == path else ()))
    files = [packed(os.path.join(path, name)) for name in sorted({one.group(1) for one in found if one})]
    return {
        "path": path,
        "present": there == path,
        "device": os.stat(there).st_dev,
        "free": numbers.f_bavail * numbers.f_frsize,
        "writable": os.access(there, os.W_OK),
        "direct": next((reads_directly(os.path.join(path, one["name"])) for one in files if one["size"]), None),
        "files": files,
    }


def packed(path: str) -> Dict[str, Any]:
    first, size, part, proved = b"", None, 0, None
    try:
        with open(path, "rb") as file:
            first, seen = file.read(PAGE), os.fstat(file.fileno())
        size, proved = seen.st_size, is_proved(path, seen)
    except FileNotFoundError:
        pass  # only a part of it is there
    except OSError:
        size = 0
    try:
        part = os.stat(path + ".part").st_blocks * 512
    except OSError:
        part = 0
    name = os.path.basename(path)
    first_text = base64.b64encode(first).decode()
    return {"name": name, "size": size, "first": first_text, "part": part, "proved": proved}


def is_proved(path: str, seen: os.stat_result) -> Optional[bool]:
    """Whether it was written to by nobody since the packer had all its checksums."""
    kept = text_of(path + ".sums")
    if not isinstance(kept, dict):
        return None
    return kept.get("proved") == {"inode": seen.st_ino, "size": seen.st_size, "mtime_ns": seen.st_mtime_ns}


def reads_directly(path: str) -> bool:
    """Whether one aligned page can be read past the page cache, as the row store will want to."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return False
    try:
        with mmap.mmap(-1, PAGE) as page:
            os.preadv(file, [page], 0)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def machine() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def main(want: Dict[str, Any]) -> Dict[str, Any]:
    return {
        "machine": machine(),
        "folders": [look_at(folder) for folder in want["folders"]],
        "out": look_into(want["out"]) if want["out"] else None,
    }


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
