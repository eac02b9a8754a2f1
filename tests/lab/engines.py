"""A real dockerd in each lab node, with its data on the real disk."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tests.contract import engine_kinds
from tests.lab.node import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.node import Node

SOCKET = "/run/docker.sock"  # and /var/run is a link to /run, which from outside would lead out of the node
# A node's /tmp is a folder of the host's disk: an engine cannot put its overlay on the overlay that is the root.
DATA = "/tmp/docker"


def lent() -> tuple[Path, ...]:
    """What the nodes have to see of this machine, which else have a ~/.cache of their own."""
    return () if engine_kinds.chosen() is engine_kinds.Kind.INSTALLED else (engine_kinds.ROOT,)


@contextlib.contextmanager
def engine_in(node: Node) -> Iterator[None]:
    places = ("--data-root", DATA, "--exec-root", "/run/docker", "-H", f"unix://{SOCKET}")
    words = tuple(map(str, engine_kinds.daemon(engine_kinds.chosen(), *places, "--pidfile", "/run/docker.pid")))
    with node.path("/tmp/dockerd.log").open("wb") as log:
        running = node.popen(words, stdout=log, stderr=log)
    try:
        until(lambda: docker(node, "version").returncode == 0, f"dockerd on {node.name}", 60)
        yield
    finally:
        for identity in docker(node, "ps", "-aq").stdout.split():
            docker(node, "rm", "-f", identity)
        running.signal(15)
        running.wait(60)


def docker(node: Node, *words: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    return node.run(("docker", "-H", f"unix://{SOCKET}", *words), check=check, timeout=600)
