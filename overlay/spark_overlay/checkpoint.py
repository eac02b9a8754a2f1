"""Where a checkpoint keeps an Engram table: the shard, and the bytes at which weight and scale begin."""

import json
import struct
from dataclasses import dataclass
from pathlib import Path

_LONGEST = 100_000_000
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class TensorPlaces:
    shard: Path
    weight_at: int
    scale_at: int


def find_table(folder: Path, layer: int, rows: int, width: int) -> TensorPlaces:
    """Raises ValueError when the folder does not hold this table."""
    names = [f"layers.{layer}.engram.embed.{part}" for part in ("weight", "scale")]
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
    shards = {index.get(name) for name in names}
    if len(shards) != 1 or None in shards:
        raise ValueError(f"{folder / INDEX} names no single shard for the Engram table of layer {layer}")
    shard = folder / shards.pop()
    with shard.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > _LONGEST:
            raise ValueError(f"{shard} is not a safetensors file")
        header = json.loads(file.read(length))
    wanted = (("F8_E4M3", [rows, width]), ("F8_E8M0", [rows, width // 32]))
    for name, kind in zip(names, wanted, strict=True):
        seen = header.get(name, {})
        if (seen.get("dtype"), seen.get("shape")) != kind:
            raise ValueError(f"{shard}: {name} is {seen or 'absent'}, must be {kind}")
    weight_at, scale_at = (8 + length + header[name]["data_offsets"][0] for name in names)
    return TensorPlaces(shard, weight_at, scale_at)
