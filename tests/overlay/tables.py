"""Synthetic Engram tables: a shard as a checkpoint has it, and the packed files made from it without our packer."""

import json
import random
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

WEIGHT, SCALE, ROW, PAGE = 256, 8, 264, 4096
# No byte that e4m3 reads as "not a number", and scales around one, as a checkpoint has them.
_WEIGHT_BYTES = bytes(byte if byte & 0x7F != 0x7F else 0x55 for byte in range(256))
_SCALE_BYTES = bytes(118 + byte % 12 for byte in range(256))


@dataclass(frozen=True)
class Shard:
    path: Path
    layer: int
    total: int
    weight: bytes
    scale: bytes
    weight_at: int
    scale_at: int

    def row(self, number: int) -> bytes:
        weight = self.weight[number * WEIGHT : (number + 1) * WEIGHT]
        return weight + self.scale[number * SCALE : (number + 1) * SCALE]


def write_shard(path: Path, layer: int, rows: int, seed: int = 5) -> Shard:
    chance = random.Random(seed)
    weight = chance.randbytes(rows * WEIGHT).translate(_WEIGHT_BYTES)
    scale = chance.randbytes(rows * SCALE).translate(_SCALE_BYTES)
    name = f"layers.{layer}.engram.embed"
    other = b"\x5a" * 333  # whatever else the shard holds; it leaves the tables unaligned
    entries, at = {}, 0
    for key, dtype, shape, size in (
        (f"layers.{layer}.engram.q_weight", "U8", [len(other)], len(other)),
        (f"{name}.weight", "F8_E4M3", [rows, WEIGHT], len(weight)),
        (f"{name}.scale", "F8_E8M0", [rows, SCALE], len(scale)),
    ):
        entries[key] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(entries).encode()
    path.write_bytes(b"".join((struct.pack("<Q", len(header)), header, other, weight, scale)))
    start = 8 + len(header) + len(other)
    return Shard(path, layer, rows, weight, scale, start, start + len(weight))


def packed(layout: str, shard: Shard, rows: range) -> bytes:
    return dense(shard, rows) if layout == "dense" else paged(shard, rows)


def dense(shard: Shard, rows: range) -> bytes:
    header = b"DSV1EN41" + struct.pack("<5Q", shard.layer, rows.start, rows.stop, shard.total, ROW)
    return header.ljust(PAGE, b"\0") + b"".join(shard.row(number) for number in rows)


def paged(shard: Shard, rows: range) -> bytes:
    def sealed(page: bytes) -> bytes:
        page = page.ljust(PAGE - 4, b"\0")
        return page + struct.pack("<I", zlib.crc32(page))

    pages = [sealed(b"SPKPAGE1" + struct.pack("<6Q", shard.layer, rows.start, rows.stop, shard.total, ROW, 15))]
    for number, start in enumerate(range(rows.start, rows.stop, 15)):
        part = b"".join(shard.row(row) for row in range(start, min(start + 15, rows.stop)))
        pages.append(sealed(part.ljust(15 * ROW, b"\0") + struct.pack("<Q", number)))
    return b"".join(pages)
