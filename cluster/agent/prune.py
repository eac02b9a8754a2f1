"""Remove what old boots and old versions left on this node, so that our folders stay bounded."""

from __future__ import annotations

import fcntl
import glob
import os
import re
import shutil
from typing import Dict, List

from cluster.agent.own import Process, ours, processes

BOOT = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")
PROGRAM = re.compile(r"rank-[0-9a-f]{12}\.py")
KEEP = 10
MOST = 50  # at one time: nobody waits long for a launch because of old logs


def prune(folder: str, program: str) -> None:
    """Called before the rank in `folder` runs; what cannot be removed stays, and never keeps a rank from running."""
    try:
        prune_boots(os.path.dirname(folder))
        prune_programs(program)
    except OSError:
        pass  # a folder that cannot even be listed: the launch will say so, in its own words


def prune_boots(current: str) -> None:
    """All but the newest ten boots, the current one and whatever still lives; logs and receipts go with them."""
    boots = os.path.dirname(current)
    if os.path.basename(boots) != "boots" or not BOOT.fullmatch(os.path.basename(current)):
        return
    named = sorted(name for name in os.listdir(boots) if BOOT.fullmatch(name) and is_folder(os.path.join(boots, name)))
    old = [name for name in named[:-KEEP] if name != os.path.basename(current)][:MOST]
    table = processes() if old else {}
    for name in old:
        set_aside(boots, name, table)
    for name in os.listdir(boots):
        if name.startswith(".") and BOOT.fullmatch(name[1:]):
            shutil.rmtree(os.path.join(boots, name), ignore_errors=True)


def set_aside(boots: str, name: str, table: Dict[int, Process]) -> None:
    """Rename a dead boot out of everybody's sight. Of two that try at once one renames, and the other finds nothing.

    A shim holds the lock of its rank, also on another machine that shares this folder.
    """
    locks: List[int] = []
    try:
        for rank in glob.glob(glob.escape(os.path.join(boots, name)) + "/rank[0-9]*"):
            if ours(rank, table):
                return
            if os.path.exists(os.path.join(rank, "lock")):
                locks.append(os.open(os.path.join(rank, "lock"), os.O_RDWR | os.O_CLOEXEC))
                fcntl.flock(locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(os.path.join(boots, name), os.path.join(boots, "." + name))
    except OSError:
        pass  # held, not ours to remove, or gone by now
    finally:
        for lock in locks:
            os.close(lock)


def prune_programs(current: str) -> None:
    """Launchers of older versions; a running shim has read its own long ago."""
    place = os.path.dirname(current)
    paths = [os.path.join(place, name) for name in os.listdir(place) if PROGRAM.fullmatch(name)]
    by_age = sorted((path for path in paths if path != current), key=os.path.getmtime)
    for path in by_age[: -(KEEP - 1)]:
        os.unlink(path)


def is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
