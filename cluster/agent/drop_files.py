"""Remove files that were copied to this node, and what of it is left over. Runs on a worker.

Argument: JSON {"folder", "files": [name, ...], "record": path or "", "made": bool}. With a record it is the end of the
copy: begun parts go too, then the record, and the folder if the copy made it and nothing else lies in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any, Dict

PARTS = os.path.join(".sparkctl", "parts")
ENDING = ".copy.part"


def place(folder: str, name: str) -> str:
    """Nothing outside of the folder is removed, whatever a name says."""
    if name.startswith("/") or ".." in name.split("/"):
        raise SystemExit("%r is no name of a file in the folder" % name)
    return os.path.join(folder, name)


def remove(folder: str, name: str) -> None:
    path = place(folder, name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    prune(os.path.dirname(path), folder)


def prune(path: str, folder: str) -> None:
    """Folders that are empty now, up to the folder itself and without it."""
    while path.startswith(folder + os.sep):
        try:
            os.rmdir(path)
        except OSError:
            return
        path = os.path.dirname(path)


def remove_parts(folder: str) -> None:
    parts = os.path.join(folder, PARTS)
    with contextlib.suppress(OSError):
        for name in os.listdir(parts):
            if name.endswith(ENDING):
                os.unlink(os.path.join(parts, name))
    prune(parts, folder)


def main(want: Dict[str, Any]) -> None:
    folder = os.path.expanduser(want["folder"]).rstrip("/")
    for name in want["files"]:
        remove(folder, name)
    if not want["record"]:
        return
    remove_parts(folder)
    if want["made"]:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    os.unlink(os.path.expanduser(want["record"]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
