"""List the files of an image's recipe with their modes and digests. Argument: the folder; `~/` is the node's home."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import Any, Dict, Iterator, List, Optional


def tracked(folder: str) -> Optional[List[str]]:
    """What git knows of the folder; None where there is no checkout."""
    try:
        done = subprocess.run(
            ["git", "-C", folder, "ls-files", "-z"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    names = [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]
    return names if done.returncode == 0 and names else None


def walked(folder: str) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            yield os.path.relpath(os.path.join(place, name), folder)


def seen(folder: str, name: str) -> Dict[str, Any]:
    path = os.path.join(folder, name)
    if os.path.islink(path):
        content, mode = os.fsencode(os.readlink(path)), 0o120000
    else:
        with open(path, "rb") as file:
            content = file.read()
        mode = os.stat(path).st_mode
    return {"path": name, "mode": mode & 0o777, "digest": hashlib.sha256(content).hexdigest()}


if __name__ == "__main__":
    root = os.path.expanduser(json.loads(sys.argv[1]))
    names = tracked(root)
    print(json.dumps([seen(root, name) for name in (walked(root) if names is None else names)]))
