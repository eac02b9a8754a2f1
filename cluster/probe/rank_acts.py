"""What a node tells of what was done to its ranks: launched, stopped, their stacks taken."""

import json
from dataclasses import dataclass
from typing import Any

from cluster.model.units import Bytes, Seconds
from cluster.probe.ranks import read_answer


@dataclass(frozen=True, slots=True)
class RankStopped:
    """`how`: absent (nothing lived), graceful, killed, or left (what still lives is in `left`, as pid and name)."""

    boot: str
    rank: int
    how: str
    ended: tuple[str, ...]
    left: tuple[tuple[int, str], ...]
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class NodeStopped:
    ranks: tuple[RankStopped, ...]
    available_before: Bytes
    available_after: Bytes


@dataclass(frozen=True, slots=True)
class Launched:
    pid: int
    main: int
    unit: str
    started: str
    available: Bytes


@dataclass(frozen=True, slots=True)
class ProcessStack:
    """`python` is empty when py-spy is missing; `kernel` needs root."""

    pid: int
    name: str
    state: str
    python: str
    status: str
    wchan: str
    kernel: str


@dataclass(frozen=True, slots=True)
class RankStacks:
    boot: str
    rank: int
    missing: str
    processes: tuple[ProcessStack, ...]


@dataclass(frozen=True, slots=True)
class NodeStacks:
    ranks: tuple[RankStacks, ...]
    meminfo: str


def parse_stop(text: str) -> NodeStopped:
    return read_answer(
        text,
        lambda seen: NodeStopped(
            tuple(_stopped(rank) for rank in seen["ranks"]),
            Bytes(seen["available_before"]),
            Bytes(seen["available_after"]),
        ),
    )


def parse_launch(text: str) -> Launched:
    return read_answer(
        text,
        lambda seen: Launched(
            seen["pid"], seen["main"][0], seen["unit"] or "", seen["started"], Bytes(seen["available"])
        ),
    )


def parse_stacks(text: str) -> NodeStacks:
    return read_answer(text, lambda seen: NodeStacks(tuple(_stacks(rank) for rank in seen["ranks"]), seen["meminfo"]))


def parse_failure(text: str) -> str:
    """The sentence with which a program said that it could not do its work; empty when it said none."""
    try:
        seen = json.loads(text)
    except ValueError:
        return ""
    return str(seen["error"]) if isinstance(seen, dict) and "error" in seen else ""


def _stopped(seen: dict[str, Any]) -> RankStopped:
    left = tuple((process["pid"], process["name"]) for process in seen["left"])
    return RankStopped(seen["boot"], seen["rank"], seen["how"], tuple(seen["ended"]), left, Seconds(seen["seconds"]))


def _stacks(seen: dict[str, Any]) -> RankStacks:
    processes = tuple(
        ProcessStack(
            one["pid"], one["name"], one["state"], one["python"] or "", one["status"], one["wchan"], one["kernel"]
        )
        for one in seen["processes"]
    )
    return RankStacks(seen["boot"], seen["rank"], seen["missing"] or "", processes)
