"""Judge a deployment from one set of observations, for `status`: its state, and what is to be said of each rank."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from cluster.model.deployment import State
from cluster.model.fabric import NOTHING_SAID, Transport
from cluster.plan.blame import first_cause, lead_of, reason_of
from cluster.plan.boot import (
    Alive,
    Answered,
    Boot,
    Exited,
    Gone,
    HttpError,
    Limits,
    Member,
    Observation,
    RankState,
    Rebooted,
    TimedOut,
    Unknown,
)
from cluster.plan.faultlines import signal_text
from cluster.plan.loglines import Phase
from cluster.plan.quiet import how_far
from cluster.plan.readiness import gpu_is_busy
from cluster.plan.watch import look
from cluster.probe.vllm_metrics import Counters

_HTTP_OK = 200


class Motion(Enum):
    """What two samples of the token counters say."""

    IDLE = "no request is running"
    MOVING = "tokens are being made"
    BUSY = "no token between the samples, but a GPU draws power"  # a long prefill counts only at its end
    STILL = "requests are running and no token is made"


@dataclass(frozen=True, slots=True)
class RankStanding:
    """One rank for people: alive, exited, not running or unknown; how far its log goes; what is wrong with it."""

    rank: int
    node: str
    process: str
    phase: str
    reasons: tuple[str, ...]
    transport: Transport = NOTHING_SAID


@dataclass(frozen=True, slots=True)
class Assessment:
    """The state, why, and the ranks."""

    state: State
    reasons: tuple[str, ...]
    ranks: tuple[RankStanding, ...]


def assess(
    members: Sequence[Member], seen: Observation, limits: Limits, before: Counters | None = None, apart: float = 0.0
) -> Assessment:
    """Judge what was seen once; `before` are the counters `apart` seconds earlier, where two samples were taken.

    `seen.ranks[].lines` are the logs of this boot, or as much of their end as was read. A rank that is "not running" is
    believed at once here: nobody acts on a status by killing something.
    """
    once = replace(limits, gone_answers=1)
    boot = Boot.begin(members, seen.now)
    sights = {sight.rank: sight for sight in seen.ranks}
    ranks = tuple(
        look(rank, sights[rank.member.rank], boot.members, seen.now, once) if rank.member.rank in sights else rank
        for rank in boot.ranks
    )
    boot = replace(boot, ranks=ranks, counters=seen.head.counters)
    state, reasons = _judge(boot, seen, limits, before, apart)
    return Assessment(state, reasons, tuple(_standing(rank) for rank in ranks))


def motion(before: Counters, after: Counters, *, gpu_busy: bool = False) -> Motion:
    """Compare two samples. Whether STILL is a hang depends on how far apart they were, which the caller knows."""
    if after.moved_since(before):
        return Motion.MOVING
    if not after.running or not before.running:
        return Motion.IDLE
    return Motion.BUSY if gpu_busy else Motion.STILL


def _judge(
    boot: Boot, seen: Observation, limits: Limits, before: Counters | None, apart: float
) -> tuple[State, tuple[str, ...]]:
    gone = [rank for rank in boot.ranks if isinstance(rank.process, Exited | Gone | Rebooted)]
    unknown = [rank for rank in boot.ranks if isinstance(rank.process, Unknown)]
    orphaned = any(isinstance(rank.process, Gone) and rank.process.orphans for rank in gone)
    if len(gone) == len(boot.ranks) and not orphaned:
        records = [rank.process for rank in gone if isinstance(rank.process, Exited)]
        if records and all(one.asked for one in records):
            return State.ABSENT, ("it was stopped as asked",)
        return State.ABSENT, (*_first_words(boot, seen.now), *_again(gone, "start")) if _is_told(gone) else ()
    if gone and (orphaned or len(gone) + len(unknown) < len(boot.ranks)):
        words = (*_first_words(boot, seen.now), *_again(gone, "restart"))
        return State.DEGRADED, words or tuple(f"{rank.name} was stopped as asked, others were not" for rank in gone)
    if unknown:  # also when all that was seen is gone: that is no sign of a deployment, nor of its end
        words = _first_words(boot, seen.now) if _is_told(gone) else ()
        return State.CANNOT_TELL, (*map(_out_of_sight, unknown), *words)
    answered = isinstance(seen.head.completion, Answered)
    complaints = _first_words(boot, seen.now)
    if complaints:
        return State.DEGRADED, complaints
    silent = tuple(rank for rank in boot.ranks if rank.ras_silent_since is not None)
    if silent:
        missing = sorted({number for rank in silent for number in rank.ras_missing})
        names = " and ".join(str(number) for number in missing) or "unknown"
        return State.DEGRADED if answered else State.HUNG, (f"NCCL's RAS gets no answer from rank {names}",)
    return _judge_head(boot, seen, limits, before, apart)


def _judge_head(
    boot: Boot, seen: Observation, limits: Limits, before: Counters | None, apart: float
) -> tuple[State, tuple[str, ...]]:
    after = seen.head.counters
    moves = None if before is None or after is None else motion(before, after, gpu_busy=gpu_is_busy(boot.ranks, limits))
    match seen.head.completion:
        case Answered():
            return State.SERVING, ("a one-token completion was answered",)
        case HttpError(status, said):
            return State.DEGRADED, (f"a completion is answered with status {status} {said}".rstrip(),)
        case TimedOut(after_seconds):
            if moves in (Motion.MOVING, Motion.BUSY):
                return State.SERVING, (moves.value, f"a one-token completion waited more than {after_seconds:.0f} s")
            return State.HUNG, (f"a one-token completion was not answered within {after_seconds:.0f} s",)
        case None:
            return _without_token(boot, seen, limits, moves, apart)
        case _:
            assert_never(seen.head.completion)


def _without_token(
    boot: Boot, seen: Observation, limits: Limits, moves: Motion | None, apart: float
) -> tuple[State, tuple[str, ...]]:
    health = seen.head.health
    if moves is Motion.MOVING:
        return State.SERVING, (moves.value,)
    if moves is Motion.STILL and apart >= limits.stalled:
        return State.HUNG, (f"{moves.value}, for {apart:.0f} s",)
    if health == _HTTP_OK:
        return State.CANNOT_TELL, ("/health answers 200, which proves nothing, and no token was asked for",)
    if isinstance(health, int):
        return State.DEGRADED, (f"/health answers {health}",)
    if any(rank.phase is Phase.HTTP_UP for rank in boot.ranks):
        return State.DEGRADED, (f"the API was up and now: {health.value}",)
    return State.LOADING, (how_far(boot),)


def _is_told(gone: Sequence[RankState]) -> bool:
    """How a rank ended is known: of one that is merely not there nothing is."""
    return any(isinstance(rank.process, Exited | Rebooted) for rank in gone)


def _again(gone: Sequence[RankState], verb: str) -> tuple[str, ...]:
    """What to type when nothing is wrong with a rank but that its node was rebooted."""
    was_rebooted = any(isinstance(rank.process, Rebooted) for rank in gone)
    return (f"`sparkctl {verb}` starts all ranks anew",) if was_rebooted else ()


def _out_of_sight(rank: RankState) -> str:
    why = rank.process.reason if isinstance(rank.process, Unknown) else ""
    return f"{rank.member.node} does not answer" + (f": {why}" if why else "")


def _first_words(boot: Boot, now: float) -> tuple[str, ...]:
    died = first_cause(boot.ranks, now, grace=0.0)
    if died is None:
        return ()
    where = "" if died.rank is None else next(f"{rank.name}: " for rank in boot.ranks if rank.member.rank == died.rank)
    return (f"{where}{died.cause}", *died.evidence)


def _standing(rank: RankState) -> RankStanding:
    lead = lead_of(rank)
    reasons = () if lead is None else (reason_of(rank, lead),)
    member, said = rank.member, (*reasons, *rank.hints)
    return RankStanding(member.rank, member.node, _process(rank), rank.phase.text, said, rank.transport)


def _process(rank: RankState) -> str:
    match rank.process:
        case Alive():
            return "alive"
        case Exited(asked=True):
            return "ended as asked"
        case Exited(code):
            return f"ended: {signal_text(str(code))}"
        case Gone(orphans):
            return "orphaned" if orphans else "not running"
        case Rebooted(when=when):
            return f"gone: its node was rebooted at {when}"
        case Unknown(reason):
            return f"unknown: {reason}"
        case _:
            assert_never(rank.process)
