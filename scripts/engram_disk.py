"""What other programs get out of the disk that a synthetic Engram table lies on: dd, fio, numpy.memmap."""

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from scripts.engram_table import MIB, PAGE, ROW, SyntheticTable, drop_path, uniform

READ, WRITE = ("if={shard}", "of=/dev/null", "iflag=direct"), ("if=/dev/zero", "of={out}", "oflag=direct", "conv=fsync")
COPY = ("if={shard}", "of={out}", "iflag=direct", "oflag=direct", "conv=fsync")
# Name -> the programs that run at the same time. A copy in one program reads and writes by turns.
KINDS: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType(
    {"read": (READ,), "write": (WRITE,), "copy": (COPY,), "both": (READ, WRITE)}
)


def dd(table: SyntheticTable, kinds: tuple[str, ...] = tuple(KINDS)) -> dict[str, float]:
    """Bytes per second that dd reads, writes, copies, and does of each when two of them read and write at once."""
    out = table.packed.with_suffix(".dd")
    count = min(512, table.shard.stat().st_size // (4 * MIB))
    speeds = {}
    for name in kinds:
        places = {"shard": table.shard, "out": out}
        speeds[name] = min(_at_once([[word.format(**places) for word in job] for job in KINDS[name]], count))
        out.unlink(missing_ok=True)
    return speeds


def _at_once(jobs: list[list[str]], count: int) -> list[float]:
    environment = dict(os.environ, LC_ALL="C")
    programs = [
        subprocess.Popen(["dd", "bs=4M", f"count={count}", *job], env=environment, stderr=subprocess.PIPE, text=True)
        for job in jobs
    ]
    speeds = []
    for program in programs:
        _, said = program.communicate()
        amount, took = re.search(r"(\d+) bytes.*, ([\d.e-]+) s,", said).groups()  # type: ignore[union-attr]
        speeds.append(int(amount) / float(took))
    return speeds


def fio(table: SyntheticTable, engine: str, depth: int) -> float:
    """Random direct 4 KiB reads per second."""
    what = f"--name=rows --filename={table.packed} --rw=randread --bs=4k --direct=1 --readonly --output-format=json"
    done = subprocess.run(
        ["fio", *what.split(), f"--ioengine={engine}", f"--iodepth={depth}", "--runtime=4", "--time_based"],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout)["jobs"][0]["read"]["iops"])


def memmap(table: SyntheticTable) -> float:
    """Rows per second of a plain gather on a cold file."""
    drop_path(table.packed)
    rows = np.memmap(table.packed, np.uint8, "r", offset=PAGE, shape=(table.rows, ROW))
    ids = uniform(table, 2_048).numpy()
    began = time.perf_counter()
    assert rows[ids].shape == (2_048, ROW)
    took = time.perf_counter() - began
    del rows
    drop_path(table.packed)
    return 2_048 / took
