"""`preflight`: what all checks of two nodes over SSH cost, over one bare `ssh node true`, and what a refusal costs."""

import compileall
import os
import time

from cluster.errors import Exit
from tests.bench.measure import ROOT, CannotMeasure, Result, load, median, say
from tests.lab.cli import WORK, Cli
from tests.lab.faults import STAND_IN, install_stand_in
from tests.lab.nodes import Lab, missing, sweep_stale

PAIRS = int(os.environ.get("BENCH_PAIRS", "11"))
REFUSALS = 5
BAR = 10.0  # seconds after which a person thinks that a boot has begun
# The disks of the lab are smaller than what logs want; everything else must be as it should.
WORDS = ("preflight", "--force", "DISK.STATE")


def run() -> Result:
    if reason := missing():
        raise CannotMeasure(reason)
    sweep_stale()
    compileall.compile_dir(ROOT / "cluster", quiet=1)  # as an installation does; the lab's nodes may not write there
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
        refused = [refusal(lab) for _ in range(REFUSALS)]
        say(f"{REFUSALS} starts refused: {', '.join(f'{one:.2f}' for one in refused)} s; load {load():.1f}")
    return Result(
        ratios={
            "time_over_bare_ssh": round(median(ours) / median(bare), 2),
            "slowest_refusal_over_10_s": round(max(refused) / BAR, 3),
        },
        figures={
            "preflight_seconds": median(ours),
            "bare_ssh_seconds": median(bare),
            "pairs": PAIRS,
            "refused_start_seconds": median(refused),
            "refused_start_slowest": round(max(refused), 3),
        },
    )


def refusal(lab: Lab) -> float:
    """A start that must not begin, for the worker has no such address, until it has said so."""
    settings = STAND_IN | {"HEAD_SSH": "spark-a", "WORKER_IP": "10.77.0.3"}
    said = Cli(lab.laptop, settings, WORK / "refused", environment={"PYTHONDONTWRITEBYTECODE": ""})("start")
    if said.code != Exit.REFUSED:
        raise CannotMeasure(f"a start that had to be refused exited {said.code}: {said.result}")
    return said.seconds


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
