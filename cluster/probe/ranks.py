"""What a node tells of how its ranks are: the parsed answer to `look`, and each line of `watch`."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from cluster.errors import Unreadable
from cluster.model.fabric import FabricLook, PortLook
from cluster.model.facts import Memory
from cluster.model.units import Bytes, Seconds
from cluster.probe.ras import RasReport, RasVerdict, read_text
from cluster.probe.vllm_metrics import Counters, read_counters

T = TypeVar("T")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
HttpAnswer = int | str  # a status, or `refused`, `timeout`, `error: ...`


class RankLife(StrEnum):
    PREPARED = "prepared"  # never launched
    ALIVE = "alive"
    EXITED = "exited"  # its main process ended, and how is on record
    ORPHANED = "orphaned"  # the shim was killed, processes of it live on
    VANISHED = "vanished"  # nothing lives, nothing says how it ended


@dataclass(frozen=True, slots=True)
class ProcessSeen:
    """`cpu` is what it has used so far; `state` is the kernel's letter (T: stopped, D: in a driver)."""

    pid: int
    ppid: int
    state: str
    name: str
    command: str
    rss: Bytes
    cpu: Seconds
    threads: int


@dataclass(frozen=True, slots=True)
class ExitSeen:
    """How the main process ended. Code 0 without `requested` is a failure too; `error`: it never started."""

    code: int | None
    signal: int | None
    at: str
    requested: bool
    left_behind: int
    killed: int
    error: str


@dataclass(frozen=True, slots=True)
class LoggedLine:
    """`at` is UTC as text and sorts across nodes."""

    at: str
    text: str


@dataclass(frozen=True, slots=True)
class LogSeen:
    """`place` is where to read on; `lost` says that lines between two looks were rotated away unread."""

    lines: tuple[LoggedLine, ...]
    place: tuple[int, int] | None
    behind: Bytes
    lost: bool


class GuardLife(StrEnum):
    WATCHING = "watching"
    ENDED = "ended"  # it said why
    KILLED = "killed"  # it is gone and said nothing


@dataclass(frozen=True, slots=True)
class GuardSeen:
    """The memory guard beside a rank; `did` are its last words, oldest first."""

    state: GuardLife
    mode: str
    lowest: Bytes | None
    did: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankLook:
    boot: str
    rank: int
    folder: str
    state: RankLife
    pid: int | None
    main: int | None
    unit: str
    started: str
    kernel_boot: str
    available_at_launch: Bytes | None
    stop_asked: bool
    exit: ExitSeen | None
    processes: tuple[ProcessSeen, ...]
    log: LogSeen
    guard: GuardSeen | None = None


@dataclass(frozen=True, slots=True)
class CompletionSeen:
    at: float
    answer: HttpAnswer
    seconds: Seconds
    said: str


@dataclass(frozen=True, slots=True)
class HeadSeen:
    """`later` is a second reading of the counters, made when requests were running.

    `asking_since` is set while a completion is under way.
    """

    at: float
    health: HttpAnswer
    counters: Counters | None
    later: Counters | None
    completion: CompletionSeen | None
    asking_since: float | None


@dataclass(frozen=True, slots=True)
class GpuSeen:
    watts: float | None
    busy: float | None


@dataclass(frozen=True, slots=True)
class NodeLook:
    """One look at one node, at its own clock. What was not asked, or is not yet answered, is None.

    kernel_boot, booted  which boot of the node this is, and when it began; a rank names the one it was launched in
    """

    at: float
    host: str
    kernel_boot: str
    booted: float
    memory: Memory
    ranks: tuple[RankLook, ...]
    head: HeadSeen | None
    ras: RasReport | None
    gpus: tuple[GpuSeen, ...] | None
    fabric: FabricLook | None = None


def parse_look(text: str) -> NodeLook:
    """The answer to `look`, or one line of `watch`."""
    return read_answer(text, _node)


def parse_log_line(line: str) -> LoggedLine:
    """`2026-11-30T17:30:00.123Z text`; a line that does not begin so has no time."""
    at, _, text = line.partition(" ")
    return LoggedLine(at, text) if _STAMP.fullmatch(at) else LoggedLine("", line)


def read_answer(text: str, read: Callable[[dict[str, Any]], T]) -> T:
    """What a program of ours said, as `read` takes it apart; raises Unreadable."""
    try:
        return read(json.loads(text))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise Unreadable("cannot read what the node tells of its ranks", evidence=[text[:300], repr(error)]) from error


def _node(seen: dict[str, Any]) -> NodeLook:
    return NodeLook(
        at=seen["at"],
        host=seen["host"],
        kernel_boot=seen["kernel_boot"],
        booted=seen["booted"],
        memory=Memory(*map(Bytes, seen["memory"])),
        ranks=tuple(_rank(rank) for rank in seen["ranks"]),
        head=_head(seen["head"]) if seen["head"] else None,
        ras=_ras(seen["ras"]) if seen["ras"] else None,
        gpus=tuple(GpuSeen(gpu["watts"], gpu["busy"]) for gpu in seen["gpus"]) if seen["gpus"] is not None else None,
        fabric=_fabric(seen["fabric"]) if seen["fabric"] else None,
    )


def _fabric(seen: dict[str, Any]) -> FabricLook:
    ports = tuple(
        PortLook(one["device"], one["port"], one["state"], one["gbps"], tuple(one["interfaces"]))
        for one in seen["rdma"]
    )
    return FabricLook(
        seen["interface"], seen["carrier"], seen["mbps"], seen["mtu"], seen["received"], seen["sent"], ports
    )


def _rank(seen: dict[str, Any]) -> RankLook:
    log, ended = seen["log"], seen["exit"]
    return RankLook(
        boot=seen["boot"],
        rank=seen["rank"],
        folder=seen["dir"],
        state=RankLife(seen["state"]),
        pid=seen["pid"],
        main=seen["main"],
        unit=seen["unit"] or "",
        started=seen["started"] or "",
        kernel_boot=seen["kernel_boot"] or "",
        available_at_launch=Bytes(seen["available"]) if seen["available"] is not None else None,
        stop_asked=seen["stop_asked"],
        exit=_exit(ended) if ended else None,
        processes=tuple(_process(process) for process in seen["processes"]),
        log=LogSeen(
            lines=tuple(parse_log_line(line) for line in log["lines"]),
            place=(log["place"][0], log["place"][1]) if log["place"] else None,
            behind=Bytes(log["behind"]),
            lost=log["lost"],
        ),
        guard=_guard(seen["guard"]) if seen.get("guard") else None,
    )


def _guard(seen: dict[str, Any]) -> GuardSeen:
    lowest = Bytes(seen["lowest"]) if seen["lowest"] is not None else None
    return GuardSeen(GuardLife(seen["state"]), seen["mode"], lowest, tuple(one["what"] for one in seen["did"]))


def _exit(seen: dict[str, Any]) -> ExitSeen:
    return ExitSeen(
        seen["code"],
        seen["signal"],
        seen["at"],
        seen["requested"],
        seen["left_behind"],
        seen["killed"],
        seen["error"] or "",
    )


def _process(seen: dict[str, Any]) -> ProcessSeen:
    return ProcessSeen(
        seen["pid"],
        seen["ppid"],
        seen["state"],
        seen["name"],
        seen["command"],
        Bytes(seen["rss"]),
        Seconds(seen["cpu"]),
        seen["threads"],
    )


def _head(seen: dict[str, Any]) -> HeadSeen:
    said = seen["completion"]
    return HeadSeen(
        at=seen["at"],
        health=seen["health"],
        counters=read_counters(seen["metrics"] or ""),
        later=read_counters(seen["later"] or ""),
        completion=CompletionSeen(said["at"], said["answer"], Seconds(said["seconds"]), said["said"]) if said else None,
        asking_since=seen.get("asking_since"),
    )


def _ras(seen: dict[str, Any]) -> RasReport:
    match seen["trouble"]:
        case None:
            return read_text(seen["text"])
        case "refused":
            return RasReport(RasVerdict.ABSENT)
        case _:
            return RasReport(RasVerdict.UNREACHABLE)
