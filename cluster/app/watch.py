"""Watch every node of a boot at once; a lost connection is made anew and counts as "unknown" until then."""

import time
from collections.abc import Callable
from threading import Condition, Event, Thread
from types import TracebackType
from typing import Self

from cluster.app.ranks import RUNTIME, head_question, head_sight, rank_of, sight, where
from cluster.app.session import Session
from cluster.errors import NodeError, SparkctlError, Unreadable
from cluster.model.settings import NodeSettings
from cluster.model.units import Seconds
from cluster.node.base import Node
from cluster.plan.boot import HeadSight, Observation, RankSight, Unknown
from cluster.probe.ranks import NodeLook, parse_look
from cluster.runtime.native import RAS, CompletionWish

TICK = 1.0  # seconds between two judgements when nothing new came
SILENT = 5.0  # a node that says nothing for so long is unknown, whatever TCP thinks
RETRY = 2.0


class Watch:
    """`looks` are the newest by node name. Used as a context manager; leaving it ends the programs on the nodes."""

    def __init__(
        self,
        session: Session,
        boot: str,
        *,
        completion_every: float | None = None,
        every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._boot = boot
        self._every = every
        self._wish = CompletionWish(
            Seconds(session.settings.watch.completion_timeout),
            Seconds(completion_every) if completion_every is not None else None,
        )
        self._clock = clock
        self._stop = Event()
        self._news = Condition()
        self._unread: dict[str, list[tuple[float, NodeLook]]] = {}
        self._heard: dict[str, float] = {}
        self._trouble: dict[str, str] = {}
        self._fatal: SparkctlError | None = None
        self._places: dict[str, dict[int, tuple[int, int]]] = {}
        self.looks: dict[str, NodeLook] = {}

    def __enter__(self) -> Self:
        now = self._clock()
        for node in self._session.settings.nodes:
            self._heard[node.name] = now
            Thread(target=self._follow, args=(node,), name=f"watch {node.name}", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()

    def observe(self) -> Observation:
        """Everything that came since the last call; waits for news, at most a tick."""
        with self._news:
            self._news.wait_for(lambda: bool(self._unread) or self._fatal is not None, TICK)
            unread, self._unread = self._unread, {}
            fatal = self._fatal
        if fatal is not None:
            raise fatal
        now = self._clock()
        ranks: list[RankSight] = []
        head = HeadSight()
        for node in self._session.settings.nodes:
            ranks += self._ranks_of(node, unread.get(node.name, []), now)
        for _, look in unread.get(self._session.settings.head.name, [])[-1:]:
            head = head_sight(look.head)
        return Observation(now, tuple(ranks), head)

    def _ranks_of(self, node: NodeSettings, looks: list[tuple[float, NodeLook]], now: float) -> list[RankSight]:
        rank = rank_of(self._session.settings, node.name)
        if looks:
            sights = [
                sight(one, look, at)
                for at, look in looks
                for one in look.ranks
                if (one.boot, one.rank) == (self._boot, rank)
            ]
            lines = tuple(line for each in sights for line in each.lines)
            return [RankSight(rank, sights[-1].process, lines, sights[-1].ras)] if sights else []
        silent = now - self._heard[node.name]
        trouble = self._trouble.get(node.name) or (f"no answer for {silent:.0f} s" if silent >= SILENT else "")
        return [RankSight(rank, Unknown(trouble))] if trouble else []

    def _follow(self, node: NodeSettings) -> None:
        """A thread per node: stream, and when the stream breaks, connect and stream again from the same place."""
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
            self._stop.wait(RETRY)

    def _stream(self, node: NodeSettings, connected: Node) -> None:
        is_head = node is self._session.settings.head
        command = RUNTIME.watch(
            where(self._session.settings, node),
            self._boot,
            head=head_question(self._session.settings) if is_head else None,
            completion=self._wish if is_head else None,
            ras=RAS,
            every=Seconds(self._every),
            places=self._places.get(node.name),
        )
        result = connected.stream(command, lambda line: self._take(node, line), self._stop)
        if not self._stop.is_set():
            words = result.err_text.strip().splitlines()[-1:] or ["no reason given"]
            self._say(node, f"the watching program ended with exit code {result.exit}: {words[0]}")

    def _take(self, node: NodeSettings, line: str) -> None:
        if not line.strip():
            return
        try:
            look = parse_look(line)
        except Unreadable as error:
            self._say(node, error.what)
            return
        with self._news:
            now = self._clock()
            self._heard[node.name] = now
            self._trouble.pop(node.name, None)
            self._unread.setdefault(node.name, []).append((now, look))
            self.looks[node.name] = look
            for rank in look.ranks:
                if rank.log.place is not None:
                    self._places.setdefault(node.name, {})[rank.rank] = rank.log.place
            self._news.notify()

    def _say(self, node: NodeSettings, trouble: str) -> None:
        with self._news:
            self._trouble[node.name] = trouble
