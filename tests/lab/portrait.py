"""A whole node as text, to compare before and after: files, processes, mounts, network, kernel settings, containers.

Of the root only what the node changed over the host's is looked at, and that is all there can be: each node writes to a
layer of its own. Contents are not compared: whoever writes a file changes its time.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.engines import DATA, SOCKET
from tests.lab.node import SMALL_DISK
from tests.lab.node_init import CHANGED
from tests.lab.specification import PRIVATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.node import Node

OWN = (*PRIVATE, str(SMALL_DISK), "/run", "/dev/shm")
# The log of the node's own sshd tells of every login; the rest is an engine's own housekeeping.
OF_OTHERS = ("/var/log/sshd.log", DATA, "/tmp/dockerd.log", "/run/docker", "/run/containerd")
TOLD = r"""
tell() { name=$1; shift; "$@" 2>/dev/null | sed "s,^,$name: ,"; }
tell mount cat /proc/self/mountinfo
tell link ip -o link
tell address ip -o addr
tell route ip route show table all
tell rule ip rule
tell listens ss -Hltnu
tell firewall iptables-save
tell ipc cat /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg
tell sysctl grep -rsH . /proc/sys/net /proc/sys/vm /proc/sys/kernel/sem /proc/sys/kernel/shmmax
"""
OBJECTS = (
    ("container", ("ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Image}} {{.Names}} {{.State}}")),
    ("image", ("images", "--no-trunc", "--format", "{{.ID}} {{.Repository}}:{{.Tag}}")),
    ("volume", ("volume", "ls", "--format", "{{.Name}}")),
    ("network", ("network", "ls", "--no-trunc", "--format", "{{.ID}} {{.Name}}")),
)
# Counters that move by themselves, link-local addresses that the kernel gives a link a moment after it is up, and the
# comments in which iptables-save says when it ran.
RESTLESS = ("/nf_conntrack_count:", "/stat_refresh:", " fe80::", " ff00::", "firewall: #", "firewall: :")


def portrait(node: Node, *without: str) -> frozenset[str]:
    """Every line there is to say of a node; `without` are files that may change."""
    skipped = (*OF_OTHERS, *without)
    files = {
        f"file: {path} {what}"
        for root, place in ((Path(f"/proc/{node.init}/fd/{CHANGED}"), ""), *((node.path(own), own) for own in OWN))
        for path, what in _files(root, place)
        if not any(path == one or path.startswith(f"{one}/") for one in skipped)
    }
    processes = {f"process: {one.pid} {one.title}" for one in node.all_processes() if not one.argv[0].startswith("[")}
    told = node.run(("sh", "-c", TOLD), check=True).stdout.splitlines()
    return frozenset(files | processes | _objects(node) | {line for line in told if not _is_restless(line)})


def changes(before: frozenset[str], after: frozenset[str]) -> list[str]:
    return sorted([f"- {line}" for line in before - after] + [f"+ {line}" for line in after - before])


def _files(root: Path, place: str) -> Iterator[tuple[str, str]]:
    """Path in the node, and mode, owner, size, time and target; of a folder no size and time, its files have theirs."""
    for entry in os.scandir(root):
        inside, seen = f"{place}/{entry.name}", entry.stat(follow_symlinks=False)
        what = f"{stat.filemode(seen.st_mode)} {seen.st_uid}:{seen.st_gid}"
        if entry.is_dir(follow_symlinks=False):
            yield inside, what
            yield from _files(Path(entry.path), inside)
        else:
            target = f" -> {Path(entry.path).readlink()}" if entry.is_symlink() else ""
            yield inside, f"{what} {seen.st_rdev} {seen.st_size} {seen.st_mtime_ns}{target}"


def _objects(node: Node) -> set[str]:
    """What the node's container engine keeps, where it has one."""
    if not node.path(SOCKET).exists():
        return set()
    engine = ("docker", "-H", f"unix://{SOCKET}")
    return {
        f"{name}: {line}"
        for name, words in OBJECTS
        for line in node.run((*engine, *words), check=True).stdout.splitlines()
    }


def _is_restless(line: str) -> bool:
    return any(word in line for word in RESTLESS)
