"""Where every process of a rank stands: Python stacks when py-spy is there, and what the kernel tells."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import Dict, List, Optional

from cluster.agent.own import Json, Process, boot_and_rank, folders_of, name_of, ours, processes, read, read_json

REFUSED = "py-spy was refused"


def stacks(request: Json) -> Json:
    table = processes()
    limit = float(request.get("limit") or 20.0)
    ranks = [stacks_of(folder, ours(folder, table), limit) for folder in folders_of(request)]
    return {"ranks": [rank for rank in ranks if rank["processes"]], "meminfo": read("/proc/meminfo")}


def stacks_of(folder: str, family: Dict[int, Process], limit: float) -> Json:
    """All processes at once, so that a stuck one costs the limit only once."""
    tool = find_py_spy(folder)
    dumps = {pid: start_dump(tool, pid) for pid in family} if tool else {}
    until = time.monotonic() + limit
    boot, rank = boot_and_rank(folder)
    seen = [
        {
            "pid": pid, "name": name_of(process), "state": process.state, "cpu": process.cpu,
            "python": read_dump(dumps[pid], until) if pid in dumps else None,
            "status": read("/proc/%d/status" % pid), "wchan": read("/proc/%d/wchan" % pid),
            "kernel": read("/proc/%d/stack" % pid),
        }
        for pid, process in family.items()
    ]  # fmt: skip
    missing = None if tool else "py-spy is neither beside the rank's program nor in PATH: no Python stacks"
    if any(one["python"] == REFUSED for one in seen):
        missing = refusal(read("/proc/sys/kernel/yama/ptrace_scope").strip())
    return {"dir": folder, "boot": boot, "rank": rank, "missing": missing, "processes": seen}


def refusal(scope: str) -> str:
    """What kept py-spy out, and how to let it in. Its own advice (sudo) is for a person at a terminal."""
    who = {"1": "only root and a parent", "2": "only root", "3": "nobody"}.get(scope)
    if not who:
        return REFUSED + ", so there are no Python stacks: not your rank, or a container forbids it; look as root"
    way = "a reboot without that setting" if scope == "3" else "sudo sysctl kernel.yama.ptrace_scope=0"
    reason = "kernel.yama.ptrace_scope is %s, so %s may look into a process; to allow it: %s" % (scope, who, way)
    return REFUSED + ", so there are no Python stacks: " + reason


def find_py_spy(folder: str) -> Optional[str]:
    program = read_json(os.path.join(folder, "rank.json")).get("program", "")
    return shutil.which("py-spy", path=os.path.dirname(program)) or shutil.which("py-spy")


def start_dump(tool: str, pid: int) -> subprocess.Popen[str]:
    """Non-blocking: py-spy would wait for ever on a process that is stopped or sits in a driver."""
    argv: List[str] = [tool, "dump", "--nonblocking", "--pid", str(pid)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


def read_dump(dump: subprocess.Popen[str], until: float) -> str:
    try:
        text, _ = dump.communicate(timeout=max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        dump.kill()
        dump.communicate()
        return "py-spy gave no answer in time"
    return REFUSED if text.startswith("Permission Denied") else text[:100000]
