"""Who we are on a node, and what its commands and files say. A part of programs that run on a node."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any, Dict, List, Optional

PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIMIT = 10.0


def output(*argv: str) -> Optional[str]:
    """What a command prints; None when it fails or is not there."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=LIMIT
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def content(path: str) -> Optional[str]:
    try:
        with open(os.path.expanduser(path), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def devices() -> List[str]:
    try:
        return sorted(os.listdir("/sys/class/infiniband"))
    except OSError:
        return []


def myself(*tools: str) -> Dict[str, Any]:
    """Who we are here, and what we have."""
    return {
        "user": os.geteuid(),
        "sudo": os.geteuid() == 0 or output("sudo", "-n", "true") is not None,
        "tools": [one for one in tools if shutil.which(one, path=PLACES)],
        "rdma": devices(),
    }
