#!/usr/bin/env python3
"""Pack a synthetic Engram table and look rows up, beside dd, fio, numpy.memmap and a pool of threads on the same disk.

    .venv-vllm/bin/python scripts/bench_engram.py [--gib N] [--folder DIR] [--rounds N] [--plot FILE.svg] [--prove N]

Every round measures everything once, so that a disk shared with others is shared alike; medians count. `--prove N`
compares N random rows and every boundary row with a plain gather, bit by bit. The last line is JSON.
Needs numpy, torch, fio, and room for twice the table.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
import zlib
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "overlay")]

from spark_overlay import engram_layout  # noqa: E402  # found only after the line above
from spark_overlay.row_store import Engine, Options, RowStore, Table  # noqa: E402

from cluster.runtime.bundle import bundle  # noqa: E402
from cluster.weights.engram import Source  # noqa: E402
from cluster.weights.packed import PACKER, Packed, pack_file  # noqa: E402

ROW, PAGE, DEPTH = 264, 4096, 192  # the row store's own
PREFILL, DECODE = 12_288, 48  # rows of a rank: a chunk of 1,024 tokens, four tokens
MIB = 1 << 20


class Bench:
    """A synthetic checkpoint, its packed file, and the figures of all rounds."""

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
        self.figures: dict[str, list[float]] = {}

    def note(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(value)

    def median(self, name: str) -> float:
        return statistics.median(self.figures[name])

    def write_shard(self) -> None:
        name, weights = "layers.14.engram.embed", self.rows * 256
        entries = {
            f"{name}.weight": {"dtype": "F8_E4M3", "shape": [self.rows, 256], "data_offsets": [0, weights]},
            f"{name}.scale": {"dtype": "F8_E8M0", "shape": [self.rows, 8], "data_offsets": [weights, self.rows * ROW]},
        }
        header = json.dumps(entries).encode()
        self.weight_at = 8 + len(header)
        self.scale_at = self.weight_at + weights
        chance = np.random.default_rng(7)
        with self.shard.open("wb", buffering=0) as file:
            file.write(struct.pack("<Q", len(header)) + header)
            for left in range(self.rows * ROW, 0, -64 * MIB):
                size = min(left, 64 * MIB)
                file.write(chance.integers(0, 1 << 63, size // 8 + 1, np.int64).tobytes()[:size])
                drop(file.fileno())

    def pack(self) -> float:
        """Seconds, as the packer itself counts them."""
        for path in self.packed.parent.glob(self.packed.name + "*"):
            path.unlink()
        request = {
            "files": [
                pack_file(
                    Packed(14, range(self.rows), self.rows),
                    PurePosixPath(self.shard),
                    Source(self.weight_at, self.scale_at),
                    PurePosixPath(self.packed),
                )
            ],
            "check": False,
            "threads": 4,
            "samples": 256,
            "gentle": False,
            "reserve": 1 << 30,
        }
        program = bundle((ROOT / "cluster" / "agent" / f"{part}.py").read_bytes() for part in PACKER).decode()
        argv = [sys.executable, "-I", "-", json.dumps(request)]
        done = subprocess.run(argv, input=program, capture_output=True, text=True, check=False)
        last = json.loads(done.stdout.splitlines()[-1])
        if done.returncode or last["kind"] != "done":
            sys.exit(f"the packer said: {last} {done.stderr}")
        return float(last["seconds"])

    def open(self, engine: Engine) -> RowStore:
        return RowStore.open_packed(self.packed, self.table, Options(engine=engine))


def drop(descriptor: int) -> None:
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def drop_path(path: Path) -> None:
    with path.open("rb") as file:
        drop(file.fileno())


def dd(bench: Bench) -> tuple[float, float, float]:
    """Bytes per second that dd reads, that it writes, and that it does of each when it does both: what a copy can."""
    target = bench.packed.with_suffix(".dd")
    count = min(512, bench.shard.stat().st_size // (4 * MIB))
    reading = [f"if={bench.shard}", "of=/dev/null", "iflag=direct"]
    writing = ["if=/dev/zero", f"of={target}", "oflag=direct", "conv=fsync"]
    (read,), (write,) = dd_at_once([reading], count), dd_at_once([writing], count)
    both = min(dd_at_once([reading, writing], count))
    target.unlink()
    return read, write, both


def dd_at_once(jobs: list[list[str]], count: int) -> list[float]:
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


def fio(bench: Bench, engine: str) -> float:
    """Random direct 4 KiB reads per second at the same depth."""
    what = f"--name=rows --filename={bench.packed} --rw=randread --bs=4k --direct=1 --readonly --output-format=json"
    done = subprocess.run(
        ["fio", *what.split(), f"--ioengine={engine}", f"--iodepth={DEPTH}", "--runtime=4", "--time_based"],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout)["jobs"][0]["read"]["iops"])


def uniform(bench: Bench, count: int) -> torch.Tensor:
    return torch.randint(0, bench.rows, (count,), dtype=torch.int32)


def zipf(bench: Bench, count: int) -> torch.Tensor:
    ranks = np.random.default_rng().zipf(1.2, count) - 1
    return torch.from_numpy((ranks * 2654435761 % bench.rows).astype(np.int32))


def text_rows(bench: Bench, columns: range, tokens: int = 1_024) -> torch.Tensor:
    """A rank's columns of this Python's own sources, through the real hash. Pieces of words stand in for tokens."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    pieces: list[str] = []
    while len(pieces) < tokens:
        pieces += re.findall(r"\w{1,4}|\s+|[^\w\s]", random.choice(sources).read_text("utf-8", "replace"))
    ids = np.array([zlib.crc32(piece.lower().encode()) % 99_092 for piece in pieces[:tokens]])
    rows = engram_layout.hash_rows(bench.hashed, ids, 2)
    return torch.from_numpy(rows[:, columns.start : columns.stop].copy()).flatten()


def gather_in_turn(
    bench: Bench, stores: dict[str, RowStore], batch: int, seconds: float, kind: str
) -> dict[str, float]:
    """Rows per second of each store with uniform ids, batch by batch in turn; notes latencies and processor time."""
    weights = torch.empty(batch, 256, dtype=torch.float8_e4m3fn)
    scales = torch.empty(batch, 8, dtype=torch.uint8)
    times: dict[str, list[float]] = {name: [] for name in stores}
    used = dict.fromkeys(stores, 0.0)
    for store in stores.values():
        store.gather(uniform(bench, batch), weights, scales)
    while sum(map(sum, times.values())) < seconds:
        for name, store in stores.items():
            ids = uniform(bench, batch)
            processor, began = time.process_time(), time.perf_counter()
            store.gather(ids, weights, scales)
            times[name].append(time.perf_counter() - began)
            used[name] += time.process_time() - processor
    rates = {}
    for name, taken in times.items():
        rates[name] = batch / statistics.median(taken)
        bench.note(f"{name}_{kind}_rows_per_s", rates[name])
        bench.note(f"{name}_{kind}_cpu_us_per_row", used[name] / len(taken) / batch * 1e6)
        for share in (50, 99):
            bench.note(f"{name}_{kind}_ms_p{share}", float(np.percentile(taken, share)) * 1e3)
    return rates


def memmap(bench: Bench) -> float:
    """Rows per second of a plain gather on a cold file."""
    drop_path(bench.packed)
    rows = np.memmap(bench.packed, np.uint8, "r", offset=PAGE, shape=(bench.rows, ROW))
    ids = uniform(bench, 2_048).numpy()
    began = time.perf_counter()
    assert rows[ids].shape == (2_048, ROW)
    took = time.perf_counter() - began
    del rows
    drop_path(bench.packed)
    return 2_048 / took


def measure_round(bench: Bench, chosen: Engine, fio_engine: str) -> None:
    read, write, both = dd(bench)
    took = bench.pack()
    bench.note("pack_bytes_per_s", bench.packed.stat().st_size / took)
    bench.note("dd_read_bytes_per_s", read)
    bench.note("dd_write_bytes_per_s", write)
    bench.note("dd_both_bytes_per_s", both)
    bench.note("pack_over_disk", bench.packed.stat().st_size / took / min(read, write))
    bench.note("pack_over_dd_both", bench.packed.stat().st_size / took / both)
    drop_path(bench.packed)
    with bench.open(chosen) as store, bench.open(Engine.THREADS) as threads:
        stores = {"store": store, "threads96": threads}
        gather_in_turn(bench, stores, DECODE, 1.0, "decode")
        rates = gather_in_turn(bench, stores, PREFILL, 6.0, "prefill")
    bench.note("fio_iops", fio(bench, fio_engine))
    plain = memmap(bench)
    bench.note("memmap_rows_per_s", plain)
    bench.note("rows_over_fio", rates["store"] / bench.figures["fio_iops"][-1])
    bench.note("rows_over_memmap", rates["store"] / plain)
    bench.note("rows_over_threads96", rates["store"] / rates["threads96"])
    ours, theirs = (bench.figures[f"{name}_prefill_cpu_us_per_row"][-1] for name in ("store", "threads96"))
    bench.note("cpu_per_row_over_threads96", ours / theirs)


def measure_streams(bench: Bench, chosen: Engine) -> dict[str, dict[str, float]]:
    """What each kind of ids costs: reads that are needed, bytes read per useful byte, rows per second."""
    streams: dict[str, Any] = {
        "uniform": lambda: uniform(bench, PREFILL),
        "zipf": lambda: zipf(bench, PREFILL),
        "text_rank0": lambda: text_rows(bench, range(12)),
        "text_rank1": lambda: text_rows(bench, range(12, 24)),
    }
    found = {}
    for name, draw in streams.items():
        with bench.open(chosen) as store:
            for _ in range(12):
                store.gather(draw())
            seen = store.statistics()
        found[name] = {
            "rows_per_s": round(seen.ids / seen.nanoseconds * 1e9),
            "reads_per_row": round(seen.reads / seen.ids, 3),
            "reads_per_s": round(seen.reads / seen.nanoseconds * 1e9),
            "bytes_per_useful_byte": round(seen.bytes / (seen.ids * ROW), 2),
            "slowest_batch_ms": round(seen.slowest / 1e6, 1),
        }
    return found


def prove(bench: Bench, chosen: Engine, count: int) -> dict[str, Any]:
    """Equal bits for random rows, for the first and last row of every column's range, and for a block of 4,096."""
    weights = np.memmap(bench.shard, np.uint8, "r", offset=bench.weight_at, shape=(bench.rows, 256))
    scales = np.memmap(bench.shard, np.uint8, "r", offset=bench.scale_at, shape=(bench.rows, 8))
    starts = bench.hashed.offsets.tolist()
    edges = [edge for start in starts for edge in (start - 1, start, start + 1)] + [bench.rows - 1, -1]
    batches = [torch.tensor([edge for edge in edges if edge < bench.rows] + list(range(4_096)), dtype=torch.int32)]
    compared, is_equal = 0, True
    with bench.open(chosen) as store:
        while compared < count or batches:
            ids = batches.pop() if batches else uniform(bench, 65_536)
            got_weights, got_scales = store.gather(ids)
            numbers = ids.numpy()
            want_weights, want_scales = weights[numbers], scales[numbers]
            want_weights[numbers < 0] = want_scales[numbers < 0] = 0
            is_equal &= np.array_equal(got_weights.view(torch.uint8).numpy(), want_weights)
            is_equal &= np.array_equal(got_scales.numpy(), want_scales)
            compared += len(numbers)
        held = store.statistics().resident_bytes
    return {
        "rows_compared": compared,
        "rows_equal": bool(is_equal),
        "store_bytes": held,
        "table_over_store": round(bench.packed.stat().st_size / held),
        "store_rss_bytes": resident_growth(bench, chosen),
    }


def resident_growth(bench: Bench, chosen: Engine) -> int:
    """Bytes of memory that the process has more after a hundred chunks than before the store was opened."""
    weights = torch.zeros(PREFILL, 256).to(torch.float8_e4m3fn)
    scales = torch.zeros(PREFILL, 8, dtype=torch.uint8)
    before = resident()
    with bench.open(chosen) as store:
        for _ in range(100):
            store.gather(uniform(bench, PREFILL), weights, scales)
        return resident() - before


def resident() -> int:
    """Anonymous memory: what is mapped of the shard does not count."""
    status = Path("/proc/self/status").read_text(encoding="ascii").split()
    return int(status[status.index("RssAnon:") + 1]) * 1024


def plot(path: Path, bench: Bench, streams: dict[str, dict[str, float]]) -> None:
    """Bars of rows per second, as SVG."""
    bars = [
        ("row store", bench.median("store_prefill_rows_per_s")),
        ("fio 4 KiB", bench.median("fio_iops")),
        ("96 threads", bench.median("threads96_prefill_rows_per_s")),
        ("numpy.memmap", bench.median("memmap_rows_per_s")),
        *((f"row store, {name}", stream["rows_per_s"]) for name, stream in streams.items() if name != "uniform"),
    ]
    most = max(value for _, value in bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{len(bars) * 34 + 60}" font-family="sans-serif">'
    ]
    parts.append('<text x="10" y="24" font-size="16">Random rows of 264 bytes per second, cold</text>')
    for number, (name, value) in enumerate(bars):
        y, width = 44 + number * 34, max(1, round(value / most * 420))
        parts.append(f'<text x="10" y="{y + 17}" font-size="13">{name}</text>')
        parts.append(f'<rect x="170" y="{y}" width="{width}" height="24" fill="#4878a8"/>')
        parts.append(f'<text x="{178 + width}" y="{y + 17}" font-size="13">{value:,.0f}</text>')
    path.write_text("\n".join([*parts, "</svg>\n"]), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--prove", type=int, default=0)
    given = parser.parse_args()
    if not shutil.which("fio"):
        sys.exit("fio is not installed: apt-get install fio")
    torch.set_num_threads(1)
    with contextlib.suppress(OSError):  # only root may
        os.nice(-10)  # other work on the machine then disturbs less; whatever is measured inherits it
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        build = Path(name) / "build"
        subprocess.run(["make", "-s", "-C", ROOT / "overlay" / "csrc", f"BUILD={build}"], check=True)
        os.environ["SPARK_ROW_STORE"] = str(build / "librow_store.so")
        bench = Bench(Path(name), given.gib)
        bench.write_shard()
        bench.pack()
        with bench.open(Engine.PROBE) as store:
            description = store.description
        chosen = Engine[description.split(",")[0].upper()]
        for number in range(given.rounds):
            measure_round(bench, chosen, "io_uring" if chosen is Engine.IO_URING else "libaio")
            print(f"round {number + 1} of {given.rounds}", file=sys.stderr)
        streams = measure_streams(bench, chosen)
        result: dict[str, Any] = {"bench": "engram", "engine": description, "table_bytes": bench.packed.stat().st_size}
        result |= {name: round(bench.median(name), 3) for name in bench.figures}
        result["streams"] = streams
        if given.prove:
            result |= prove(bench, chosen, given.prove)
        if given.plot:
            plot(given.plot, bench, streams)
    print(json.dumps(result))
    return 0 if result.get("rows_equal", True) else 1


if __name__ == "__main__":
    sys.exit(main())
