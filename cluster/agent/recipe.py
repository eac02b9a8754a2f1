"""List the files that go into an image, with modes and digests. Argument: {folder, file, under}; `~/` is the home.

`under` are the folders and files that count beside the Dockerfile `file`; null counts all. In a checkout only what git
knows counts, and what it does not know there is named.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import Any, Dict, Iterator, List, Optional


def git_names(folder: str, *which: str) -> Optional[List[str]]:
    """Names below the folder; None where there is no checkout. The folder may be another account's."""
    words = ["git", "-c", "safe.directory=*", "-C", folder, "ls-files", "-z", *which]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    names = [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]
    return names if done.returncode == 0 else None


def tracked(folder: str) -> Optional[List[str]]:
    """What git knows and what is still there; None in a folder of which git knows nothing."""
    return [name for name in git_names(folder) or () if os.path.lexists(os.path.join(folder, name))] or None


def walked(folder: str) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            yield os.path.relpath(os.path.join(place, name), folder)


def counts(name: str, file: str, under: Optional[List[str]]) -> bool:
    if under is None or name == file:
        return True
    return any(name == one or name.startswith(one + "/") for one in under)


def seen(folder: str, name: str) -> Dict[str, Any]:
    path = os.path.join(folder, name)
    if os.path.islink(path):
        content, mode = os.fsencode(os.readlink(path)), 0o120000
    else:
        with open(path, "rb") as file:
            content = file.read()
        mode = os.stat(path).st_mode & 0o777
    return {"path": name, "mode": mode, "digest": hashlib.sha256(content).hexdigest()}


def recipe(want: Dict[str, Any]) -> Dict[str, Any]:
    root = os.path.expanduser(want["folder"])
    known = tracked(root)
    names = [name for name in (walked(root) if known is None else known) if counts(name, want["file"], want["under"])]
    others = [] if known is None else git_names(root, "--others", "--exclude-standard") or []
    left = [name for name in others if counts(name, want["file"], want["under"])]
    return {"files": [seen(root, name) for name in names], "untracked": left}


if __name__ == "__main__":
    print(json.dumps(recipe(json.loads(sys.argv[1]))))
