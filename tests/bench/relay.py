"""Re-laying and joining packs beside `cp` of the same bytes: speed until they are on the disk, and peak memory."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

from cluster.app.agents import program
from cluster.app.coalesce import Wanted as Joining
from cluster.app.coalesce import coalesce
from cluster.app.packs import Order
from cluster.app.relay import Wanted, relay
from cluster.config.load import load as load_settings
from cluster.model.need import Need
from cluster.model.settings import NodeSettings
from cluster.node.base import Node
from cluster.node.local import LocalNode
from cluster.weights.assembly import ASSEMBLER, as_order
from cluster.weights.relay import Rules, relaid
from cluster.weights.safetensors import read_header
from tests.bench.measure import Result, load, say
from tests.packs import index, noise, shard_bytes

ROUNDS = 3
MIB = 2**20
SHARDS, SHARD = 4, 512 * MIB
RANKS = 4
SETTINGS = load_settings(Path("/nowhere"), environ={}, need=Need.NOTHING).settings


def run() -> Result:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as temporary:
        base = Path(temporary)
        odd, slices = _odd_pack(base / "odd"), _sliced_pack(base / "slices")
        plain, checked = Order(threads=2, verify=False), Order(threads=2)
        ways: dict[str, tuple[Path, Callable[[Path], None]]] = {
            "relay": (odd, lambda to: _relay(odd, to, plain)),
            "relay_verified": (odd, lambda to: _relay(odd, to, checked)),
            "coalesce": (slices, lambda to: _coalesce(slices, to, plain)),
        }
        speeds: dict[str, list[float]] = {name: [] for name in ("cp", *ways)}
        for _ in range(ROUNDS):
            speeds["cp"].append(_rate(odd, base / "copy", partial(_copy, odd)))
            for name, (source, act) in ways.items():
                speeds[name].append(_rate(source, base / "ours", act))
            say("  ".join(f"{name} {values[-1] / MIB:.0f} MiB/s" for name, values in speeds.items()))
        # The best of each: what else runs on a machine only ever takes time away.
        best = {name: max(values) for name, values in speeds.items()}
        memory = {size: _peak(base, size * MIB) for size in (32, 256)}
        say(f"peak memory: {memory[32] / MIB:.0f} MiB for 32 MiB, {memory[256] / MIB:.0f} MiB for 256 MiB")
    return Result(
        ratios={f"{name}_over_cp": round(best[name] / best["cp"], 3) for name in ways}
        | {"peak_rss_256_over_32_mib": round(memory[256] / memory[32], 3)},
        figures={f"{name}_mib_per_s": round(value / MIB) for name, value in best.items()}
        | {"peak_rss_mib": round(memory[256] / MIB, 1), "rounds": ROUNDS, "load": load(), "bytes": SHARDS * SHARD},
    )


def open_here(settings: NodeSettings) -> Node:
    return LocalNode(settings.name)


def _relay(source: Path, target: Path, order: Order) -> None:
    wanted = Wanted(str(source), str(target), Rules(smallest=MIB), reserve=0, order=order)
    assert relay(SETTINGS, open_here, lambda event: None, wanted).ok


def _coalesce(source: Path, target: Path, order: Order) -> None:
    wanted = Joining(str(source), str(target), order=replace(order, sums=False), reserve=0)
    assert coalesce(SETTINGS, open_here, lambda event: None, wanted).ok


def _copy(source: Path, target: Path) -> None:
    """As users would; and until it is on the disk, as our own files are when they get their names."""
    subprocess.run(["cp", "-r", "--reflink=never", source, target], check=True)
    subprocess.run(["sync", *target.iterdir()], check=True)


def _rate(source: Path, target: Path, act: Callable[[Path], None]) -> float:
    """Bytes per second. The source is in the page cache for everyone; nobody has to wait for another's writing."""
    size = sum(path.stat().st_size for path in source.glob("*.safetensors"))
    os.sync()
    began = time.monotonic()
    act(target)
    seconds = time.monotonic() - began
    shutil.rmtree(target)
    return size / seconds


def _odd_pack(folder: Path) -> Path:
    """Shards of eight large tensors each, all off the grid."""
    folder.mkdir()
    part = SHARD // 8
    data = noise("U8", (part,), "shard")
    for shard in range(SHARDS):
        content = {f"layers.{shard}.{number}.weight": ("U8", (part,), data) for number in range(8)}
        (folder / f"model-{shard}.safetensors").write_bytes(shard_bytes(content, pad=1))
    return folder


def _sliced_pack(folder: Path) -> Path:
    """Families of experts as they are in a pack of 4 ranks: 4096 by 2048 at 3 bits, a quarter on each."""
    folder.mkdir()
    shapes = {"w1": (256, 32, 48), "w2": (32, 256, 48), "w3": (256, 32, 48)}
    size = 256 * 32 * 48 * 2
    data = noise("U8", (size,), "slice")
    experts = SHARD // (3 * RANKS * size)
    for layer, rank in product(range(SHARDS), range(RANKS)):
        content = {
            f"layers.{layer}.ffn.experts.{number}.{proj}.rank{rank}.trellis": ("I16", shape, data)
            for number in range(experts)
            for proj, shape in shapes.items()
        }
        (folder / f"layer{layer}-tp{RANKS}-rank{rank}.safetensors").write_bytes(shard_bytes(content))
    tail = {"hybrid_tr3_tail": {"format": "exl3-trellis", "tp": RANKS}}
    (folder / "config.json").write_text(json.dumps(tail))
    (folder / "quantization_config.json").write_text("{}")
    index(folder)
    return folder


def _peak(base: Path, size: int) -> int:
    """The most memory that the program on the node ever had, for one shard, checked."""
    folder = base / f"peak-{size}"
    folder.mkdir()
    source = folder / "model.safetensors"
    source.write_bytes(shard_bytes({"weight": ("U8", (size,), bytes(size))}, pad=1))
    first = source.read_bytes()[: 2**16]
    made = relaid("model.safetensors", str(source), first, read_header(first, "s"), Rules(smallest=MIB))
    order = folder / "orders" / "one.json"
    order.parent.mkdir()
    order.write_bytes(as_order(made))
    request = {"folder": str(folder / "new"), "orders": [str(order)], "links": [], "digest": [], "threads": 1,
               "verify": True, "sums": True, "size": size}  # fmt: skip
    text = folder / "program.py"
    text.write_bytes(program(*ASSEMBLER))
    watched = (
        f"import runpy, sys; sys.argv = ['assemble', {json.dumps(request)!r}]\n"
        f"try: runpy.run_path({str(text)!r}, run_name='__main__')\n"
        "except SystemExit as end: assert not end.code\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM:')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-IS", "-c", watched], capture_output=True, text=True, check=True)
    shutil.rmtree(folder)
    return int(done.stderr.split()[1]) * 1024
