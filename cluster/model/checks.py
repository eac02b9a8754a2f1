"""What checks say, what each of them promises, and the reports of `preflight`, its fixes and `doctor`."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    REFUSAL = "refusal"
    NOT_CHECKED = "not-checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check saw. `id` is stable, e.g. PORT.FREE; `fix` is what to type; `details` is evidence, e.g. a table."""

    id: str
    severity: Severity
    node: str
    observed: str
    expected: str = ""
    fix: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contract:
    """One check and what it promises.

    worst   the most it can say: a refusal stops a start, a warning or a note does not
    why     what happens to a boot or a server when it is not met
    source  who reported it, and `date` when it was last looked at
    unless  when it does not apply
    """

    id: str
    looks_at: str
    wants: str
    why: str
    worst: Severity
    source: str = ""
    date: str = ""
    unless: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check saw, beside what it looked at and where its rule comes from."""

    finding: Finding
    looks_at: str
    source: str


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """Everything the checks say. `forced` are those that refuse and were told not to stop it."""

    deployment: str
    refused: int
    results: tuple[CheckResult, ...]
    forced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class ChecksReport:
    """The contracts of the checks that were asked about."""

    checks: tuple[Contract, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a fix changed on a node: the commands, and the value before and after."""

    check: str
    node: str
    what: str
    before: str
    after: str
    do: tuple[str, ...]
    undo: tuple[str, ...]
    read: tuple[str, ...]
    at: str = ""


@dataclass(frozen=True, slots=True)
class FixReport:
    """What a fix or an undo did. `left` are changes it did not touch, each with the reason."""

    check: str
    undone: bool
    changes: tuple[Change, ...]
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The bundle: where it lies, what is in it, what could not be had."""

    path: str
    size: int
    files: tuple[str, ...]
    missing: tuple[str, ...]
