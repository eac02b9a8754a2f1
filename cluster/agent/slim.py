"""Make a folder that holds a checkpoint's Engram tables and no more: links to shards, their index, config.json.

Argument: JSON {"source", "out", "shards": [name, ...], "index": {tensor: shard}, "check": bool}. Runs on a node.
Answer: JSON {"out", "made": [name, ...], "kept": [name, ...], "error": sentence or ""}; with `check` nothing is made,
and `made` are those that are missing or not right.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List

INDEX = "model.safetensors.index.json"


def is_linked(source: str, out: str) -> bool:
    try:
        return os.path.samestat(os.stat(source), os.stat(out))
    except OSError:
        return False


def link(source: str, out: str) -> None:
    """A hard link: it takes no room, and stands for the shard inside a container too."""
    temporary = "%s.%d" % (out, os.getpid())
    os.link(os.path.realpath(source), temporary)
    os.rename(temporary, out)
    if os.path.exists(temporary):  # a rename onto the same file does nothing
        os.unlink(temporary)


def holds(path: str, data: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(data) + 1) == data
    except OSError:
        return False


def write(path: str, data: bytes) -> None:
    temporary = "%s.%d" % (path, os.getpid())
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)


def texts(want: Dict[str, Any], source: str) -> Dict[str, bytes]:
    """The two small files, as they must be. vLLM would look for every shard that an index names."""
    with open(os.path.join(source, "config.json"), "rb") as file:
        config = file.read()
    index = {"metadata": {}, "weight_map": want["index"]}
    return {"config.json": config, INDEX: (json.dumps(index, indent=1, sort_keys=True) + "\n").encode()}


def slim(want: Dict[str, Any]) -> Dict[str, Any]:
    source, out = (os.path.abspath(os.path.expanduser(want[key])) for key in ("source", "out"))
    made: List[str] = []
    kept: List[str] = []
    if os.path.realpath(source) == os.path.realpath(out):  # nothing of the user's own folder is touched
        return {"out": out, "made": [], "kept": want["shards"], "error": ""}
    if not want["check"]:
        os.makedirs(out, exist_ok=True)
    for name in want["shards"]:
        pair = os.path.join(source, name), os.path.join(out, name)
        if is_linked(*pair):
            kept.append(name)
            continue
        made.append(name)
        if not want["check"]:
            link(*pair)
    for name, data in texts(want, source).items():
        path = os.path.join(out, name)
        if holds(path, data):
            kept.append(name)
            continue
        made.append(name)
        if not want["check"]:
            write(path, data)
    return {"out": out, "made": made, "kept": kept, "error": ""}


def main(want: Dict[str, Any]) -> Dict[str, Any]:
    try:
        return slim(want)
    except OSError as error:
        text = "%s: %s" % (error.filename or want["out"], error.strerror)
        return {"out": want["out"], "made": [], "kept": [], "error": text}


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
