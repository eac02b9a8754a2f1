"""The VM lab by hand: `scripts/vm-lab up`, `ssh a`, `cut`, `mend`, `power-off b`, `power-on b`, `down`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.vm import image
from tests.vm.pair import Pair, running
from tests.vm.recipe import NODES, REPOSITORY

if TYPE_CHECKING:
    from tests.vm.machine import Machine

NAME = "lab"
USAGE = f"""usage: scripts/vm-lab up [NAME] [--lend FOLDER]      two machines; FOLDER is seen, read-only, at /mnt/lent
       scripts/vm-lab ssh [NAME] a|b [COMMAND...]    a shell, or one command, as root
       scripts/vm-lab cut|mend [NAME]                pull the fabric cable, plug it in again
       scripts/vm-lab power-off [NAME] a|b           pull the plug: nothing is written that was not
       scripts/vm-lab power-on [NAME] a|b            with the disks as they were; returns when it is reachable
       scripts/vm-lab down [NAME]                    both machines and their disks are gone
       scripts/vm-lab list                           pairs that are up
       scripts/vm-lab build                          make the image, as the first `up` does
       scripts/vm-lab test [PYTEST WORDS...]         the tests that need such machines
NAME is "{NAME}" unless given. Images and pairs are kept in {image.cache()}"""


def main(words: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was begun is taken back
    verb, *rest = words or ["help"]
    if verb in ("up", "build", "test"):
        image.equip()
    if verb == "test":
        return test(rest)
    if verb in ("up", "build") and (reason := image.missing()):
        raise SystemExit(f"vm-lab: {reason}")
    lent = Path(rest.pop(rest.index("--lend") + 1)) if "--lend" in rest[:-1] else None
    rest = [word for word in rest if word != "--lend"] if lent else rest
    name = rest.pop(0) if rest and rest[0] not in NODES else NAME
    match verb, rest:
        case "up", []:
            return up(name, lent)
        case "build", []:
            print(image.built().folder)
        case "list", []:
            print("\n".join(running()))
        case "down", []:
            Pair.of(name).down()
        case "cut", []:
            Pair.of(name).cut()
        case "mend", []:
            Pair.of(name).mend()
        case "ssh", [("a" | "b") as letter, *command]:
            return subprocess.run(_machine(name, letter).ssh(*command)).returncode
        case "power-off", [("a" | "b") as letter]:
            _machine(name, letter).power_off()
        case "power-on", [("a" | "b") as letter]:
            Pair.of(name).power_on(_machine(name, letter))
        case _:
            print(USAGE, file=sys.stderr)
            return 2
    return 0


def up(name: str, lent: Path | None) -> int:
    pair = Pair.up(name, lent)
    for machine in pair.machines:
        addresses = f"control {machine.control_address}, fabric {machine.fabric_address}"
        print(f"{machine.name}  {addresses}, ssh port {machine.port}")
    print(f"on this host:  ssh -F {pair.home}/.ssh/config vm-a;  HOME={pair.home} sparkctl ... with HEAD_SSH=vm-a")
    print("on a machine:  sparkctl runs from this checkout, at /opt/sparkctl; ssh vm-b works from vm-a")
    return 0


def test(words: list[str]) -> int:
    """Real machines for as long as the tests take: nothing here skips for want of being asked."""
    env = {**os.environ, "SPARKCTL_VM_TESTS": "1"}
    argv = (sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *(words or ["tests/vm"]))
    return subprocess.run(argv, cwd=REPOSITORY, env=env).returncode


def _machine(name: str, letter: str) -> Machine:
    pair = Pair.of(name)
    return pair.machines[sorted(NODES).index(letter)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
