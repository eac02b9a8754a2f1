"""Put a folder's files as hard links into a tree that is exported, or take trees away again. Runs on a node.

Argument: JSON {"source", "root", "tree"} or {"source", "root", "gone": [tree, ...], "folders": [folder, ...]}.
A tree gets its name when it is whole, and is never changed afterwards: clients may keep what they know of it. No byte
is copied. What is taken away are links, and files that were replaced in `source` since: one whose last link it is, and
whose name nothing has there, stays and is told. Of `folders` those are removed that are empty then.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
from typing import Any, Dict

from cluster.agent.links import lying


def publish(source: str, root: str, tree: str) -> None:
    made = os.path.join(root, "." + tree + ".part")
    os.makedirs(root, mode=0o755, exist_ok=True)
    shutil.rmtree(made, ignore_errors=True)
    os.mkdir(made, 0o755)
    try:
        for name in lying(source):
            there = os.path.join(made, name)
            os.makedirs(os.path.dirname(there), mode=0o755, exist_ok=True)
            os.link(os.path.realpath(os.path.join(source, name)), there)
        os.rename(made, os.path.join(root, tree))
    except OSError as error:
        shutil.rmtree(made, ignore_errors=True)
        if error.errno != errno.EXDEV:
            raise
        sys.exit(
            "%s lies on another file system than %s, and hard links do not reach across: leave NFS_EXPORT_ROOT empty, "
            "or set it to a folder on that file system; nothing was copied" % (os.path.realpath(source), root)
        )


def take_away(source: str, root: str, tree: str) -> None:
    top, kept = os.path.join(root, tree), []
    for base, _, names in os.walk(top, topdown=False):
        for name in names:
            path = os.path.join(base, name)
            place = os.path.relpath(path, top)
            if os.lstat(path).st_nlink > 1 or os.path.isfile(os.path.join(source, place)):
                os.unlink(path)
            else:
                kept.append(place)
        with contextlib.suppress(OSError):
            os.rmdir(base)
    if kept:
        sys.exit(
            "%s: %d files are nowhere else any more (%s), and stay there: move them back to %s, or remove them"
            % (top, len(kept), ", ".join(sorted(kept)[:3]), source)
        )


def main(want: Dict[str, Any]) -> None:
    os.umask(0o022)
    if "tree" in want:
        publish(want["source"], want["root"], want["tree"])
        return
    for tree in want["gone"]:
        take_away(want["source"], want["root"], tree)
    for folder in want["folders"]:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
