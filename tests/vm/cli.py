"""sparkctl against a pair of machines: run on this host, as a laptop with a remote head, or on a machine itself."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.lab.cli import Said
from tests.vm.recipe import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.vm.machine import Machine
    from tests.vm.pair import Pair

SHARED = {"RECIPE": "demo", "HEAD_IP": "10.77.0.1", "WORKER_IP": "10.77.0.2", "WORKER_SSH": "vm-b"}
LIMIT = 300.0  # emulated nodes answer ten times later than real ones


def on_host(pair: Pair, folder: Path, settings: Mapping[str, str], *words: str, timeout: float = LIMIT) -> Said:
    """`sparkctl WORDS` here, for a head that is reached by ssh; `folder` gets the `.env`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".env").write_text(_dotenv({"HEAD_SSH": "vm-a"} | dict(settings)))
    env = {"HOME": str(pair.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(REPOSITORY)}
    argv = (sys.executable, "-m", "cluster", *words, "--json")
    began = time.monotonic()
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=timeout)
    return _said(words, began, done)


def on_machine(machine: Machine, settings: Mapping[str, str], *words: str, timeout: float = LIMIT) -> Said:
    """`sparkctl WORDS` as root of a machine, from the checkout that is lent to it."""
    machine.run("mkdir -p work && cat > work/.env", input=_dotenv(settings))
    began = time.monotonic()
    done = machine.run(f"cd work && sparkctl {shlex.join((*words, '--json'))}", check=False, timeout=timeout)
    return _said(words, began, done)


def _dotenv(settings: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _said(words: tuple[str, ...], began: float, done: subprocess.CompletedProcess[str]) -> Said:
    events = tuple(json.loads(line) for line in done.stdout.splitlines())
    return Said(words, done.returncode, time.monotonic() - began, events, done.stderr)
