"""Bring up the namespaces of a lab: process 1 of each node, the wires between them, and how to find them again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.lab import cgroups
from tests.lab.node import CONTROL, FABRIC, JOIN, Node, child_of, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SWITCHES = (("cable", "cable"), ("lan", CONTROL))
# Carried by process 1 of a node from its start, also after it has become systemd.
MARK = "LAB_NODE"


@dataclass(frozen=True, slots=True)
class Init:
    """Process 1 of a node, found by the mark in its environment."""

    pid: int
    name: str


def inits_of(folder: Path) -> Iterator[Init]:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            marks = [word for word in (process / "environ").read_bytes().split(b"\0") if word.startswith(b"LAB_NODE=")]
            if not marks or "\nNSpid:" not in (status := (process / "status").read_text()):
                continue
            own = Path(os.fsdecode(marks[0].partition(b"=")[2]))
            numbers = status.partition("\nNSpid:")[2].splitlines()[0].split()
            if own.parent == folder and len(numbers) > 1 and numbers[-1] == "1":
                yield Init(int(process.name), own.name)


def start_node(folder: Path, number: int, spec: dict[str, Any], *, outlive: bool) -> Node:
    (folder / "root").mkdir(parents=True)
    groups = cgroups.branches(f"{folder.parent.name}.{folder.name}") if spec["systemd"] else ()
    (folder / "cgroups").write_text("".join(f"{group}\n" for group in groups))
    for group in groups:
        group.mkdir()
    guard = () if outlive else ("setpriv", "--pdeathsig", "KILL")
    spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--fork", "--kill-child")
    program = str(Path(__file__).with_name("node_init.py"))
    with (folder / "init.err").open("w") as errors:
        holder = subprocess.Popen(
            (
                *JOIN, *map(str, groups), "--", *guard, "unshare", *spaces, "--propagation", "private",
                sys.executable, "-S", "-E", program, str(folder),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={**os.environ, MARK: str(folder)},
        )  # fmt: skip
    entered = tuple(group / "entered" for group in groups)
    node = Node(spec["name"], f"10.77.1.{number}", f"10.77.0.{number}", folder, holder, child_of(holder), entered)
    _tell(node, json.dumps(spec))
    return node


def connect(a: Node, b: Node, laptop: Node) -> None:
    """Wires are made with both ends already in their nodes, so the host never has them."""
    end = laptop.init
    for node in (a, b):
        letter = node.name[-1]
        _ip(
            "link", "add", FABRIC, "netns", str(node.init), "type", "veth", "peer", f"cable-{letter}", "netns", str(end)
        )
        _ip("link", "add", CONTROL, "netns", str(node.init), "type", "veth", "peer", f"lan-{letter}", "netns", str(end))
    wires = [f"link set {wire}-{x} master {switch}\nlink set {wire}-{x} up" for wire, switch in SWITCHES for x in "ab"]
    switches = [f"link add {switch} type bridge\nlink set {switch} up" for _, switch in SWITCHES]
    own = f"addr add {laptop.control_address}/24 dev {CONTROL}"
    _ip_batch(laptop, ["link set lo up", *switches, *wires, own])
    for node in (a, b):
        up = [f"addr add {address}/24 dev {device}\nlink set {device} up" for device, address in node.interfaces()]
        _ip_batch(node, ["link set lo up", *up])


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True)


def _ip_batch(node: Node, lines: Sequence[str]) -> None:
    argv = ("nsenter", f"--net=/proc/{node.init}/ns/net", "ip", "-batch", "-")
    subprocess.run(argv, input="\n".join(lines) + "\n", check=True, capture_output=True, text=True)


def finish(node: Node, *, systemd: bool) -> None:
    _tell(node, "go")
    assert node.holder.stdout is not None
    if node.holder.stdout.readline() != "ready\n":
        raise RuntimeError(f"{node.name} did not come up: {(node.folder / 'init.err').read_text().strip()}")
    if systemd:
        until(lambda: node.run(("systemctl", "is-active", "lab.target")).returncode == 0, f"systemd on {node.name}", 60)


def _tell(node: Node, line: str) -> None:
    assert node.holder.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        node.holder.stdin.write(line + "\n")
        node.holder.stdin.flush()
