"""Keep a node's compiled graphs only for what they were compiled of. Runs on a node, before its container is created.

Argument: JSON {"folders": [...], "files": [...], "said": {name: value}}. `folders` may be written by the container and
are made where they are missing; of `files` the content counts, `said` counts as it stands. When all of that differs
from the stamp in a folder, or none is there, every `torch_compile_cache` below it is removed and the stamp written
anew. Answer: JSON {"removed": [...]}.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from typing import Any, Iterator

STAMP, GRAPHS = ".sparkctl-graphs", "torch_compile_cache"


def stamp(want: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(want["said"], sort_keys=True).encode())
    for path in sorted(want["files"]):
        if os.path.isfile(path):  # a folder's content is the pack's, which a graph does not hold
            with open(path, "rb") as file:
                digest.update(path.encode() + b"\0" + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def graphs(folder: str) -> Iterator[str]:
    for where, names, _ in os.walk(folder):
        if GRAPHS in names:
            names.remove(GRAPHS)
            yield os.path.join(where, GRAPHS)


def renew(folder: str, wanted: str) -> list[str]:
    """The stamp is written last: what is cut off before that is done again."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, STAMP)
    if os.path.exists(path):
        with open(path, encoding="ascii") as file:
            if file.read().strip() == wanted:
                return []
    removed = list(graphs(folder))
    for one in removed:
        shutil.rmtree(one)
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(wanted + "\n")
    os.replace(path + ".new", path)
    return removed


def main() -> None:
    want = json.loads(sys.argv[1])
    wanted = stamp(want)
    try:
        removed = [path for folder in want["folders"] for path in renew(folder, wanted)]
    except OSError as error:
        at = error.filename or "?"
        sys.exit("%s: %s; the container's root wrote it: sudo rm -rf %s" % (at, error.strerror, at))
    json.dump({"removed": removed}, sys.stdout)


if __name__ == "__main__":
    main()
