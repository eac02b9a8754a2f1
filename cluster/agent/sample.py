"""Read samples of every file of a folder, the same ones on every node that is told the same seed. Runs on a node.

Argument: JSON {"folder", "seed": text, "samples": n}. Answer: JSON lines, one for each
file: {"name", "size", "read": bytes, "digest"} or {"name", "error"}, then
{"files": n, "kind": file system, "options": those of the mount the folder lies on, as the kernel tells them}.
Read are the first and the last 64 KiB and n blocks in between; a small file whole. Names come from the folder itself,
links are followed, and what begins with a dot is nobody's weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from typing import Any, Dict, List

from cluster.agent.links import lying
from cluster.agent.touch import mount_of

BLOCK = 64 * 1024
SMALL = 4 * 1024 * 1024


def places(name: str, size: int, seed: str, samples: int) -> List[int]:
    """Offsets of the blocks. The seed is new each time, so that nobody can have kept the right answer."""
    if size <= SMALL:
        return list(range(0, size, BLOCK))
    chosen = random.Random(f"{seed} {name} {size}")
    return sorted({0, size - BLOCK, *(chosen.randrange(size - BLOCK) for _ in range(samples))})


def sampled(folder: str, name: str, want: Dict[str, Any]) -> Dict[str, Any]:
    path = os.path.join(folder, name)
    made, read = hashlib.sha256(), 0
    try:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            for place in places(name, size, want["seed"], want["samples"]):
                data = os.pread(file.fileno(), BLOCK, place)
                made.update(b"%d " % place)
                made.update(data)
                read += len(data)
    except OSError as error:
        return {"name": name, "error": error.strerror or str(error)}
    return {"name": name, "size": size, "read": read, "digest": made.hexdigest()}


def main(want: Dict[str, Any]) -> None:
    folder, count = os.path.expanduser(want["folder"]), 0
    for name in lying(folder):
        print(json.dumps(sampled(folder, name, want)), flush=True)
        count += 1
    _, kind, options = mount_of(os.path.realpath(folder))
    print(json.dumps({"files": count, "kind": kind, "options": options}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
