"""A synthetic Engram table: the shard of a checkpoint, its packed file as the packer writes it, ids to look up."""

import json
import os
import random
import re
import struct
import subprocess
import sys
import sysconfig
import zlib
from contextlib import suppress
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import numpy as np
import torch
from spark_overlay import engram_layout
from spark_overlay.row_store import Engine, Options, RowStore, Table

from cluster.model.bundle import bundle
from cluster.weights.engram import Source
from cluster.weights.packed import PACKER, Packed, pack_file

ROOT = Path(__file__).resolve().parent.parent
ROW, PAGE = 264, 4096
MIB = 1 << 20


class SyntheticTable:
    """Layer 14's table, as large as asked for."""

    def __init__(self, folder: Path, gib: float) -> None:
        wanted = int(gib * 2**30 / ROW)
        self.config = SimpleNamespace(
            engram_layer_ids=[14],
            engram_vocab_size=wanted // 24,
            engram_compressed_vocab_size=99_092,
            engram_n_heads=8,
            engram_max_ngram_size=4,
        )
        (self.hashed,) = engram_layout.layer_hashes(self.config)
        self.rows = int(self.hashed.sizes.sum())
        self.table = Table(14, range(self.rows), self.rows)
        self.shard, self.packed = folder / "model.safetensors", folder / "engram-l14-r0of1.bin"
        self.weight_at = self.scale_at = 0

    @property
    def packed_bytes(self) -> int:
        return self.packed.stat().st_size

    def write_shard(self) -> None:
        name, weights = "layers.14.engram.embed", self.rows * 256
        entries = {
            f"{name}.weight": {"dtype": "F8_E4M3", "shape": [self.rows, 256], "data_offsets": [0, weights]},
            f"{name}.scale": {"dtype": "F8_E8M0", "shape": [self.rows, 8], "data_offsets": [weights, self.rows * ROW]},
        }
        header = json.dumps(entries).encode()
        self.weight_at = 8 + len(header)
        self.scale_at = self.weight_at + weights
        noise = np.random.default_rng(7).integers(0, 1 << 62, 64 * MIB // 8, np.uint64)
        with self.shard.open("wb", buffering=0) as file:
            file.write(struct.pack("<Q", len(header)) + header)
            for number, left in enumerate(range(self.rows * ROW, 0, -64 * MIB)):
                file.write((noise ^ np.uint64(number << 40 | number)).tobytes()[: min(left, 64 * MIB)])
                drop(file.fileno())

    def pack(self, threads: int, shard: Path | None = None) -> tuple[float, int]:
        """Seconds as the packer itself counts them, and the most memory it had. `shard`: a copy to read instead."""
        for path in self.packed.parent.glob(self.packed.name + "*"):
            path.unlink()
        wanted = Packed(14, range(self.rows), self.rows)
        place = Source(self.weight_at, self.scale_at)
        file = pack_file(wanted, PurePosixPath(shard or self.shard), place, PurePosixPath(self.packed))
        request = {"files": [file], "check": False, "threads": threads, "samples": 256, "gentle": False}
        program = bundle((ROOT / "cluster" / "agent" / f"{part}.py").read_bytes() for part in PACKER)
        argv = [sys.executable, "-I", "-", json.dumps(request | {"reserve": 1 << 30})]
        peak, last = 0, ""
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as packer:
            assert packer.stdin
            assert packer.stdout
            packer.stdin.write(program)
            packer.stdin.close()
            for line in packer.stdout:  # some a second at first, later one every four seconds
                last = line.decode()
                peak = max(peak, peak_of(packer.pid))
        said = json.loads(last or "{}")
        if packer.returncode or said.get("kind") != "done":
            sys.exit(f"the packer said: {said}")
        return float(said["seconds"]), peak

    def open(self, engine: Engine) -> RowStore:
        return RowStore.open_packed(self.packed, self.table, Options(engine=engine))


def peak_of(pid: int) -> int:
    with suppress(OSError, ValueError):  # it has just ended
        words = Path(f"/proc/{pid}/status").read_text(encoding="ascii").split()
        return int(words[words.index("VmHWM:") + 1]) * 1024
    return 0


def drop(descriptor: int) -> None:
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def drop_path(path: Path) -> None:
    with path.open("rb") as file:
        drop(file.fileno())


def uniform(table: SyntheticTable, count: int) -> torch.Tensor:
    return torch.randint(0, table.rows, (count,), dtype=torch.int32)


def zipf(table: SyntheticTable, count: int) -> torch.Tensor:
    ranks = np.random.default_rng().zipf(1.2, count) - 1
    return torch.from_numpy((ranks * 2654435761 % table.rows).astype(np.int32))


def text_rows(table: SyntheticTable, columns: range, tokens: int = 1_024) -> torch.Tensor:
    """A rank's columns of this Python's own sources, through the real hash. Pieces of words stand in for tokens."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    pieces: list[str] = []
    while len(pieces) < tokens:
        pieces += re.findall(r"\w{1,4}|\s+|[^\w\s]", random.choice(sources).read_text("utf-8", "replace"))
    ids = np.array([zlib.crc32(piece.lower().encode()) % 99_092 for piece in pieces[:tokens]])
    rows = engram_layout.hash_rows(table.hashed, ids, 2)
    return torch.from_numpy(rows[:, columns.start : columns.stop].copy()).flatten()
