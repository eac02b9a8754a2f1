"""Say how much memory a node has, who holds it, and what may end processes when it runs short. Runs on a node.

Argument: JSON {"most": n}. Answer: JSON {"meminfo": TEXT, "pressure": TEXT,
"holders": [{"name", "pid", "bytes", "pids"}, ...], "gpu": TEXT | null, "gpus": TEXT | null, "has_gpu": bool,
"shm": {"size", "free"} | null, "killers": {SERVICE: STATE}, "machine": kernel boot id}.

A holder is a container, a service, or the processes of one session; its bytes are anonymous memory (resident less
shared, from /proc/PID/statm), as shared pages and the page cache are nobody's alone. `gpu` is nvidia-smi's list of
processes and `gpus` its own memory figures, which a GB10 answers with N/A.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

LIMIT = 10.0
KILLERS = ("earlyoom", "systemd-oomd", "nohang")
PAGE = os.sysconf("SC_PAGE_SIZE")
CONTAINER = re.compile(r"(?:docker|libpod|containerd|cri-containerd)[-/]([0-9a-f]{64})")
UNIT = re.compile(r"/([^/]+)\.service(?:/|$)")


class Process(NamedTuple):
    pid: int
    session: int
    comm: str
    anon: int
    group: str


def read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def said(argv: List[str]) -> Optional[str]:
    """What a tool prints, whatever its exit code; None when it is not there or hangs."""
    program = shutil.which(argv[0], path=os.environ.get("PATH", os.defpath) + ":/usr/local/bin:/usr/sbin:/sbin")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT,
            check=False,
            env=dict(os.environ, LC_ALL="C"),
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace")


def processes() -> List[Process]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        stat, statm = read("/proc/%s/stat" % name), read("/proc/%s/statm" % name).split()
        if not stat or len(statm) < 3 or statm[1] == "0":
            continue  # gone meanwhile, or one of the kernel's own
        comm = stat[stat.index("(") + 1 : stat.rindex(")")]
        session = int(stat[stat.rindex(")") + 2 :].split()[3])
        anon = (int(statm[1]) - int(statm[2])) * PAGE
        found.append(Process(int(name), session, comm, anon, read("/proc/%s/cgroup" % name)))
    return found


def owner(process: Process, containers: Dict[str, str]) -> Tuple[str, str]:
    """(key, name or "") of what a process belongs to; no name: it is called after its largest process."""
    container = CONTAINER.search(process.group)
    if container:
        return container[1], containers.get(container[1], "container " + container[1][:12])
    unit = UNIT.findall(process.group)
    if unit and not unit[-1].startswith("user@"):
        return "unit " + unit[-1], unit[-1]
    return "session %d" % process.session, ""


def holders(most: int) -> List[Dict[str, Any]]:
    everything = processes()
    listing = (
        said(["docker", "ps", "--no-trunc", "--format", "{{.ID}} {{.Names}}"])
        if any(CONTAINER.search(one.group) for one in everything)
        else None
    )
    containers = dict(line.split(" ", 1) for line in (listing or "").splitlines() if " " in line)
    members: Dict[str, List[Process]] = {}
    names: Dict[str, str] = {}
    for process in everything:
        key, name = owner(process, containers)
        members.setdefault(key, []).append(process)
        names[key] = name
    found: List[Dict[str, Any]] = []
    for key, group in members.items():
        largest = max(group, key=lambda one: one.anon)
        size = sum(one.anon for one in group)
        pids = [one.pid for one in group]
        found.append({"name": names[key] or largest.comm, "pid": largest.pid, "bytes": size, "pids": pids})
    found.sort(key=lambda one: -one["bytes"])
    return found[:most]


def shared_memory() -> Optional[Dict[str, int]]:
    try:
        seen = os.statvfs("/dev/shm")
    except OSError:
        return None
    return {"size": seen.f_blocks * seen.f_frsize, "free": seen.f_bavail * seen.f_frsize}


def killers() -> Dict[str, str]:
    """`systemctl is-active` prints one state per line, in the order asked."""
    states = (said(["systemctl", "is-active", *KILLERS]) or "").split()
    return {name: states[place] for place, name in enumerate(KILLERS)} if len(states) == len(KILLERS) else {}


def main() -> None:
    want = json.loads(sys.argv[1])
    query = ["--format=csv,noheader,nounits"]
    json.dump(
        {
            "meminfo": read("/proc/meminfo"),
            "pressure": read("/proc/pressure/memory"),
            "holders": holders(int(want.get("most", 12))),
            "gpu": said(["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", *query]),
            "gpus": said(["nvidia-smi", "--query-gpu=name,memory.total,memory.used", *query]),
            "has_gpu": os.path.exists("/dev/nvidiactl"),
            "shm": shared_memory(),
            "killers": killers(),
            "machine": read("/proc/sys/kernel/random/boot_id").strip(),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
