"""The whole error tree: what went wrong, where, the evidence, what to type next, and the exit code.

SparkctlError                 1  a bug of ours when raised bare
├── SettingsError             2  a wrong flag, variable, file or recipe
├── NodeError                 3  a node did not answer the way a node must
│   ├── Unreachable              no connection, or it was lost
│   ├── HostKeyUnknown           never seen before
│   ├── HostKeyChanged           not the one on record
│   └── LoginRefused             reached, but not let in
├── Refused                   4  a check says that starting would fail
├── StepFailed                5  a command on a node failed
│   ├── ToolMissing              not in the PATH we use
│   ├── TimedOut                 ended by its time limit
│   ├── Unreadable               answered something we cannot parse
│   ├── EngineDown               no container engine runs
│   ├── EngineRefused            it runs, and we may not use it
│   ├── ImageMissing             the engine has no such image
│   └── NameTaken                a container of that name is there, not ours
├── NotReady                  6  the deployment did not come to serve
│   ├── RankDied              6  a rank ended, or said that it cannot go on
│   ├── Hung                 10  nothing moves although the processes live
│   └── OutOfTime            11  the overall limit passed
├── Locked                    7  another sparkctl is at work on this head
└── NotStopped               12  something still runs after stop
"""

from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """Every exit code, the states that `status` reports included."""

    DONE = 0
    BUG = 1
    SETTINGS = 2
    UNREACHABLE = 3
    REFUSED = 4
    STEP_FAILED = 5
    RANK_DIED = 6
    LOCKED = 7
    DEGRADED = 8
    ABSENT = 9
    HUNG = 10
    OUT_OF_TIME = 11
    NOT_STOPPED = 12
    INTERRUPTED = 130


class SparkctlError(Exception):
    """What happened, and what a person needs to act on it.

    what      one sentence, no full stop
    where     the node, file:line, setting or path it happened at
    evidence  lines as they were seen, most telling first
    fix       what to type or change next
    """

    exit = Exit.BUG

    def __init__(self, what: str, *, where: str = "", evidence: Iterable[str] = (), fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.evidence = tuple(evidence)
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class SettingsError(SparkctlError):
    exit = Exit.SETTINGS


class NodeError(SparkctlError):
    exit = Exit.UNREACHABLE


class Unreachable(NodeError):
    pass


class HostKeyUnknown(NodeError):
    pass


class HostKeyChanged(NodeError):
    pass


class LoginRefused(NodeError):
    pass


class Refused(SparkctlError):
    exit = Exit.REFUSED


class StepFailed(SparkctlError):
    exit = Exit.STEP_FAILED


class ToolMissing(StepFailed):
    pass


class TimedOut(StepFailed):
    pass


class Unreadable(StepFailed):
    pass


class EngineDown(StepFailed):
    pass


class EngineRefused(StepFailed):
    pass


class ImageMissing(StepFailed):
    pass


class NameTaken(StepFailed):
    pass


class NotReady(SparkctlError):
    exit = Exit.RANK_DIED


class RankDied(NotReady):
    pass


class Hung(NotReady):
    exit = Exit.HUNG


class OutOfTime(NotReady):
    exit = Exit.OUT_OF_TIME


class Locked(SparkctlError):
    exit = Exit.LOCKED


class NotStopped(SparkctlError):
    exit = Exit.NOT_STOPPED


class Interrupted(SparkctlError):
    exit = Exit.INTERRUPTED
