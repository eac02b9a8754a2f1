"""`preflight`: what all checks of two healthy nodes over SSH cost, over one bare `ssh node true`."""

import os
import time

from tests.bench.measure import CannotMeasure, Result, load, median, say
from tests.lab.cli import Cli
from tests.lab.faults import STAND_IN, install_stand_in
from tests.lab.nodes import Lab, missing, sweep_stale

PAIRS = int(os.environ.get("BENCH_PAIRS", "11"))
# The disks of the lab are smaller than what logs want; everything else must be as it should.
WORDS = ("preflight", "--force", "DISK.STATE")


def run() -> Result:
    if reason := missing():
        raise CannotMeasure(reason)
    sweep_stale()
    with Lab.up(small_disk_size="320m") as lab:
        for node in lab.nodes:
            install_stand_in(node)
        # from a machine that is neither node: both are asked over SSH
        sparkctl = Cli(lab.laptop, STAND_IN | {"HEAD_SSH": "spark-a"}, environment={"PYTHONDONTWRITEBYTECODE": ""})
        ours: list[float] = []
        bare: list[float] = []
        checks(sparkctl)
        for pair in range(PAIRS):
            for arm in ("bare", "preflight") if pair % 2 == 0 else ("preflight", "bare"):
                if arm == "bare":
                    bare.append(ssh(lab))
                else:
                    ours.append(checks(sparkctl))
            say(f"pair {pair + 1} of {PAIRS}: preflight {ours[-1]:.2f} s, ssh {bare[-1]:.2f} s; load {load():.1f}")
    return Result(
        ratios={"time_over_bare_ssh": round(median(ours) / median(bare), 2)},
        figures={"preflight_seconds": median(ours), "bare_ssh_seconds": median(bare), "pairs": PAIRS},
    )


def checks(sparkctl: Cli) -> float:
    began = time.monotonic()
    done = sparkctl.text(*WORDS)
    seconds = time.monotonic() - began
    if done.returncode:
        raise CannotMeasure(f"preflight of two healthy nodes exited {done.returncode}: {done.stdout}{done.stderr}")
    return seconds


def ssh(lab: Lab) -> float:
    """As a person types it, with the client's own start-up."""
    began = time.monotonic()
    lab.laptop.run(("ssh", "-o", "BatchMode=yes", "spark-a", "true"), check=True)
    return time.monotonic() - began
