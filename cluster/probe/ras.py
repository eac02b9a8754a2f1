"""Read the answer of NCCL's RAS socket, in its text form and in its (sometimes broken) JSON form."""

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any


class RasVerdict(Enum):
    """What one node's RAS socket says about the communicator; the order is from good to bad."""

    ABSENT = "no RAS socket"  # not yet joined, or no NCCL at all
    OK = "ok"
    MISMATCH = "ranks differ in their counts"  # seen in passing while busy; no fault by itself
    INCOMPLETE = "a rank does not answer"
    ERROR = "an asynchronous error was reported"
    DEAD = "a process is considered dead"
    UNREACHABLE = "connected, no answer"  # what a stopped process's own socket does
    UNREADABLE = "the answer could not be read"

    @property
    def is_death(self) -> bool:
        return self in (RasVerdict.ERROR, RasVerdict.DEAD)

    @property
    def is_silence(self) -> bool:
        return self in (RasVerdict.INCOMPLETE, RasVerdict.UNREACHABLE)


@dataclass(frozen=True, slots=True)
class Collectives:
    """How many collectives one rank has done. Under CUDA graphs only all_gather moves with each token."""

    rank: int
    all_gather: int
    all_reduce: int


@dataclass(frozen=True, slots=True)
class RasReport:
    """One node's answer: the verdict, the ranks it misses, what ranks reported, and counts where the form has them."""

    verdict: RasVerdict
    missing: tuple[int, ...] = ()
    reported: tuple[str, ...] = ()
    collectives: tuple[Collectives, ...] = ()


_STATUS = re.compile(r"^\s*\d+(?:\s+\d+){5}\s+(?:RUNNING|\S+)\s+(?P<errors>[A-Z][A-Z,]*)\s*$", re.MULTILINE)
_MISSING = re.compile(r"^\s*Rank (?P<rank>\d+) -- GPU", re.MULTILINE)
_REPORTED = re.compile(r"^\s*(?P<said>Rank \d+ reported .+?) -- GPU", re.MULTILINE)
_DEAD = re.compile(r"^\s*DEAD\s*$|considered dead \(unreachable", re.MULTILINE)
_NO_COMMA = re.compile(r'("nvml_dev": \d+)\s*\n(\s*"status")')


def read_text(answer: str) -> RasReport:
    """The answer to `verbose status`: one row for each communicator group, then the errors in words."""
    rows = [match["errors"].split(",") for match in _STATUS.finditer(answer)]
    if not rows:
        return RasReport(RasVerdict.UNREADABLE)
    said = {word for row in rows for word in row}
    if _DEAD.search(answer):
        said.add("DEAD")
    return RasReport(
        verdict=_worst(said),
        missing=tuple(sorted({int(match["rank"]) for match in _MISSING.finditer(answer)})),
        reported=tuple(match["said"] for match in _REPORTED.finditer(answer)),
    )


def read_json(answer: str) -> RasReport:
    """The answer to `set format json` + `verbose status`; it lacks a comma exactly when a rank is missing."""
    body = _NO_COMMA.sub(r"\1,\n\2", answer[answer.find("{") :] if "{" in answer else "")
    try:
        tree = json.loads(body)
        groups: list[dict[str, Any]] = list(tree["communicators"])
        present = [rank for group in groups for rank in group["ranks"]]
        missing = [rank for group in groups for rank in group["missing_ranks"]]
        failed = [rank for rank in present if rank["status"]["async_error"]]
        said = {"OK"}
        said |= {"INCOMPLETE"} if missing else set()
        said |= {"ERROR"} if failed else set()
        said |= {"DEAD"} if any(rank["status"]["considered_dead"] for rank in missing) else set()
        return RasReport(
            verdict=_worst(said),
            missing=tuple(sorted({int(rank["rank"]) for rank in missing})),
            reported=tuple(f"Rank {rank['rank']} reported error {rank['status']['async_error']}" for rank in failed),
            collectives=tuple(_collectives(rank) for rank in present),
        )
    except (ValueError, KeyError, TypeError):
        return RasReport(RasVerdict.UNREADABLE)


def _collectives(rank: dict[str, Any]) -> Collectives:
    counts = rank["collective_counts"]
    return Collectives(int(rank["rank"]), int(counts["AllGather"]), int(counts["AllReduce"]))


def _worst(said: set[str]) -> RasVerdict:
    for verdict in (RasVerdict.DEAD, RasVerdict.ERROR, RasVerdict.INCOMPLETE, RasVerdict.MISMATCH):
        if verdict.name in said:
            return verdict
    return RasVerdict.OK if said == {"OK"} else RasVerdict.UNREADABLE
