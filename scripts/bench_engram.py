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
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "overlay")]

from spark_overlay.row_store import Engine, RowStore  # noqa: E402  # found only after the line above

from scripts import engram_disk  # noqa: E402
from scripts.engram_table import (  # noqa: E402
    ROW,
    SyntheticTable,
    drop_path,
    text_rows,
    uniform,
    zipf,
)

DEPTH, THREADS = 256, 8  # the row store's own, and the packer's
PREFILL, DECODE = 12_288, 48  # rows of a rank: a chunk of 1,024 tokens, four tokens


class Bench:
    """A table on the disk, and the figures of all rounds."""

    def __init__(self, table: SyntheticTable) -> None:
        self.table = table
        self.elsewhere: Path | None = None  # the same shard, not on this disk
        self.figures: dict[str, list[float]] = {}

    def note(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(value)

    def median(self, name: str) -> float:
        return statistics.median(self.figures[name])


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Other work on the machine then waits for whatever is measured, which inherits it; only root may ask for that."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def gather_in_turn(
    bench: Bench, stores: dict[str, RowStore], batch: int, seconds: float, kind: str
) -> dict[str, float]:
    """Rows per second of each store with uniform ids, batch by batch in turn; notes latencies and processor time."""
    weights = torch.empty(batch, 256, dtype=torch.float8_e4m3fn)
    scales = torch.empty(batch, 8, dtype=torch.uint8)
    times: dict[str, list[float]] = {name: [] for name in stores}
    used = dict.fromkeys(stores, 0.0)
    for store in stores.values():
        store.gather(uniform(bench.table, batch), weights, scales)
    while sum(map(sum, times.values())) < seconds:
        for name, store in stores.items():
            ids = uniform(bench.table, batch)
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


def copy_elsewhere(shard: Path, until: contextlib.ExitStack) -> Path | None:
    """Into memory, where there is room enough: a pack whose tables are not on the disk that it writes to."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or available() < 3 * shard.stat().st_size:
        return None
    folder = until.enter_context(tempfile.TemporaryDirectory(dir=memory))
    return Path(shutil.copy(shard, folder))


def available() -> int:
    words = Path("/proc/meminfo").read_text(encoding="ascii").split()
    return int(words[words.index("MemAvailable:") + 1]) * 1024


def measure_pack(bench: Bench) -> None:
    """Between two looks at what dd does: a disk shared with others changes from one second to the next."""
    before = engram_disk.dd(bench.table)
    took, peak = bench.table.pack(THREADS)
    after = engram_disk.dd(bench.table)
    dd = {name: (before[name] + after[name]) / 2 for name in before}
    pace = bench.table.packed_bytes / took
    bench.note("pack_bytes_per_s", pace)
    for name, value in dd.items():
        bench.note(f"dd_{name}_bytes_per_s", value)
    bench.note("pack_over_disk", pace / min(dd["read"], dd["write"]))
    bench.note("pack_over_copy", pace / dd["copy"])
    bench.note("pack_over_dd_both", pace / dd["both"])
    bench.note("pack_peak_bytes", peak)
    if bench.elsewhere:
        took, _ = bench.table.pack(THREADS, bench.elsewhere)
        write = (after["write"] + engram_disk.dd(bench.table, ("write",))["write"]) / 2
        bench.note("pack_from_elsewhere_over_write", bench.table.packed_bytes / took / write)


def measure_rows(bench: Bench, chosen: Engine) -> None:
    table = bench.table
    drop_path(table.packed)
    with table.open(chosen) as store, table.open(Engine.THREADS) as threads:
        stores = {"store": store, "threads96": threads}
        gather_in_turn(bench, stores, DECODE, 1.0, "decode")
        rates = gather_in_turn(bench, stores, PREFILL, 6.0, "prefill")
    bench.note("fio_iops", engram_disk.fio(table, "io_uring" if chosen is Engine.IO_URING else "libaio", DEPTH))
    plain = engram_disk.memmap(table)
    bench.note("memmap_rows_per_s", plain)
    bench.note("rows_over_fio", rates["store"] / bench.figures["fio_iops"][-1])
    bench.note("rows_over_memmap", rates["store"] / plain)
    bench.note("rows_over_threads96", rates["store"] / rates["threads96"])
    ours, theirs = (bench.figures[f"{name}_prefill_cpu_us_per_row"][-1] for name in ("store", "threads96"))
    bench.note("cpu_per_row_over_threads96", ours / theirs)


def measure_streams(bench: Bench, chosen: Engine) -> dict[str, dict[str, float]]:
    """What each kind of ids costs: reads that are needed, bytes read per useful byte, rows per second."""
    streams: dict[str, Any] = {
        "uniform": lambda: uniform(bench.table, PREFILL),
        "zipf": lambda: zipf(bench.table, PREFILL),
        "text_rank0": lambda: text_rows(bench.table, range(12)),
        "text_rank1": lambda: text_rows(bench.table, range(12, 24)),
    }
    found = {}
    for name, draw in streams.items():
        with bench.table.open(chosen) as store:
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
    weights = np.memmap(bench.table.shard, np.uint8, "r", offset=bench.table.weight_at, shape=(bench.table.rows, 256))
    scales = np.memmap(bench.table.shard, np.uint8, "r", offset=bench.table.scale_at, shape=(bench.table.rows, 8))
    starts = bench.table.hashed.offsets.tolist()
    edges = [edge for start in starts for edge in (start - 1, start, start + 1)] + [bench.table.rows - 1, -1]
    batches = [
        torch.tensor([edge for edge in edges if edge < bench.table.rows] + list(range(4_096)), dtype=torch.int32)
    ]
    compared, is_equal = 0, True
    with bench.table.open(chosen) as store:
        while compared < count or batches:
            ids = batches.pop() if batches else uniform(bench.table, 65_536)
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
        "table_over_store": round(bench.table.packed_bytes / held),
        "store_rss_bytes": resident_growth(bench, chosen),
    }


def resident_growth(bench: Bench, chosen: Engine) -> int:
    """Bytes of memory that the process has more after a hundred chunks than before the store was opened."""
    weights = torch.zeros(PREFILL, 256).to(torch.float8_e4m3fn)
    scales = torch.zeros(PREFILL, 8, dtype=torch.uint8)
    before = resident()
    with bench.table.open(chosen) as store:
        for _ in range(100):
            store.gather(uniform(bench.table, PREFILL), weights, scales)
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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--prove", type=int, default=0)
    given = parser.parse_args()
    if not shutil.which("fio"):
        sys.exit("fio is not installed: apt-get install fio")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=given.folder) as name, contextlib.ExitStack() as rest:
        build = Path(name) / "build"
        subprocess.run(["make", "-s", "-C", ROOT / "overlay" / "csrc", f"BUILD={build}"], check=True)
        os.environ["SPARK_ROW_STORE"] = str(build / "librow_store.so")
        bench = Bench(SyntheticTable(Path(name), given.gib))
        bench.table.write_shard()
        bench.elsewhere = copy_elsewhere(bench.table.shard, rest)
        bench.table.pack(THREADS)
        with bench.table.open(Engine.PROBE) as store:
            description = store.description
        chosen = Engine[description.split(",")[0].upper()]
        for number in range(given.rounds):
            with undisturbed():
                measure_pack(bench)
                measure_rows(bench, chosen)
            print(f"round {number + 1} of {given.rounds}", file=sys.stderr)
        streams = measure_streams(bench, chosen)
        result: dict[str, Any] = {"bench": "engram", "engine": description, "table_bytes": bench.table.packed_bytes}
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
