"""Nodes and the ranks on them, answering as our node programs do. Time is a number that only a test moves.

    cluster = FakeCluster()
    cluster.plays(1, "3 says RuntimeError: no such file; 3 exits 1")
    start(cluster.settings, cluster.open, cluster.emit, pace=cluster.pace)

What a rank does is written as `SECONDS WORD ...`, seconds after its launch: `says TEXT`, `exits CODE`, `killed SIGNAL`,
`freezes` (lives, and does nothing any more), `stopped` (the same, in state T), `serves` (rank 0: the API is up).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock

from cluster.app.pace import Pace
from cluster.app.session import Session
from cluster.app.start import start
from cluster.app.watch import Sightings
from cluster.errors import NodeError, Unreachable
from cluster.model.events import Event
from cluster.model.settings import NodeSettings, Settings
from cluster.node.base import Node
from cluster.plan.boot import Observation
from cluster.probe.ranks import NodeLook
from tests.build import pair
from tests.fakes.host import Act, FakeHost
from tests.fakes.node import FakeNode

BEGAN = datetime(2026, 11, 30, 17, 0, tzinfo=UTC).timestamp()
BOOT = (
    "0 says non-default args: {{}}; 1 says Initializing a V1 LLM engine (v0.32.0) with config: model='/m'; "
    "2 says world_size=2 rank={rank} local_rank=0 distributed_init_method=tcp://10.40.0.1:29521 backend=nccl; "
    "3 says rank {rank} in world size 2 is assigned as DP rank 0; 4 says Loading weights took 1.00 seconds; "
    "5 says GPU KV cache size: 1,000 tokens; 6 serves"
)
AT_ONCE = "0 says non-default args: {{}}; 0 serves"
ENDS = ("exits", "killed", "freezes", "stopped")


class Clock:
    """Seconds; it stands still unless somebody sleeps. `at` does something when a moment comes."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        due = [act for at, act in self._due if at <= self.now]
        self._due = [(at, act) for at, act in self._due if at > self.now]
        for act in due:
            act()

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        self._due.append((seconds, act))


@dataclass
class FakeCluster:
    """Every node of the settings as a host of its own. `course` is what ranks do that were told nothing else."""

    settings: Settings = field(default_factory=pair)
    course: str = BOOT
    clock: Clock = field(default_factory=Clock)
    events: list[Event] = field(default_factory=list)
    hosts: dict[str, FakeHost] = field(default_factory=dict)
    acts: list[str] = field(default_factory=list)
    _courses: dict[int, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        for node in self.settings.nodes:
            self.hosts[node.name] = FakeHost(
                node.name,
                f"{node.address}@enp1s0f1np1",
                now=lambda: BEGAN + self.clock.now,
                play=self._play,
                is_whole=self._is_whole,
                acted=self._acted,
            )

    def __getitem__(self, name: str) -> FakeHost:
        return self.hosts[name]

    def open(self, node: NodeSettings) -> Node:
        host = self.hosts[node.name]
        if host.gone:
            raise Unreachable("no route to host", where=node.name)
        opened = FakeNode(
            node.name, {("python3",): host.answer}, host.files, host.home, commands=host.commands, modes=host.modes
        )
        opened.full_disk = host.full_disk
        host.connections.append(opened)
        return opened

    def emit(self, event: Event) -> None:
        self.events.append(event)

    @property
    def pace(self) -> Pace:
        return Pace(self.clock, self.clock.sleep, lambda session, boot: FakeWatch(self, session, boot))

    def plays(self, rank: int, course: str) -> None:
        self._courses[rank] = course

    def loses(self, name: str, at: float) -> None:
        """From then on the node cannot be reached; its rank goes on."""
        self.clock.at(at, self.hosts[name].go)

    def interrupted(self, at: float) -> None:
        """Ctrl-C while we wait."""
        self.clock.at(at, _interrupt)

    def start(self) -> None:
        """A real start; what was said and done until it served is forgotten."""
        start(self.settings, self.open, self.emit, pace=self.pace)
        self.events.clear()
        self.acts.clear()

    def living(self) -> list[str]:
        return [
            f"rank {rank.number} on {host.name}"
            for host in self.hosts.values()
            for rank in host.ranks
            if rank.lives(BEGAN + self.clock.now)
        ]

    def of(self, *kinds: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kinds)]

    def _play(self, rank: int) -> list[Act]:
        """The common course, up to where this rank's own ends it."""
        own = _parsed(self._courses.get(rank, ""), rank)
        until = min((at for at, word, _ in own if word in ENDS), default=float("inf"))
        common = [one for one in _parsed(self.course, rank) if one[0] < until and (rank == 0 or one[1] != "serves")]
        return sorted([*common, *own], key=lambda one: one[0])

    def _is_whole(self) -> bool:
        now = BEGAN + self.clock.now
        ranks = [rank for host in self.hosts.values() for rank in host.ranks]
        return sum(rank.lives(now) and not rank.is_frozen(now) for rank in ranks) >= len(self.hosts)

    def _acted(self, what: str) -> None:
        with self._lock:
            self.acts.append(what)


class FakeWatch:
    """A watch without threads: each observation is a second later, and asks every node once."""

    def __init__(self, cluster: FakeCluster, session: Session, boot: str) -> None:
        self._cluster = cluster
        self._session = session
        self._sightings = Sightings(session.settings, boot, cluster.clock())

    @property
    def looks(self) -> dict[str, NodeLook]:
        return self._sightings.looks

    def observe(self) -> Observation:
        self._cluster.clock.sleep(1)
        for node in self._session.settings.nodes:
            question = self._sightings.question(node, completion_every=None, every=1.0)
            try:
                self._session.node(node.name).stream(question, lambda line, name=node.name: self._take(name, line))  # type: ignore[misc]
            except NodeError as error:
                self._sightings.trouble(node.name, error.what)
        return self._sightings.observation(self._cluster.clock())

    def _take(self, name: str, line: str) -> None:
        self._sightings.take(name, line, self._cluster.clock())

    def __enter__(self) -> "FakeWatch":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        return None


def _parsed(course: str, rank: int) -> list[Act]:
    found = []
    for text in course.format(rank=rank).split("; ") if course else ():
        at, word, *rest = text.split(" ", 2)
        found.append((float(at), word, rest[0] if rest else ""))
    return found


def _interrupt() -> None:
    raise KeyboardInterrupt
