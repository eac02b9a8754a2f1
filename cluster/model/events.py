"""What happens during a verb, as values that any reporter can render. The JSON form is a published contract."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from cluster.model.deployment import State


class Severity(StrEnum):
    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    REFUSAL = "refusal"
    NOT_CHECKED = "not-checked"


@dataclass(frozen=True, slots=True)
class StageStarted:
    stage: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StageEnded:
    stage: str
    seconds: float
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StepStarted:
    """`why` is one clause in the user's language, e.g. "starting rank 1"."""

    stage: str
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stage is.

    current, total  in `unit`; total None when unknown
    bound           "exact" or "upper": whether total is the true end or only a limit
    rate            units per second over the last seconds, None when unknown
    heartbeat       true when nothing moved and this only says that we still watch
    """

    stage: str
    node: str
    current: float
    total: float | None
    unit: str
    bound: str = "exact"
    rate: float | None = None
    heartbeat: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check saw. `id` is stable, e.g. PORT.FREE; `fix` is what to type."""

    id: str
    severity: Severity
    node: str
    observed: str
    expected: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """Something a person should know once."""

    severity: Severity
    text: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class LogLine:
    """`at` is UTC, ISO 8601 with milliseconds, as the node stamped it."""

    rank: int
    node: str
    at: str
    text: str


@dataclass(frozen=True, slots=True)
class RankStatus:
    rank: int
    node: str
    state: str
    detail: str = ""
    pid: int | None = None
    processes: int = 0
    rss: int = 0
    since: str = ""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    node: str
    reachable: bool
    memory_total: int | None = None
    memory_available: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StatusReport:
    """One look at a deployment; `reasons` say why it is judged so, most telling first."""

    deployment: str
    state: State
    boot: str
    url: str
    ranks: tuple[RankStatus, ...]
    nodes: tuple[NodeStatus, ...]
    reasons: tuple[str, ...]
    model: str = ""
    health: str = ""
    completion: str = ""
    running: float | None = None
    waiting: float | None = None
    generated: float | None = None
    lock: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class StageTime:
    stage: str
    seconds: float
    detail: str = ""
    children: tuple["StageTime", ...] = ()


@dataclass(frozen=True, slots=True)
class Served:
    """The end of a successful start: where it answers, and where the time went."""

    deployment: str
    boot: str
    url: str
    model: str
    stages: tuple[StageTime, ...]
    receipt: str
    already: bool = False


@dataclass(frozen=True, slots=True)
class Stopped:
    deployment: str
    ranks: tuple[RankStatus, ...]
    memory: tuple[NodeStatus, ...]
    nothing: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of an unsuccessful verb; mirrors the error that ended it."""

    error: str
    what: str
    where: str
    evidence: tuple[str, ...]
    fix: str
    exit: int


Event = (
    StageStarted
    | StageEnded
    | StepStarted
    | Progress
    | Finding
    | Told
    | LogLine
    | StatusReport
    | Served
    | Stopped
    | Failed
)

Emit = Callable[[Event], None]
