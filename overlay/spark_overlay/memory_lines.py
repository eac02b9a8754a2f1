"""Lines that say how much memory each phase of the boot takes; while weights load, one every ten seconds.

They are also a sign of life: on a machine whose GPU shares the memory, nothing else tells a long load from a hang.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from spark_overlay.load_phases import BOOT

EVERY = 10.0  # seconds
MEMINFO = Path("/proc/meminfo")
GIB = 1 << 30

logger = logging.getLogger("vllm.spark_overlay")


class MemoryLines:
    name = "memory_lines"
    phases = BOOT

    @contextmanager
    def around(self, worker: Any, phase: str, arguments: tuple[Any, ...]) -> Iterator[None]:
        say("before", phase)
        ended = threading.Event()

        def tick() -> None:
            while not ended.wait(EVERY):
                say("during", phase)

        ticker = threading.Thread(target=tick, name="memory-lines", daemon=True)
        ticker.start()
        try:
            yield
        finally:
            ended.set()
            ticker.join()
            say("after", phase)


def say(when: str, phase: str) -> None:
    text = " ".join(f"{name}={amount / GIB:.2f}" for name, amount in memory().items())
    logger.info("spark_overlay: memory %s %s GiB %s", when, phase, text)


def memory() -> dict[str, int]:
    """Bytes, by name: of the machine, of this process, of the GPU where there is one."""
    seen = {name: value for name, value in meminfo().items() if name in ("MemAvailable", "MemFree")}
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    seen["rss"] = pages * 4096
    # Asking earlier would make the context that the first phase is to measure.
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        seen["cuda_free"], seen["cuda_total"] = torch.cuda.mem_get_info()
        seen["allocated"] = torch.cuda.memory_allocated()
        seen["reserved"] = torch.cuda.memory_reserved()
        seen["peak"] = torch.cuda.max_memory_allocated()
    return seen


def meminfo(path: Path = MEMINFO) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    pairs = (line.split()[:2] for line in path.read_text(encoding="ascii").splitlines())
    return {name.rstrip(":"): int(value) * 1024 for name, value in pairs}
