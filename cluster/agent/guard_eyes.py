"""What the guard sees of a node: memory, and by whom it is held."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Dict, List, Optional, Tuple

from cluster.agent.guard_rule import MIB, Sample, Tree
from cluster.agent.own import PAGE, Process, ours, processes, read

CALM, ALERT = 0.5, 0.1  # seconds between two looks
GPU_EVERY = 10.0


class Eyes:
    """Remembers nothing but which processes use the GPU, which takes a while to ask."""

    def __init__(self, ranks: List[str], meminfo_path: str) -> None:
        self.ranks, self.meminfo_path = ranks, meminfo_path
        self.gpu: Dict[int, int] = {}
        self.gpu_at = -1e9
        self.has_gpu = has_unified_memory()

    def look(self, at: float, is_alert: bool) -> Sample:
        if self.has_gpu and at - self.gpu_at >= (ALERT if is_alert else GPU_EVERY):
            seen = gpu_processes()
            self.gpu, self.gpu_at = self.gpu if seen is None else seen, at
        memory, table = meminfo(self.meminfo_path), processes()
        mine = self.mine(table)
        own_shared = max([shared(pid) for pid in mine] or [0])
        return Sample(
            at=at,
            available=memory["MemAvailable"],
            free=memory["MemFree"],
            shared=max(0, memory.get("Shmem", 0) - own_shared),
            slab=memory.get("SUnreclaim", 0),
            ours=sum(self.size(pid) for pid in mine) + own_shared,
            trees=self.trees({pid: one for pid, one in table.items() if pid not in mine and pid != os.getpid()}),
        )

    def mine(self, table: Dict[int, Process]) -> Dict[int, Process]:
        return {pid: one for folder in self.ranks for pid, one in ours(folder, table).items()}

    def trees(self, table: Dict[int, Process]) -> Tuple[Tree, ...]:
        """Processes by session, each called after its largest."""
        sessions: Dict[int, List[Tuple[int, int, str]]] = {}
        for pid, process in table.items():
            size = self.size(pid)
            if size > 0:
                sessions.setdefault(process.session, []).append((size, pid, process.comm))
        return tuple(
            Tree(session, max(members)[2], max(members)[1], sum(size for size, _, _ in members))
            for session, members in sessions.items()
        )

    def size(self, pid: int) -> int:
        """Anonymous memory is resident less shared; reading it costs a hundredth of asking for proportional sizes."""
        words = read("/proc/%d/statm" % pid).split()
        anonymous = max(0, int(words[1]) - int(words[2])) * PAGE if len(words) > 2 else 0
        return anonymous + self.gpu.get(pid, 0)


def shared(pid: int) -> int:
    """What a process has touched of shared memory; the ranks share theirs, so the largest says it all."""
    lines = read("/proc/%d/status" % pid).splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssShmem:")), 0)


def meminfo(path: str) -> Dict[str, int]:
    pairs = (line.split(":", 1) for line in read(path).splitlines() if ":" in line)
    return {name: int(rest.split()[0]) * 1024 for name, rest in pairs if rest.split()}


def has_unified_memory() -> bool:
    """A card with memory of its own takes none of the node's, and says how much it has; a GB10 says N/A."""
    return shutil.which("nvidia-smi") is not None and "N/A" in (nvidia_smi("--query-gpu=memory.total") or "")


def gpu_processes() -> Optional[Dict[int, int]]:
    """None when it cannot be told now: what was known is a better guess than nothing."""
    text = nvidia_smi("--query-compute-apps=pid,used_memory")
    if text is None:
        return None
    rows = (line.split(",") for line in text.splitlines())
    numbers = ([cell.strip() for cell in row] for row in rows if len(row) == 2)
    return {int(pid): int(mib) * MIB for pid, mib in numbers if pid.isdigit() and mib.isdigit()}


def nvidia_smi(query: str) -> Optional[str]:
    """None where it has no answer in time."""
    argv = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=2
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace")
