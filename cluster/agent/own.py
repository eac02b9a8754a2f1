"""Which processes on this node belong to a rank of ours; part of the programs sent to a node."""

from __future__ import annotations

import glob
import json
import os
import pwd
import shutil
import signal
import sys
import time
from typing import Any, Dict, List, NamedTuple, NoReturn, Optional, Set, Tuple

Json = Dict[str, Any]
MARK = "SPARKCTL_RANK_DIR"
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
_MARKS: Dict[Tuple[int, int], str] = {}
_GROUPS: Dict[Tuple[int, int], str] = {}


class Process(NamedTuple):
    pid: int
    ppid: int
    session: int
    state: str
    threads: int
    ticks: int
    cpu: float
    rss: int
    comm: str


def processes() -> Dict[int, Process]:
    """Everything that runs. A zombie without other threads holds nothing and counts as gone."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    table = {one.pid: one for one in found if one and not (one.state in "ZX" and one.threads <= 1)}
    for known in (_MARKS, _GROUPS):
        for pid, ticks in [key for key in known if key[0] not in table or table[key[0]].ticks != key[1]]:
            del known[pid, ticks]
    return table


def read_process(pid: int) -> Optional[Process]:
    text = read("/proc/%d/stat" % pid)
    if not text:
        return None
    comm = text[text.index("(") + 1 : text.rindex(")")]
    field = text[text.rindex(")") + 2 :].split()
    cpu = (int(field[11]) + int(field[12])) / TICKS
    rss = int(field[21]) * PAGE
    return Process(pid, int(field[1]), int(field[3]), field[0], int(field[17]), int(field[19]), cpu, rss, comm)


def shim_of(folder: str, table: Dict[int, Process]) -> Optional[Process]:
    """The living shim. A pid alone proves nothing: it may belong to somebody else by now."""
    rank = read_json(os.path.join(folder, "rank.json"))
    process = table.get(rank.get("pid", 0))
    if not process or process.ticks != rank.get("ticks") or rank.get("kernel_boot") != kernel_boot():
        return None
    return process if folder in words_of(process.pid) else None


def ours(folder: str, table: Dict[int, Process]) -> Dict[int, Process]:
    """Every process proven to be of this rank, the shim included. Several witnesses, as none sees all:

    a server that sets its title may overwrite its environ, a killed shim leaves orphans that descend from init,
    a grandchild may leave the session, and not every node has systemd.
    """
    rank, seen = read_json(os.path.join(folder, "rank.json")), read_json(os.path.join(folder, "processes.json"))
    shim = shim_of(folder, table)
    proven: Set[int] = {shim.pid} if shim else set()
    pid, ticks = rank.get("box") or (0, 0)  # process 1 of its container
    if pid in table and table[pid].ticks == ticks and rank.get("kernel_boot") == kernel_boot():
        proven.add(pid)
    if seen.get("kernel_boot") == kernel_boot():
        proven |= {pid for pid, ticks in seen.get("seen", ()) if pid in table and table[pid].ticks == ticks}
    proven |= {pid for pid, process in table.items() if is_marked(process, folder, rank.get("unit"))}
    # A session number is not given out again while one member lives: one proven member proves them all.
    if any(table[pid].session == rank.get("session") for pid in proven):
        proven |= {pid for pid in table if table[pid].session == rank["session"]}
    family = proven | descendants(proven, table)
    return {pid: table[pid] for pid in sorted(family - {os.getpid()})}


def descendants(roots: Set[int], table: Dict[int, Process]) -> Set[int]:
    found = set(roots)
    while True:
        more = {pid for pid, process in table.items() if pid not in found and process.ppid in found}
        if not more:
            return found - roots
        found |= more


def is_marked(process: Process, folder: str, unit: Optional[str]) -> bool:
    """A process is born with its mark and in its group, so each is asked once: a watch looks at hundreds every second.

    Only the shim may be seen before it got them; what it wrote of itself proves it.
    """
    if process.rss == 0:  # the kernel's own threads
        return False
    key = (process.pid, process.ticks)
    if key not in _MARKS:
        words = read("/proc/%d/environ" % process.pid).split("\0")
        marks = [word[len(MARK) + 1 :] for word in words if word.startswith(MARK + "=")]
        _MARKS[key] = marks[0] if marks else ""
    if _MARKS[key] == folder:
        return True
    if unit and key not in _GROUPS:
        _GROUPS[key] = read("/proc/%d/cgroup" % process.pid)
    return bool(unit) and ("/%s.service" % unit) in _GROUPS[key]


def name_of(process: Process) -> str:
    """The title that a process gave itself, else the name of its program."""
    words = [word for word in words_of(process.pid) if word]
    return words[0][:80] if len(words) == 1 else process.comm


def words_of(pid: int) -> List[str]:
    return read("/proc/%d/cmdline" % pid).split("\0")


def send(pid: int, ticks: Optional[int], number: int) -> None:
    """Signal exactly this process: between looking and signalling, its number could have gone to another."""
    try:
        handle = os.pidfd_open(pid)
    except (ProcessLookupError, AttributeError):  # a Python built for older kernels has no such call
        return send_by_number(pid, ticks, number)
    try:
        if is_same(pid, ticks):
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):  # in a container it may be another user's: the engine ends that
        pass
    finally:
        os.close(handle)


def send_by_number(pid: int, ticks: Optional[int], number: int) -> None:
    try:
        if is_same(pid, ticks):
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def is_same(pid: int, ticks: Optional[int]) -> bool:
    process = read_process(pid)
    return process is not None and (ticks is None or process.ticks == ticks)


def read(path: str) -> str:
    """The text of a file, empty when it cannot be read: processes end while we look.

    Without a file object, which costs more than the look itself at /proc.
    """
    parts = []
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while True:
                part = os.read(descriptor, 1 << 16)
                if not part:
                    break
                parts.append(part)
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    return b"".join(parts).decode("utf-8", "replace")


def read_json(path: str) -> Json:
    try:
        value = json.loads(read(path) or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def kernel_boot() -> str:
    return read("/proc/sys/kernel/random/boot_id").strip()


def booted_at() -> float:
    """When this kernel started, as a time; the hours in which the machine slept count."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def memory() -> Tuple[int, int, int]:
    """Total, free and available bytes."""
    lines = dict(line.split(":", 1) for line in read("/proc/meminfo").splitlines() if ":" in line)
    total, free, available = (int(lines[key].split()[0]) * 1024 for key in ("MemTotal", "MemFree", "MemAvailable"))
    return total, free, available


def stamp(at: float) -> str:
    """`2026-11-30T17:30:00.123Z`: sorts as text."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + ".%03dZ" % (at % 1 * 1000)


def folders_of(request: Json) -> List[str]:
    """The rank folders that a request is about: those it names, or all boots of a deployment, oldest first."""
    if "dirs" in request:
        return [whole_path(folder) for folder in request["dirs"]]
    boots = os.path.join(whole_path(request["root"]), "deployments", request["deployment"], "boots")
    folders = sorted(glob.glob(glob.escape(boots) + "/*/rank[0-9]*"))
    wanted = request.get("ranks")
    return [folder for folder in folders if wanted is None or boot_and_rank(folder)[1] in wanted]


def boot_and_rank(folder: str) -> Tuple[str, int]:
    boot, rank = folder.split(os.sep)[-2:]
    return boot, int(rank[4:])


def whole_path(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def fail(code: int, sentence: str) -> NoReturn:
    print(json.dumps({"error": sentence}), flush=True)
    sys.exit(code)


def systemd_manager() -> Optional[str]:
    """`system` for root, `user` where the user's units outlive the login, None where a session of our own must do."""
    if not os.path.isdir("/run/systemd/system") or not shutil.which("systemd-run"):
        return None
    if os.getuid() == 0:
        return "system"
    lingers = os.path.exists("/var/lib/systemd/linger/" + pwd.getpwuid(os.getuid()).pw_name)
    return "user" if lingers and os.path.exists("/run/user/%d/systemd/private" % os.getuid()) else None
