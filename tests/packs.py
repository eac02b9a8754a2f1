"""Small packs of weights for tests: shards written by hand, so that every offset is what a test says."""

import json
import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MUL1, MCG = -2082680531, -877912083
SIZES = {"U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I16": 2, "F16": 2, "BF16": 2, "I32": 4, "F32": 4}
Tensors = Mapping[str, tuple[str, tuple[int, ...], bytes]]


def noise(dtype: str, shape: tuple[int, ...], seed: str) -> bytes:
    """Bytes that depend on the seed alone."""
    count = SIZES[dtype]
    for one in shape:
        count *= one
    return random.Random(seed).randbytes(count)


def tensors(**shapes: tuple[Any, ...]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """`tensors(a=("F16", 4, 4))`; `__` in a name stands for a dot."""
    made = {}
    for key, (dtype, *shape) in shapes.items():
        name = key.replace("__", ".")
        made[name] = (dtype, tuple(shape), noise(dtype, tuple(shape), name))
    return made


def shard_bytes(content: Tensors, metadata: Mapping[str, str] | None = None, pad: int = 0) -> bytes:
    """A shard as the library would write it, but for the padding: `pad` blanks follow the header, no more."""
    tree: dict[str, Any] = {"__metadata__": metadata} if metadata is not None else {}
    at = 0
    for name, (dtype, shape, data) in content.items():
        tree[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(tree, separators=(",", ":")).encode() + b" " * pad
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in content.values())


def odd(content: Tensors, off: int = 1) -> bytes:
    """The shard with its data beginning `off` bytes beyond the grid of 64."""
    bare = len(shard_bytes(content)) - sum(len(data) for _, _, data in content.values())
    return shard_bytes(content, pad=(off - bare) % 64)


def write_shard(path: Path, content: Tensors, *, off: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(odd(content, off))
    return path


def linear(name: str, rows: int, columns: int, bits: int, marker: str = "mul1") -> dict[str, Any]:
    """An EXL3 linear layer: trellis, sign vectors and the codebook's marker."""
    value = struct.pack("<i", {"mul1": MUL1, "mcg": MCG}[marker])
    return {
        f"{name}.trellis": ("I16", (shape := (rows // 16, columns // 16, 16 * bits)), noise("I16", shape, name)),
        f"{name}.suh": ("F16", (rows,), noise("F16", (rows,), name + "u")),
        f"{name}.svh": ("F16", (columns,), noise("F16", (columns,), name + "v")),
        f"{name}.{marker}": ("I32", (), value),
    }


def index(folder: Path) -> None:
    """`model.safetensors.index.json` of what lies in the folder."""
    where: dict[str, str] = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        where |= {name: path.name for name in json.loads(data[8 : 8 + length]) if name != "__metadata__"}
    text = json.dumps({"metadata": {"total_size": 0}, "weight_map": where})
    (folder / "model.safetensors.index.json").write_text(text)
