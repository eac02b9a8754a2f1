"""What the memory guard writes, apart from its watch: a disk that takes nothing now must not stop it from looking.

Part of guard.py. When memory runs out, the kernel writes back all that it can, and an fsync may wait for minutes.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from typing import Callable

WAITING = 200  # files and lines that wait for the disk; more than that is dropped
STACK = 256 << 10  # bytes: locked in memory like all of the guard


class Disk:
    """Jobs done one after another by a thread of their own."""

    def __init__(self) -> None:
        self.jobs: queue.Queue[Callable[[], None]] = queue.Queue(WAITING)
        threading.stack_size(STACK)
        threading.Thread(target=self.work, daemon=True).start()

    def work(self) -> None:
        while True:
            job = self.jobs.get()
            with contextlib.suppress(OSError):  # a full disk must not end the guard
                job()

    def write(self, path: str, text: str) -> None:
        self.add(lambda: write(path, text))

    def append(self, path: str, line: str) -> None:
        self.add(lambda: append(path, line))

    def add(self, job: Callable[[], None]) -> None:
        with contextlib.suppress(queue.Full):
            self.jobs.put_nowait(job)

    def settle(self, seconds: float) -> None:
        """Until all that was given is on the disk, but no longer than this."""
        done = threading.Event()
        self.add(done.set)
        done.wait(seconds)


def write(path: str, text: str) -> None:
    """Whole and on the disk, or not at all."""
    handle = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def append(path: str, line: str) -> None:
    with open(path, "a") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
