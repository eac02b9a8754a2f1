"""`verify`: proving 4 GiB of shards by their sha256, with sparkctl and with sha256sum; both read from the disk."""

import os
import shutil
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

from cluster.app.verify import Wanted, look
from cluster.node.local import LocalNode
from cluster.plan.verify import MODEL, Place
from tests.bench.measure import CannotMeasure, Result, load, median, say

MIB = 2**20
SHARDS, SHARD = 8, int(os.environ.get("BENCH_SHARD_MB", "512")) * MIB
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))


def run() -> Result:
    base = os.environ.get("BENCH_DIR", "/var/tmp")
    if shutil.disk_usage(base).free < 2 * SHARDS * SHARD:
        raise CannotMeasure(f"{base} has less than {2 * SHARDS * SHARD / 2**30:.0f} GiB free")
    with tempfile.TemporaryDirectory(prefix="bench-verify-", dir=base) as temporary:
        folder = Path(temporary) / "model"
        write(folder)
        node = LocalNode("here")
        ways = {
            "sha256sum": partial(by_hand, folder),
            "sparkctl": partial(by_sparkctl, node, folder),
            "read": partial(by_reading, folder),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(ROUNDS):
            found = {}
            for name, act in ways.items():
                evict(folder)
                began = time.monotonic()
                found[name] = act()
                seconds[name].append(time.monotonic() - began)
            if found["sha256sum"] != found["sparkctl"]:
                raise CannotMeasure(f"the digests differ: {found}")
            said = ", ".join(f"{name} {each[-1]:.2f} s" for name, each in seconds.items())
            say(f"round {number + 1} of {ROUNDS}: {said}; load {load():.1f}")
        again = time.monotonic()
        by_sparkctl(node, folder, again=False)
        cached = time.monotonic() - again
        node.close()
    middle = {name: median(each) for name, each in seconds.items()}
    return Result(
        ratios={"speedup_over_sha256sum": round(middle["sha256sum"] / middle["sparkctl"], 3)},
        figures={f"{name}_seconds": value for name, value in middle.items()}
        | {"cached_seconds": round(cached, 3), "bytes": SHARDS * SHARD, "rounds": ROUNDS, "load": load()}
        | {"cores": os.cpu_count()},
    )


def by_hand(folder: Path) -> dict[str, str]:
    words = ("sha256sum", *sorted(path.name for path in folder.iterdir()))
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return {name: digest for digest, name in (line.split("  ") for line in done.stdout.splitlines())}


def by_sparkctl(node: LocalNode, folder: Path, *, again: bool = True) -> dict[str, str]:
    place = Place(MODEL, str(folder), str(folder.parent / "verdicts.json"))
    seen = look(node, place, None, lambda event: None, Wanted(again=again))
    return {name: fact.digest.removeprefix("sha256:") for name, fact in seen.facts.items()}


def by_reading(folder: Path) -> dict[str, str]:
    """The disk alone, for people to hold the two against."""
    for path in sorted(folder.iterdir()):
        subprocess.run(("dd", f"if={path}", "of=/dev/null", "bs=8M"), check=True, capture_output=True)
    return {}


def evict(folder: Path) -> None:
    """Out of the page cache, these files alone."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write(folder: Path) -> None:
    say(f"writing {SHARDS} shards of {SHARD // MIB} MiB")
    folder.mkdir()
    block = os.urandom(min(64 * MIB, SHARD))
    for number in range(SHARDS):
        with (folder / f"model-{number + 1:05}-of-{SHARDS:05}.safetensors").open("wb") as file:
            file.write(number.to_bytes(8, "big"))  # no header that anybody would read on
            for _ in range(0, SHARD, len(block)):
                file.write(block)
    os.sync()
