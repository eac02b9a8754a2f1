"""`logs`: lines of all ranks, interleaved by the time their node stamped on them."""

import heapq
import queue
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from threading import Event, Thread

from cluster.app.ranks import RUNTIME, look, newest, rank_of
from cluster.app.session import OpenNode, Session
from cluster.errors import Exit, NodeError, SettingsError, SparkctlError, StepFailed
from cluster.model.deployment import DeploymentId
from cluster.model.events import Emit, LogLine, Severity, Told
from cluster.model.settings import Settings
from cluster.node.base import Node
from cluster.probe.ranks import parse_log_line
from cluster.runtime.base import LogSource, RankSpec

SETTLE = 0.7  # seconds a followed line waits for an older one from another rank


@dataclass(frozen=True, slots=True)
class Wanted:
    ranks: tuple[int, ...] = ()
    lines: int | None = 200
    since: str | None = None
    follow: bool = False
    grep: str | None = None


def logs(settings: Settings, open_one: OpenNode, emit: Emit, wanted: Wanted) -> Exit:
    """Exit code: done, absent when there is nothing to read, unreachable when a rank's node could not be asked."""
    _check(settings, wanted)
    with Session(settings, open_one, emit) as session:
        for error in session.missing.values():
            emit(Told(Severity.WARNING, f"its log is not shown: {error.what}", error.where))
        looks = look(session, ask_head=False, log_lines=0)
        boot = newest(one for one in looks.values() if not isinstance(one, NodeError))
        if not boot:
            emit(Told(Severity.NOTE, f"there is no log: no rank of {settings.deployment} was found"))
            return Exit.UNREACHABLE if session.missing else Exit.ABSENT
        sources = _sources(session, DeploymentId(settings.deployment, boot), wanted)
        if wanted.follow:
            _follow(session, sources, emit)
        else:
            _merge(session, sources, emit)
        return Exit.UNREACHABLE if session.missing else Exit.DONE


def _check(settings: Settings, wanted: Wanted) -> None:
    """What can be refused without asking anybody."""
    ranks = range(len(settings.nodes))
    for rank in wanted.ranks:
        if rank not in ranks:
            raise SettingsError(f"there is no rank {rank}", fix=f"ranks are {' and '.join(map(str, ranks))}")
    try:
        re.compile(wanted.grep or "")
    except re.error as error:
        raise SettingsError(f"--grep {wanted.grep}: {error}", fix="write a regular expression of Python") from error


def _sources(session: Session, which: DeploymentId, wanted: Wanted) -> dict[str, LogSource]:
    settings = session.settings
    found = {}
    for node in settings.nodes:
        rank = rank_of(settings, node.name)
        if node.name in session.nodes and (not wanted.ranks or rank in wanted.ranks):
            spec = RankSpec(rank, node.name, (), (), state_dir=node.state_dir)
            found[node.name] = RUNTIME.log(
                spec,
                which,
                lines=wanted.lines if wanted.since is None else None,
                since=wanted.since,
                follow=wanted.follow,
                grep=wanted.grep,
            )
    return found


def _merge(session: Session, sources: dict[str, LogSource], emit: Emit) -> None:
    def read(node: Node) -> list[LogLine]:
        source = sources.get(node.name)
        if source is None:
            return []
        lines: list[LogLine] = []
        result = node.stream(source.command, lambda line: lines.extend(_line(source, line)))
        _succeeded(source, result.exit, result.err_text)
        return _dated(lines)

    for line in heapq.merge(*session.each(read).values(), key=lambda one: one.at):
        emit(line)


def _dated(lines: Iterable[LogLine]) -> list[LogLine]:
    """A line without a time stays with the one before it."""
    found: list[LogLine] = []
    for line in lines:
        found.append(line if line.at or not found else replace(line, at=found[-1].at))
    return found


def _follow(session: Session, sources: dict[str, LogSource], emit: Emit) -> None:
    """Until interrupted, or until every stream ended. Ctrl-C closes the streams; the ranks are not touched."""
    stop, arrived = Event(), queue.Queue[LogLine | SparkctlError | None]()
    for name, source in sources.items():
        Thread(target=_pump, args=(session.node(name), source, arrived.put, stop), daemon=True).start()
    try:
        _drain(arrived, len(sources), emit)
    finally:
        stop.set()


def _pump(node: Node, source: LogSource, put: Callable[[LogLine | SparkctlError | None], None], stop: Event) -> None:
    def take(line: str) -> None:
        for one in _line(source, line):
            put(one)

    try:
        result = node.stream(source.command, take, stop)
        if not stop.is_set():
            _succeeded(source, result.exit, result.err_text)
    except SparkctlError as error:
        put(error)
    put(None)


def _drain(arrived: "queue.Queue[LogLine | SparkctlError | None]", open_streams: int, emit: Emit) -> None:
    waiting: list[tuple[str, int, float, LogLine]] = []
    count = 0
    while open_streams or waiting:
        try:
            one = arrived.get(timeout=0.2)
        except queue.Empty:
            one = ...  # type: ignore[assignment]
        match one:
            case None:
                open_streams -= 1
            case SparkctlError():
                emit(Told(Severity.WARNING, f"its log ended: {one.what}", one.where))
            case LogLine():
                count += 1
                heapq.heappush(waiting, (one.at, count, time.monotonic(), one))
        while waiting and (not open_streams or time.monotonic() - waiting[0][2] >= SETTLE):
            emit(heapq.heappop(waiting)[3])


def _line(source: LogSource, text: str) -> list[LogLine]:
    """An empty line is only a sign of life."""
    if not text:
        return []
    seen = parse_log_line(text)
    return [LogLine(source.rank, source.node, seen.at, seen.text)]


def _succeeded(source: LogSource, code: int, said: str) -> None:
    if code != 0:
        raise StepFailed(
            f"reading the log of rank {source.rank} ended with exit code {code}",
            where=f"{source.node}:{source.path}",
            evidence=said.strip().splitlines()[-3:],
        )
