"""What each check promises: what it looks at, what it wants, why that matters, and where that is known from."""

from difflib import get_close_matches
from enum import StrEnum

from cluster.model.checks import CheckResult, Contract, Finding, Severity
from cluster.plan.check_table import CHECKS
from cluster.plan.traps import TRAPS


def contracts() -> tuple[Contract, ...]:
    """Every check there is, by id."""
    traps = tuple(
        Contract(
            trap.id,
            trap.seen,
            "not there",
            trap.does,
            Severity.REFUSAL if trap.can_refuse else trap.severity,
            trap.source,
            trap.date,
            trap.unless,
            trap.fix,
        )
        for trap in TRAPS
    )
    return tuple(sorted((*CHECKS, *traps), key=lambda one: one.id))


def contract(check: str) -> Contract | None:
    return next((one for one in contracts() if one.id == check.upper()), None)


class Purpose(StrEnum):
    """What is checked for: sharing and packing need no free port and no memory for a model, and a look at the virtual
    environment imports what a start would only find there."""

    START = "start"
    SHARE = "share"
    PACK = "pack"
    RUNTIME = "verify-runtime"


_NEEDED = {
    Purpose.RUNTIME: ("RUNTIME", "SERVER.PRESENT", "EXL3.PLUGIN", "RANKS.VERSIONS"),
    Purpose.PACK: ("MODEL.PRESENT", "DISK"),
    Purpose.SHARE: (
        "MODEL.PRESENT",
        "DISK",
        "FABRIC.ADDRESS",
        "FABRIC.JUMBO",
        "FABRIC.MTU",
        "FABRIC.OWNER",
        "FABRIC.REACH",
        "FABRIC.SSH",
        "HOST.FIREWALL",
        "HOST.MACHINE_ID",
        "HOST.ONE_MACHINE",
        "HOST.SSH_KEY",
        "SHARE",
    ),
}


def is_needed(check: str, purpose: Purpose) -> bool:
    return purpose is Purpose.START or is_asked(check, _NEEDED[purpose])


def with_contract(finding: Finding) -> CheckResult:
    """The finding beside what its check looked at, and where the rule comes from."""
    known = contract(finding.id)
    return CheckResult(finding, known.looks_at if known else "", known.source if known else "")


def is_asked(check: str, only: tuple[str, ...]) -> bool:
    """`--only FABRIC` takes every check of that group, `--only FABRIC.GID` the one."""
    return not only or any(check == one.upper() or check.startswith(f"{one.upper()}.") for one in only)


def unknown(asked: tuple[str, ...]) -> str:
    """The first name that is no check and no group, with what may have been meant; empty when all are known."""
    known = [one.id for one in contracts()]
    groups = sorted({one.partition(".")[0] for one in known})
    for name in asked:
        if name.upper() not in (*known, *groups):
            near = get_close_matches(name.upper(), [*known, *groups], 1)
            return f"{name} is no check" + (f"; did you mean {near[0]}?" if near else "")
    return ""
