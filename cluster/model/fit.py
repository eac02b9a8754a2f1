"""The report of `fit`: what a deployment will take of each node's memory, beside what the node has."""

from dataclasses import dataclass
from enum import StrEnum


class Fit(StrEnum):
    """Whether a boot will find the memory it needs."""

    FITS = "fits"
    TIGHT = "tight"
    SHORT = "short"
    NEVER = "never"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Amount:
    """A named number of bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class FitNode:
    """One node. All sizes in bytes.

    needed    what must be available before the boot
    parts     what takes it, for all ranks on this machine
    phases    what is left available in each phase of the boot and at the longest prompt; below 0 it does not fit
    held      who holds memory now, largest first
    measured  what the last boot like this one took here, None when there was none; `boot` names it
    """

    node: str
    fit: Fit
    total: int
    available: int
    free: int
    needed: int
    parts: tuple[Amount, ...]
    phases: tuple[Amount, ...]
    held: tuple[Amount, ...]
    tokens: int
    measured: int | None = None
    boot: str = ""
    observed: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class FitReport:
    """Whether the model fits, and what would change that; the worst node decides."""

    deployment: str
    model: str
    fit: Fit
    nodes: tuple[FitNode, ...]
    changes: tuple[str, ...] = ()
