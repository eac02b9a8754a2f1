"""Read the headers of a model's safetensors files, and nothing else of them, and say how large what is. Runs on a node.

Argument: JSON {"model": folder}. Answer: JSON {"present": bool, "files": n,
"groups": [[NAME, first, last, count, bytes], ...], "problems": ["file: what", ...], "config": {...} | null}.

A group stands for equal layers first ... last (null, null where the name has no number), each with `count` tensors of
together `bytes` bytes. NAME has `#` for the layer and `*` for every further number, so that 190 000 tensors of a model
with many experts are told in a few hundred lines.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

LONGEST_HEADER = 100_000_000
LARGEST_CONFIG = 4 << 20
NUMBER = re.compile(r"(?<=[._])\d+(?=[._]|$)|^\d+(?=[._])")
Sums = Dict[Tuple[str, Optional[int]], List[int]]


def shards(folder: str) -> List[str]:
    """Files that an index names, else all; a part of a download or a copy for another program is none."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index, encoding="utf-8") as file:
            named = sorted(set(json.load(file).get("weight_map", {}).values()))
        if named:
            return named
    return sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))


def tensors(path: str) -> Iterator[Tuple[str, int]]:
    with open(path, "rb") as file:
        first = file.read(8)
        if len(first) < 8:
            raise ValueError("%d bytes in all" % len(first))
        length = struct.unpack("<Q", first)[0]
        if length > LONGEST_HEADER:
            raise ValueError("not a safetensors file, begins with %r" % first)
        text = file.read(length)
        size = os.fstat(file.fileno()).st_size
    if len(text) < length:
        raise ValueError("cut off inside its header")
    end = 0
    for name, entry in json.loads(text).items():
        if name != "__metadata__":
            begin, after = entry["data_offsets"]
            end = max(end, after)
            yield name, after - begin
    if size < 8 + length + end:
        raise ValueError("cut off: %d bytes of %d" % (size, 8 + length + end))


def group_of(name: str) -> Tuple[str, Optional[int]]:
    """`layers.3.experts.17.w1` -> (`layers.#.experts.*.w1`, 3)."""
    numbers = NUMBER.findall(name)
    if not numbers:
        return name, None
    plain = NUMBER.sub("*", name)
    return plain.replace("*", "#", 1), int(numbers[0])


def runs(sums: Sums) -> List[List[Any]]:
    """Neighbouring layers that are equal are told once."""
    found: List[List[Any]] = []
    for (name, layer), (count, size) in sorted(sums.items(), key=lambda one: (one[0][0], one[0][1] or 0)):
        last = found[-1] if found else None
        if layer is not None and last and [last[0], last[2], *last[3:]] == [name, layer - 1, count, size]:
            last[2] = layer
        else:
            found.append([name, layer, layer, count, size])
    return found


def look(folder: str) -> Dict[str, Any]:
    if not os.path.isdir(folder):
        return {"present": False, "files": 0, "groups": [], "problems": [], "config": None}
    sums: Sums = {}
    problems = []
    try:
        names = shards(folder)
    except (OSError, ValueError, AttributeError) as error:
        names, problems = [], ["model.safetensors.index.json: %s" % error]
    for name in names:
        try:
            for tensor, size in tensors(os.path.join(folder, name)):
                one = sums.setdefault(group_of(tensor), [0, 0])
                one[0] += 1
                one[1] += size
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            problems.append("%s: %s" % (name, getattr(error, "strerror", None) or error))
    return {
        "present": True,
        "files": len(names),
        "groups": runs(sums),
        "problems": problems,
        "config": config(os.path.join(folder, "config.json")),
    }


def config(path: str) -> Optional[Dict[str, Any]]:
    """Numbers and short texts of config.json, with one level of nesting; lists and long tables are left out."""
    try:
        with open(path, encoding="utf-8") as file:
            seen = json.loads(file.read(LARGEST_CONFIG))
    except (OSError, ValueError):
        return None
    return slim(seen, 2) if isinstance(seen, dict) else None


def slim(seen: Dict[str, Any], depth: int) -> Dict[str, Any]:
    kept: Dict[str, Any] = {}
    for key, value in seen.items():
        if isinstance(value, dict) and depth > 1:
            kept[key] = slim(value, depth - 1)
        elif value is None or isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) < 100):
            kept[key] = value
        elif key == "architectures" and isinstance(value, list):
            kept[key] = value[:4]
    return kept


if __name__ == "__main__":
    json.dump(look(os.path.realpath(os.path.expanduser(json.loads(sys.argv[1])["model"]))), sys.stdout)
