"""What a node says of its memory, as a file of the test over its /proc/meminfo: no machine runs short for it."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.lab.node import Node

MEMINFO = "/root/meminfo"
GIB = 2**20  # in the KiB of /proc/meminfo
PAGE = 4096


def has_available(node: Node, gib: float) -> None:
    """Written in place, for it is the file that lies over /proc/meminfo, and at once: no guard reads half of it."""
    sizes = {
        "MemTotal": 16 * GIB,
        "MemFree": int(gib * GIB),
        "MemAvailable": int(gib * GIB),
        "Shmem": 0,
        "SUnreclaim": 0,
    }
    text = "".join(f"{name}: {size:12} kB\n" for name, size in sizes.items())
    file = os.open(node.path(MEMINFO), os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(file, text.encode(), 0)
    finally:
        os.close(file)


@contextlib.contextmanager
def meminfo_of_ours(*nodes: Node) -> Iterator[None]:
    for node in nodes:
        has_available(node, 6.0)
        node.run(("mount", "--bind", MEMINFO, "/proc/meminfo"), check=True)
    try:
        yield
    finally:
        for node in nodes:
            node.run(("umount", "/proc/meminfo"), check=True)


def anonymous(node: Node, pids: Iterable[int]) -> int:
    """Bytes that processes have for themselves."""
    statm = (node.path(f"/proc/{pid}/statm").read_text().split() for pid in pids)
    return sum((int(words[1]) - int(words[2])) * PAGE for words in statm)


def evidence(node: Node, rank: str) -> dict[str, Any]:
    """What the guard of a rank wrote before it stopped it; `rank` is the rank's folder."""
    record: dict[str, Any] = json.loads(node.path(f"{rank}/guard-evidence.json").read_text())
    return record
