"""Say what lies in a folder and how much room its disk has. Runs on a node.

Argument: {"path": folder}. Answer: {"path": real path, "present": bool, "free": bytes, "writable": bool,
"entries": [[name, kind, bytes, target, inode, real path], ...]}. `kind` is file, folder, dangling (a link to nothing)
or other; `target` is the link's text, or empty. A folder that is not there yet has the room of the one above it.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import Any, Dict, List


def entry(one: os.DirEntry[str]) -> List[Any]:
    target = os.readlink(one.path) if one.is_symlink() else ""
    real = os.path.realpath(one.path)
    try:
        seen = one.stat()
    except OSError:
        return [one.name, "dangling", 0, target, 0, real]
    kind = "file" if stat.S_ISREG(seen.st_mode) else "folder" if stat.S_ISDIR(seen.st_mode) else "other"
    return [one.name, kind, seen.st_size, target, seen.st_ino, real]


def look(path: str) -> Dict[str, Any]:
    path = os.path.realpath(os.path.expanduser(path))
    present = os.path.isdir(path)
    entries: List[List[Any]] = []
    if present:
        with os.scandir(path) as found:
            entries = sorted(entry(one) for one in found)
    above = path
    while not os.path.isdir(above):
        above = os.path.dirname(above)
    disk = os.statvfs(above)
    return {
        "path": path,
        "present": present,
        "free": disk.f_bavail * disk.f_frsize,
        "writable": os.access(above, os.W_OK),
        "entries": entries,
    }


if __name__ == "__main__":
    json.dump(look(json.loads(sys.argv[1])["path"]), sys.stdout)
