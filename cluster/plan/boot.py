"""The values of a watched boot: what is seen at one moment, the limits, the state between moments, and the verdicts."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from cluster.model.fabric import NOTHING_SAID, Transport
from cluster.plan.loglines import Phase
from cluster.probe.ras import RasReport
from cluster.probe.vllm_metrics import Counters

# ---- what is seen at one moment


@dataclass(frozen=True, slots=True)
class Alive:
    """Every process the rank needs is there. gpu_watts only from a GPU whose idle draw is known (GB10), else None."""

    cpu_seconds: float | None = None
    gpu_watts: float | None = None


@dataclass(frozen=True, slots=True)
class Exited:
    """There is an exit record: negative or 128+n is a signal.

    asked  sparkctl ended it, so it accuses nobody
    at     when it ended, on the clock of Observation.now; None: when it was seen
    words  what its launcher or its engine knows of the end beside the code: memory ran out, it was started again
    """

    code: int
    asked: bool = False
    at: float | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """The node answered "not running" and has no exit record; such a poll may be racy, so it must be repeated.

    orphans: processes that live on after the shim above them was killed. They hold memory and ports, and serve nobody.
    """

    orphans: int = 0


@dataclass(frozen=True, slots=True)
class Rebooted:
    """Its node has booted anew since the launch, and the rank went with it.

    at    when it ended, or when the node booted where nothing tells; on the clock of Observation.now
    when  that the node booted, for people
    """

    at: float
    when: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The node did not answer (ssh failed, timed out); says nothing about the rank."""

    reason: str


Process = Alive | Exited | Gone | Rebooted | Unknown


@dataclass(frozen=True, slots=True)
class LogLine:
    """One raw line of a rank's log and when we received it, on the clock of Observation.now."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class RankSight:
    """What one poll says about one rank: its process, its new log lines, its node's RAS answer (None: not asked)."""

    rank: int
    process: Process
    lines: tuple[LogLine, ...] = ()
    ras: RasReport | None = None


class Silence(Enum):
    """No status code from /health, and why."""

    NOT_ASKED = "not asked"
    REFUSED = "connection refused"
    UNANSWERED = "no answer"


Health = int | Silence


@dataclass(frozen=True, slots=True)
class Answered:
    """The one-token completion came back with a token."""


@dataclass(frozen=True, slots=True)
class HttpError:
    """The completion was answered with an error status."""

    status: int
    said: str = ""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The completion was not answered within so many seconds."""

    after: float


Completion = Answered | HttpError | TimedOut | None
"""None: no completion was tried, or it could not be sent (health says why)."""


@dataclass(frozen=True, slots=True)
class HeadSight:
    """What one poll says about the endpoint; counters is None when /metrics was not asked or not readable."""

    health: Health = Silence.NOT_ASKED
    completion: Completion = None
    counters: Counters | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything seen at one moment; a rank that was not looked at this time may be left out."""

    now: float
    ranks: tuple[RankSight, ...]
    head: HeadSight = field(default_factory=HeadSight)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds unless said. `stalled` must be below VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS, or vLLM ends the hang first.

    proof  the part of the overlay that every rank's log must name as active before a token counts; empty for none
    """

    wall: float = 1500.0
    quiet: float = 420.0
    stalled: float = 60.0
    peer_note: float = 30.0
    grace: float = 3.0
    ras_silent: float = 5.0
    gone_answers: int = 3
    lost_answers: int = 10
    idle_watts: float = 30.0
    proof: str = ""


# ---- verdicts


@dataclass(frozen=True, slots=True)
class Loading:
    """On its way; text says how far, for people."""

    text: str


@dataclass(frozen=True, slots=True)
class Serving:
    """All ranks live and a token was made; proof says how we know."""

    since: float
    proof: str


@dataclass(frozen=True, slots=True)
class Died:
    """The first cause, named: rank is the culprit (None: cannot be said), exit its exit code where known."""

    rank: int | None
    cause: str
    evidence: tuple[str, ...] = ()
    exit: int | None = None


@dataclass(frozen=True, slots=True)
class Hung:
    """Processes live, nothing moves; `since` is when something last moved. Withdrawn when things move again."""

    ranks: tuple[int, ...]
    since: float
    cause: str


@dataclass(frozen=True, slots=True)
class OutOfTime:
    """The wall limit passed before the first token."""

    limit: float
    text: str


@dataclass(frozen=True, slots=True)
class CannotTell:
    """These nodes have not answered for so long that nothing can be said."""

    nodes: tuple[str, ...]
    reasons: tuple[str, ...]


Verdict = Loading | Serving | Died | Hung | OutOfTime | CannotTell

# ---- state between moments


@dataclass(frozen=True, slots=True)
class Member:
    """Who a rank is: its number, its node, and its address on the fabric."""

    rank: int
    node: str
    address: str = ""


class Weight(Enum):
    """What kind of word a piece of evidence is."""

    OWN = "a rank about itself"
    PEER = "a rank about another"
    SYMPTOM = "something broke"
    ENDING = "it says that it ends"
    ORPHAN = "its parent process ended"
    EXIT = "an exit"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One sign of death, from the log or the process of one rank; blames is the rank it accuses."""

    at: float
    weight: Weight
    cause: str
    line: str
    blames: int | None
    certain: bool = False
    signalled: bool = False


@dataclass(frozen=True, slots=True)
class RankState:
    """What is remembered of one rank."""

    member: Member
    progress_at: float
    phase: Phase = Phase.LAUNCHED
    phase_at: float = 0.0
    reached: frozenset[Phase] = frozenset()
    rendezvous: str = ""
    step: str = ""
    seen: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    details: tuple[Evidence, ...] = ()
    hints: tuple[str, ...] = ()
    proofs: frozenset[str] = frozenset()
    transport: Transport = NOTHING_SAID
    process: Process = field(default_factory=lambda: Unknown("not asked yet"))
    gone: int = 0
    lost: int = 0
    exit: int | None = None
    cpu_at_progress: float | None = None
    spoke_at: float = 0.0
    ras_silent_since: float | None = None
    ras_missing: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The rank as a person is told of it."""
        return f"rank {self.member.rank} ({self.member.node})"


@dataclass(frozen=True, slots=True)
class Boot:
    """The whole state. `notes` are the sentences to tell a person now; each is said once in a boot's life."""

    began: float
    ranks: tuple[RankState, ...]
    verdict: Verdict = field(default_factory=lambda: Loading("starting"))
    notes: tuple[str, ...] = ()
    told: frozenset[str] = frozenset()
    counters: Counters | None = None
    moved_at: float = 0.0
    tokens_at: float = 0.0
    served_at: float | None = None
    proof: str = ""
    failed_completions: int = 0
    timed_out_since: float | None = None

    @classmethod
    def begin(cls, members: Iterable[Member], now: float) -> Self:
        """The state before the first look; `now` is when the ranks were launched."""
        ranks = tuple(RankState(member, progress_at=now, phase_at=now) for member in members)
        return cls(began=now, ranks=ranks, moved_at=now, tokens_at=now)

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(rank.member for rank in self.ranks)

    @property
    def is_over(self) -> bool:
        """Nothing seen later can change the verdict."""
        return isinstance(self.verdict, Died | OutOfTime)
