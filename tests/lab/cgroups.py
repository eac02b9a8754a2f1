"""Control groups for a node whose process 1 is systemd: its own branch in every hierarchy, removed with the lab."""

from __future__ import annotations

import errno
from pathlib import Path

from tests.lab.node import until

# systemd manages these in version 1; the others stay as they are, and a cpuset would have to be filled in first.
MANAGED = {"cpu", "cpuacct", "memory", "devices", "blkio", "pids", "name=systemd"}


def branches(name: str) -> tuple[Path, ...]:
    """Below the group this process is in, one new group for each hierarchy; nothing is made yet."""
    own = dict(_own_groups())
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split()[0], *after.split()[1:3]
        names = {""} if kind == "cgroup2" else MANAGED & set(options.split(",")) if kind == "cgroup" else set()
        if names and (group := own.get(next(iter(names)))) is not None:
            found.append(Path(before.split()[4]) / group.lstrip("/") / name)
    return tuple(found)


def _own_groups() -> list[tuple[str, str]]:
    rows = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    return [(name, group) for _, names, group in rows for name in names.split(",")]


def remove(branch: Path) -> None:
    """Only directories count, its files belong to the kernel, which lets go of the last process a moment late."""
    until(lambda: _is_gone(branch), f"{branch} is empty and removed")


def _is_gone(branch: Path) -> bool:
    try:
        below = [path for path in branch.iterdir() if path.is_dir()]
        if all([_is_gone(path) for path in below]):  # noqa: C419  a busy one does not keep the others
            branch.rmdir()
            return True
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
    return False
