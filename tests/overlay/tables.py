"""Synthetic Engram tables: a shard as a checkpoint has it, and the packed files made from it without our packer."""

import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

WEIGHT, SCALE, ROW, PAGE = 256, 8, 264, 4096


@dataclass(frozen=True)
class Shard:
    path: Path
    layer: int
    weight: np.ndarray
    scale: np.ndarray
    weight_at: int
    scale_at: int

    @property
    def rows(self) -> np.ndarray:
        return np.concatenate([self.weight, self.scale], axis=1)


def random_rows(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Any byte but the two that mean "not a number", and scales around one, as a checkpoint has them."""
    generator = np.random.default_rng(seed)
    weight = generator.integers(0, 256, (rows, WEIGHT), np.uint8)
    weight[(weight & 0x7F) == 0x7F] = 0x55
    return weight, generator.integers(118, 130, (rows, SCALE), np.uint8)


def write_shard(path: Path, layer: int, rows: int, seed: int = 5) -> Shard:
    weight, scale = random_rows(rows, seed)
    name = f"layers.{layer}.engram.embed"
    other = b"\x5a" * 333  # whatever else the shard holds; it leaves the tables unaligned
    entries, at = {}, 0
    for key, dtype, shape, size in (
        (f"layers.{layer}.engram.q_weight", "U8", [len(other)], len(other)),
        (f"{name}.weight", "F8_E4M3", [rows, WEIGHT], weight.size),
        (f"{name}.scale", "F8_E8M0", [rows, SCALE], scale.size),
    ):
        entries[key] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(entries).encode()
    with path.open("wb") as file:
        for part in (struct.pack("<Q", len(header)), header, other, weight.tobytes(), scale.tobytes()):
            file.write(part)
    start = 8 + len(header) + len(other)
    return Shard(path, layer, weight, scale, start, start + weight.size)


def dense(shard: Shard, rows: range) -> bytes:
    header = b"DSV1EN41" + struct.pack("<5Q", shard.layer, rows.start, rows.stop, len(shard.weight), ROW)
    packed: bytes = shard.rows[rows.start : rows.stop].tobytes()
    return header.ljust(PAGE, b"\0") + packed


def paged(shard: Shard, rows: range) -> bytes:
    def sealed(page: bytes) -> bytes:
        page = page.ljust(PAGE - 4, b"\0")
        return page + struct.pack("<I", zlib.crc32(page))

    pages = [sealed(b"SPKPAGE1" + struct.pack("<6Q", shard.layer, rows.start, rows.stop, len(shard.weight), ROW, 15))]
    for number, start in enumerate(range(rows.start, rows.stop, 15)):
        part = shard.rows[start : min(start + 15, rows.stop)].tobytes()
        pages.append(sealed(part.ljust(15 * ROW, b"\0") + struct.pack("<Q", number)))
    return b"".join(pages)
