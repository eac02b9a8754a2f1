"""Both machines as they are after a boot, memory and all: an emulated boot takes minutes, waking takes seconds.

Every pair wakes from these; a machine that is switched off and on again boots for real.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.vm import host, image
from tests.vm.machine import HARDWARE, MEMORY, Machine
from tests.vm.recipe import NODES

if TYPE_CHECKING:
    from pathlib import Path

# Until nothing more starts: a machine that froze in the middle of its boot would go on with it in every test.
SETTLED = "systemctl is-system-running --wait"


def machines(made_of: image.Image) -> image.Image:
    """The same image, once its machines have been frozen beside it."""
    with (image.cache() / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _folder(made_of).exists():
            _freeze(made_of)
    return made_of


def disk(made_of: image.Image, letter: str) -> Path:
    return _folder(made_of) / f"{letter}.qcow2"


def memory(made_of: image.Image, letter: str) -> Path:
    return _folder(made_of) / f"{letter}.memory"


def _folder(made_of: image.Image) -> Path:
    """Memory is of use only to a machine that is built alike."""
    qemu = subprocess.run(("qemu-system-x86_64", "--version"), capture_output=True, text=True, check=True).stdout
    return made_of.folder / f"frozen-{image.stamp([MEMORY, HARDWARE, qemu])}"


def _freeze(made_of: image.Image) -> None:
    print("vm-lab: first boot of both machines, once for all pairs ...", file=sys.stderr, flush=True)
    folder = made_of.folder / "frozen.part"
    ports = host.free_ports(len(NODES), image.cache() / "run")
    both = [Machine(letter, folder, port, folder / "lent") for letter, port in zip(NODES, ports, strict=True)]
    for machine in both:
        machine.kill()  # of an attempt that was itself killed
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lent").mkdir(parents=True)
    host.write_ssh(folder / "home/.ssh", both)
    try:
        for machine in both:
            machine.make_disks(made_of.disk)
            machine.power_on(made_of)
        for machine in both:
            machine.wait()
            state = machine.run(SETTLED, check=False, timeout=600).stdout.strip()
            if state != "running":
                failed = machine.run("systemctl --failed --no-legend --plain", check=False).stdout
                raise SystemExit(f"vm-lab: {machine.name} is {state} after its boot:\n{failed}")
        for machine in both:
            machine.freeze(folder / f"{machine.letter}.memory")
    finally:
        for machine in both:
            machine.kill()
    folder.rename(_folder(made_of))
