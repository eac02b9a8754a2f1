"""What happens during a verb, as values that any reporter can render. The JSON form is a published contract."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from cluster.model.checks import ChecksReport, DoctorReport, FixReport, PreflightReport
from cluster.model.checks import Finding as Finding  # noqa: PLC0414  # told as events, and imported from here
from cluster.model.checks import Severity as Severity  # noqa: PLC0414
from cluster.model.deployment import State
from cluster.model.engram import EngramBenchReport, EngramReport
from cluster.model.fabric_test import FabricReport
from cluster.model.fit import FitReport
from cluster.model.images import ImageReport
from cluster.model.pace import ChatBenchReport
from cluster.model.packs import AlignmentReport, InspectReport, PackConfigReport, PackReport, PatchReport
from cluster.model.share import ShareCosts, ShareReport
from cluster.model.status import FabricStatus
from cluster.model.weights import FetchReport, VerifyReport, WeightsReport


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage of a verb begins; `nodes` are those it works on."""

    stage: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StageEnded:
    """A stage is over; `ok` is false when it failed, then `detail` says how."""

    stage: str
    seconds: float
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StepStarted:
    """One step of a stage begins on a node.

    why      one clause in the user's language, e.g. "starting rank 1"
    command  what is run, as a person would type it; empty when nothing is
    """

    stage: str
    node: str
    why: str
    command: str = ""


class Bound(StrEnum):
    """Whether a total is the true end or only a limit."""

    EXACT = "exact"
    UPPER = "upper"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stage is on one node, or for one rank.

    current, total  in `unit` ("bytes", "shards", ...; empty when only `text` counts); total None when unknown
    bound           whether total is the true end (exact) or only a limit (upper)
    rate            units per second over the last seconds, None when unknown
    heartbeat       true when nothing moved and this only says that we still watch
    text            the phase, e.g. "loading weights"
    """

    stage: str
    node: str
    current: float
    total: float | None
    unit: str
    bound: Bound = Bound.EXACT
    rate: float | None = None
    heartbeat: bool = False
    text: str = ""
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """Something a person should know once."""

    severity: Severity
    text: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a rank wrote; `at` is UTC, ISO 8601 with milliseconds, as the node stamped it."""

    rank: int
    node: str
    at: str
    text: str


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank as seen on its node; `since` is UTC, ISO 8601; `rss` in bytes over all its processes.

    transport  how NCCL connected it, in its own words; empty when it did not say
    """

    rank: int
    node: str
    state: str
    detail: str = ""
    pid: int | None = None
    processes: int = 0
    rss: int = 0
    since: str = ""
    transport: str = ""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node as seen; memory in bytes, None when it could not be read."""

    node: str
    reachable: bool
    memory_total: int | None = None
    memory_available: int | None = None
    detail: str = ""
    memory_free: int | None = None
    memory_cached: int | None = None
    swap_used: int | None = None
    fabric: FabricStatus | None = None


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
    """How long a stage took, and its parts."""

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
    """The end of a successful stop: the ranks that were ended, and the memory afterwards."""

    deployment: str
    ranks: tuple[RankStatus, ...]
    memory: tuple[NodeStatus, ...]
    nothing: bool = False


Value = str | int | float | bool | None | tuple[str, ...] | tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SettingShown:
    """One resolved setting; the value of a secret is already masked. `origin` is where it was set, e.g. `.env:12`."""

    key: str
    value: Value
    origin: str = ""
    secret: bool = False


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """The settings as they would be used."""

    deployment: str
    recipe: str
    settings: tuple[SettingShown, ...]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step that would be taken: a command (`argv`, `environment`, `undo`) or a file (`path`, `size`, `mode`)."""

    node: str
    why: str
    argv: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    undo: tuple[str, ...] = ()
    path: str = ""
    size: int | None = None
    mode: str = ""


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """Steps with a barrier at the end; `in_order` when they wait for one another across nodes too."""

    stage: str
    steps: tuple[PlannedStep, ...]
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What `start` would do; no stages when there is nothing to do. `notes` say what is only known later."""

    deployment: str
    stages: tuple[PlannedStage, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SmokeCheck:
    """One question to the served API and whether the answer was right."""

    name: str
    ok: bool
    seconds: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SmokeReport:
    """Whether the deployment really answers."""

    deployment: str
    url: str
    model: str
    ok: bool
    checks: tuple[SmokeCheck, ...]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """A deployment as text for another system; `form` says for which, e.g. `kubernetes`."""

    form: str
    deployment: str
    text: str


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
    | ConfigReport
    | PlanReport
    | SmokeReport
    | ExportReport
    | FitReport
    | PreflightReport
    | ChecksReport
    | FixReport
    | DoctorReport
    | FabricReport
    | ImageReport
    | PackReport
    | AlignmentReport
    | InspectReport
    | PackConfigReport
    | PatchReport
    | EngramReport
    | EngramBenchReport
    | ChatBenchReport
    | VerifyReport
    | FetchReport
    | WeightsReport
    | ShareCosts
    | ShareReport
    | Failed
)

Emit = Callable[[Event], None]
