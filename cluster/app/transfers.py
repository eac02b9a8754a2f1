"""Several files of a repository on their way at once, and how far they are, told as one."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread

from cluster.app.session import raise_all
from cluster.errors import Interrupted, SparkctlError, StepFailed
from cluster.hub import Hub, Transfer, Watchful
from cluster.model.events import Emit, Progress, Severity, Told
from cluster.model.units import format_duration
from cluster.plan.fetch import part_name, parts_folder
from cluster.weights.manifest import Entry, FileFact, Manifest

STAGE = "fetch"
TOLD_EVERY = 0.5
SHOWN = 3


@dataclass(slots=True)
class Transfers:
    """Several files at once; what they have, told as one."""

    hub: Hub
    stop: Event
    emit: Emit
    node: str
    folder: str
    manifest: Manifest
    entries: tuple[Entry, ...]
    facts: Mapping[str, FileFact]
    watchful: Watchful
    many: int
    at: dict[str, int] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    errors: list[SparkctlError] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def run(self) -> int:
        """Bytes that came."""
        waiting = deque(self.entries)
        self.at = {one.name: min(one.size, self._begun(one.name)) for one in self.entries}
        had = sum(self.at.values())
        many = min(self.many, len(waiting))
        threads = [Thread(target=self._work, args=(waiting,), name=f"fetch {n}", daemon=True) for n in range(many)]
        try:
            for thread in threads:
                thread.start()
            self._watch(threads)
        except BaseException:
            self.stop.set()
            for thread in threads:
                thread.join(5)
            raise
        told = [one for one in self.errors if not isinstance(one, Interrupted)]
        raise_all(tuple(told or self.errors))
        return sum(one.size for one in self.entries) - had

    def _begun(self, name: str) -> int:
        return self.facts[name].part if name in self.facts else 0

    def _watch(self, threads: list[Thread]) -> None:
        moving = _Rate()
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(TOLD_EVERY / len(threads))
            done, total = sum(self.at.values()), sum(one.size for one in self.entries)
            rate = moving.at(time.monotonic(), done)
            self.emit(Progress(STAGE, self.node, done, total, "bytes", rate=rate, text=self._text(rate)))

    def _text(self, rate: float | None) -> str:
        """The files on their way, each with how far it is and how long it may take."""
        moving = [one for one in self.entries if 0 < self.at[one.name] < one.size and one.name not in self.whole]
        share = rate / len(moving) if rate and moving else None
        told = []
        for one in moving[:SHOWN]:
            left = f", {format_duration((one.size - self.at[one.name]) / share)} left" if share else ""
            told.append(f"{one.name} {100 * self.at[one.name] // one.size} %{left}")
        return "; ".join((f"{len(self.whole)} of {len(self.entries)} files", *told))

    def _work(self, waiting: "deque[Entry]") -> None:
        while not self.stop.is_set():
            with self.lock:
                if not waiting:
                    return
                one = waiting.popleft()
            part = Path(parts_folder(self.folder)) / part_name(one)
            transfer = Transfer(self.manifest.repo, self.manifest.revision, one, part, Path(self.folder) / one.name)
            try:
                self.hub.bring(transfer, self.watchful, self._moved(one.name), self._told)
                self.whole.add(one.name)
            except SparkctlError as error:
                self.errors.append(error)
                self.stop.set()
            except OSError as error:
                told = StepFailed(
                    f"{one.name} cannot be written: {error.strerror}", where=self.folder, fix="look at the disk"
                )
                self.errors.append(told)
                self.stop.set()

    def _moved(self, name: str) -> Callable[[int], None]:
        def moved(at: int) -> None:
            self.at[name] = at

        return moved

    def _told(self, text: str) -> None:
        self.emit(Told(Severity.WARNING, text, self.node))


class _Rate:
    """Bytes a second over the last ten seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=20)

    def at(self, now: float, done: int) -> float | None:
        self._seen.append((now, done))
        (then, before), spent = self._seen[0], now - self._seen[0][0]
        return (done - before) / spent if spent > 0 and then < now else None
