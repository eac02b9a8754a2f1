"""The files of a folder of weights as they really lie, links followed. A part of programs that run on a node."""

from __future__ import annotations

import os
from typing import Dict, Iterator, List


def lying(folder: str) -> Iterator[str]:
    """Names below the folder; what begins with a dot is nobody's weights."""
    for base, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield os.path.relpath(os.path.join(base, name), folder)


def listing(folder: str) -> Dict[str, List[int]]:
    """Name -> device, inode, size, time of the last change in ns, mode. All -1 for a link that leads nowhere."""
    found = {}
    for name in lying(folder):
        try:
            seen = os.stat(os.path.join(folder, name))
        except OSError:
            found[name] = [-1] * 5
            continue
        found[name] = [seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_mode & 0o7777]
    return found
