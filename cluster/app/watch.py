"""Watch every node of a boot at once; a lost connection is made anew and counts as "unknown" until then."""

import time
from collections.abc import Callable
from threading import Condition, Event, Thread
from types import TracebackType
from typing import Protocol, Self

from cluster.app.ranks import RUNTIME, fabric_address, head_question, head_sight, rank_of, sight, where
from cluster.app.session import Session
from cluster.errors import NodeError, SparkctlError, Unreadable
from cluster.model.settings import NodeSettings, Settings
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.node.base import Node
from cluster.plan.boot import Answered, Completion, HeadSight, Observation, RankSight, Unknown
from cluster.probe.ranks import HeadSeen, NodeLook, parse_look
from cluster.runtime.native import RAS, CompletionWish

TICK = 1.0  # seconds between two judgements when nothing new came
SILENT = 5.0  # a node that says nothing for so long is unknown, whatever TCP thinks
RETRY = 2.0


class Watching(Protocol):
    """Looks at a boot again and again. `looks` are the newest by node name."""

    @property
    def looks(self) -> dict[str, NodeLook]: ...

    def observe(self) -> Observation:
        """Everything that came since the last call; waits for news, at most a tick."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Sightings:
    """What the nodes of one boot have said since the last observation. Not safe to share between threads."""

    def __init__(self, settings: Settings, boot: str, now: float) -> None:
        self._settings = settings
        self._boot = boot
        self._unread: dict[str, list[tuple[float, NodeLook]]] = {}
        self._heard = {node.name: now for node in settings.nodes}
        self._trouble: dict[str, str] = {}
        self._places: dict[str, dict[int, tuple[int, int]]] = {}
        self._failed_at: float | None = None
        self.looks: dict[str, NodeLook] = {}

    @property
    def has_news(self) -> bool:
        return bool(self._unread)

    def question(self, node: NodeSettings, *, completion_every: float | None, every: float) -> Command:
        """What a node is asked; its log is read on from the last line that came."""
        is_head = node is self._settings.head
        rhythm = Seconds(completion_every) if completion_every is not None else None
        wish = CompletionWish(Seconds(self._settings.watch.completion_timeout), rhythm)
        return RUNTIME.watch(
            where(self._settings, node),
            self._boot,
            head=head_question(self._settings) if is_head else None,
            completion=wish if is_head else None,
            ras=RAS,
            fabric=fabric_address(self._settings, node),
            every=Seconds(every),
            places=self._places.get(node.name),
        )

    def take(self, node: str, line: str, now: float) -> None:
        """One line of a node's answer; an empty one is only a sign of life."""
        if not line.strip():
            return
        try:
            look = parse_look(line)
        except Unreadable as error:
            self.trouble(node, error.what)
            return
        self._heard[node] = now
        self._trouble.pop(node, None)
        self._unread.setdefault(node, []).append((now, look))
        self.looks[node] = look
        for rank in look.ranks:
            if rank.log.place is not None:
                self._places.setdefault(node, {})[rank.rank] = rank.log.place

    def trouble(self, node: str, what: str) -> None:
        """Why a node says nothing now."""
        self._trouble[node] = what

    def observation(self, now: float) -> Observation:
        """All of it, once."""
        unread, self._unread = self._unread, {}
        ranks = tuple(
            one for node in self._settings.nodes for one in self._ranks_of(node.name, unread.get(node.name, []), now)
        )
        asked = unread.get(self._settings.head.name, [])
        head = self._fresh(asked[-1][1].head) if asked else HeadSight()
        return Observation(now, ranks, head)

    def _fresh(self, seen: HeadSeen | None) -> HeadSight:
        """A look repeats the last completion until there is another; one failure must not count many times."""
        sight = head_sight(seen, self._settings)
        if seen is None or seen.completion is None or _is_good(sight.completion):
            return sight
        if seen.completion.at == self._failed_at:
            return HeadSight(sight.health, None, sight.counters)
        self._failed_at = seen.completion.at
        return sight

    def _ranks_of(self, name: str, looks: list[tuple[float, NodeLook]], now: float) -> list[RankSight]:
        rank = rank_of(self._settings, name)
        if looks:
            sights = [
                sight(one, look, at)
                for at, look in looks
                for one in look.ranks
                if (one.boot, one.rank) == (self._boot, rank)
            ]
            lines = tuple(line for each in sights for line in each.lines)
            return [RankSight(rank, sights[-1].process, lines, sights[-1].ras)] if sights else []
        silent = now - self._heard[name]
        trouble = self._trouble.get(name) or (f"no answer for {silent:.0f} s" if silent >= SILENT else "")
        return [RankSight(rank, Unknown(trouble))] if trouble else []


def _is_good(completion: Completion) -> bool:
    return completion is None or isinstance(completion, Answered)


class Watch:
    """A thread per node. Used as a context manager; leaving it ends the programs on the nodes."""

    def __init__(
        self,
        session: Session,
        boot: str,
        *,
        completion_every: float | None = None,
        every: float = 1.0,
        retry: float = RETRY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._completion_every = completion_every
        self._every = every
        self._retry = retry
        self._clock = clock
        self._stop = Event()
        self._news = Condition()
        self._sightings = Sightings(session.settings, boot, clock())
        self._fatal: SparkctlError | None = None

    @property
    def looks(self) -> dict[str, NodeLook]:
        return self._sightings.looks

    def __enter__(self) -> Self:
        for node in self._session.settings.nodes:
            Thread(target=self._follow, args=(node,), name=f"watch {node.name}", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()

    def observe(self) -> Observation:
        with self._news:
            self._news.wait_for(lambda: self._sightings.has_news or self._fatal is not None, TICK)
            if self._fatal is not None:
                raise self._fatal
            return self._sightings.observation(self._clock())

    def _follow(self, node: NodeSettings) -> None:
        """Stream, and when the stream breaks, connect and stream again from the same place."""
        while not self._stop.is_set():
            try:
                self._stream(node, self._session.node(node.name))
            except NodeError as error:
                self._say(node, error.what)
            except SparkctlError as error:
                with self._news:
                    self._fatal = error
                    self._news.notify()
                return
            self._stop.wait(self._retry)

    def _stream(self, node: NodeSettings, connected: Node) -> None:
        with self._news:
            command = self._sightings.question(node, completion_every=self._completion_every, every=self._every)
        result = connected.stream(command, lambda line: self._take(node, line), self._stop)
        if not self._stop.is_set():
            words = result.err_text.strip().splitlines()[-1:] or ["no reason given"]
            self._say(node, f"the watching program ended with exit code {result.exit}: {words[0]}")

    def _take(self, node: NodeSettings, line: str) -> None:
        with self._news:
            self._sightings.take(node.name, line, self._clock())
            self._news.notify()

    def _say(self, node: NodeSettings, trouble: str) -> None:
        with self._news:
            self._sightings.trouble(node.name, trouble)
