"""What benchmarks share: the program under test, timed runs, and what came out."""

import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# A developer's own settings must not be measured along, and programs run as users run them: with their byte code kept.
FOREIGN = ("SPARKCTL_", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONPATH")


class CannotMeasure(Exception):
    """What is missing, and what to type next."""


@dataclass(frozen=True, slots=True)
class Result:
    """`ratios` have a limit that is checked elsewhere; `figures` are for reading."""

    ratios: dict[str, float]
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """`cpu` counts the program and what it waited for, not what lives on after it."""

    seconds: float
    cpu: float
    exit: int
    out: str
    err: str


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def sparkctl() -> str:
    """The console script beside the interpreter that runs us: what a user types."""
    script = Path(sys.executable).with_name("sparkctl")
    if not script.is_file():
        raise CannotMeasure(f"{script} is missing; run: {sys.executable} -m pip install -e .")
    return str(script)


def clean_environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)} | more


def timed(argv: list[str], *, environment: dict[str, str], cwd: Path, limit: float = 60.0) -> Run:
    before, began = _children_cpu(), time.monotonic()
    done = subprocess.run(argv, env=environment, cwd=cwd, capture_output=True, text=True, timeout=limit, check=False)
    seconds = time.monotonic() - began
    return Run(seconds, _children_cpu() - before, done.returncode, done.stdout, done.stderr)


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def median(values: list[float], digits: int = 3) -> float:
    return round(statistics.median(values), digits)


def load() -> float:
    return os.getloadavg()[0]
