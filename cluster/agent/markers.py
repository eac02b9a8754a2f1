"""Read the value of every EXL3 codebook marker of a pack. Runs on a node.

Argument: {"path": folder}. Answer: {"NAME:VALUE": [count, [tensor, ...]], ...}; NAME is mcg or mul1, VALUE unsigned,
and of the tensors the first five are named.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from typing import Any, Dict, Iterator, List, Tuple

NAMES = (".mcg", ".mul1")
TOLD = 5


def markers(path: str) -> Iterator[Tuple[str, int]]:
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        entries: Dict[str, Any] = json.loads(file.read(length))
        for name, entry in entries.items():
            if name.endswith(NAMES):
                begin, end = entry["data_offsets"]
                value = os.pread(file.fileno(), end - begin, 8 + length + begin)
                yield name, int.from_bytes(value, "little")


def look(folder: str) -> Dict[str, List[Any]]:
    found: Dict[str, List[Any]] = {}
    for file in sorted(os.listdir(folder)):
        if file.endswith(".safetensors"):
            for name, value in markers(os.path.join(folder, file)):
                one = found.setdefault("%s:%d" % (name.rpartition(".")[2], value), [0, []])
                one[0] += 1
                if len(one[1]) < TOLD:
                    one[1].append(name)
    return found


if __name__ == "__main__":
    json.dump(look(json.loads(sys.argv[1])["path"]), sys.stdout)
