"""The report of `fabric test`: which ways between the nodes were measured, and what each carried."""

from dataclasses import dataclass
from enum import StrEnum


class How(StrEnum):
    """RDMA writes with ib_write_bw, or plain sockets where that is not there."""

    RDMA = "rdma"
    SOCKETS = "sockets"


class Grade(StrEnum):
    """How a measurement is judged."""

    OK = "ok"
    SUSPICIOUS = "suspicious"
    DEGRADED = "degraded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of one rail: interfaces and addresses of both ends, and the RDMA devices where there are some."""

    source: str
    target: str
    source_interface: str
    target_interface: str
    source_address: str
    target_address: str
    source_device: str = ""
    target_device: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """A way that should be measured, or that is missing; `why` says so when it cannot be."""

    way: str
    covered: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one way carried. `together`: all ways ran at once. Figures are None when it failed; `detail` says how."""

    way: Way
    how: How
    together: bool
    gbps: float | None
    latency_us: float | None
    grade: Grade
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FabricReport:
    """Coverage apart from measurement: a way that was not measured is not good. `total` is what all carried at once."""

    deployment: str
    ok: bool
    seconds: float
    coverage: tuple[Coverage, ...]
    measured: tuple[Measured, ...]
    total: tuple[tuple[str, float], ...] = ()
