"""`engram`: packing and random rows, beside dd, fio, numpy.memmap and 96 threads on the same disk, in the same run."""

import json
import subprocess
import sys

from tests.bench.measure import ROOT, CannotMeasure, Result, clean_environment, say

PYTHON = ROOT / ".venv-vllm" / "bin" / "python"  # where torch is
ROWS_COMPARED = 10_000_000
RATIOS = (
    "pack_over_disk",
    "pack_over_copy",
    "rows_over_fio",
    "rows_over_memmap",
    "rows_over_threads96",
    "cpu_per_row_over_threads96",
)


def run() -> Result:
    if not PYTHON.is_file():
        raise CannotMeasure(f"{PYTHON} is missing; run: python3 scripts/provision.py vllm")
    provision = [sys.executable, str(ROOT / "scripts" / "provision.py"), "apt", "fio", "g++", "make"]
    if subprocess.run(provision, stdout=sys.stderr, check=False).returncode:
        raise CannotMeasure("fio, g++ and make are needed")
    argv = [str(PYTHON), str(ROOT / "scripts" / "bench_engram.py"), "--prove", str(ROWS_COMPARED)]
    done = subprocess.run(argv, env=clean_environment(), stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout.strip():
        raise CannotMeasure(f"{' '.join(argv)} ended with exit code {done.returncode}")
    found = json.loads(done.stdout.splitlines()[-1])
    if done.returncode:
        raise CannotMeasure(f"rows that were looked up are not those of the table: {found}")
    for name, value in found.items():
        say(f"{name}: {value}")
    ratios = {name: found.pop(name) for name in RATIOS}
    return Result(ratios, found)
