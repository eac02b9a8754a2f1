"""A lab to play in: `scripts/lab up`, `scripts/lab shell a`, `scripts/lab down`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.lab.node import entering
from tests.lab.nodes import LABS, Lab, missing, sweep
from tests.lab.specification import REPOSITORY
from tests.lab.start import inits_of

FOLDER = LABS / "sparkctl-lab-to-play"
STATE_DISK = "1g"  # room for the logs of many boots; the tests' nodes have less, to fill it soon
NODES = {"a": "spark-a", "b": "spark-b", "laptop": "laptop"}
USAGE = """usage: scripts/lab up [--systemd] [FOLDER...]
                                           two nodes and a laptop; FOLDERs (a model, say) are lent to them
       scripts/lab shell a|b|laptop [COMMAND...]
       scripts/lab cut|mend                pull the fabric cable, plug it in again
       scripts/lab down"""


def main(words: list[str]) -> int:
    match words:
        case ["up", "--systemd", *folders]:
            return up([Path(folder).resolve() for folder in folders], systemd=True)
        case ["up", *folders]:
            return up([Path(folder).resolve() for folder in folders], systemd=False)
        case ["shell", ("a" | "b" | "laptop") as node, *command]:
            return enter(NODES[node], command or ["bash", "-i"])
        case ["cut" | "mend" as verb]:
            state = "down" if verb == "cut" else "up"
            return enter("laptop", ["sh", "-c", f"ip link set cable-a {state} && ip link set cable-b {state}"])
        case ["down"]:
            return down()
        case _:
            print(USAGE, file=sys.stderr)
            return 2


def up(folders: list[Path], *, systemd: bool) -> int:
    if reason := missing(systemd=systemd):
        return refuse(reason)
    if inits():
        return refuse("the lab is up already; scripts/lab down ends it")
    sweep(FOLDER)
    lab = Lab.up(FOLDER, lent=folders, small_disk_size=STATE_DISK, systemd=systemd, outlive=True)
    for node in (lab.a, lab.b, lab.laptop):
        addresses = f"control {node.control_address}"
        addresses += f", fabric {node.fabric_address} on {node.interface}" if node in lab.nodes else ""
        print(f"{node.name:8} {addresses}")
    print("scripts/lab shell a  opens the head; ssh spark-b works from there; the checkout is at", REPOSITORY)
    return 0


def enter(name: str, command: list[str]) -> int:
    found = inits().get(name)
    if found is None:
        return refuse("the lab is not up; scripts/lab up starts it")
    return subprocess.run(entering(found, command, env={"TERM": os.environ.get("TERM", "dumb")})).returncode


def down() -> int:
    sweep(FOLDER)
    print("the lab is gone")
    return 0


def inits() -> dict[str, int]:
    return {init.name: init.pid for init in inits_of(FOLDER)}


def refuse(reason: str) -> int:
    print(f"lab: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
