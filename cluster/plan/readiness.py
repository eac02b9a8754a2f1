"""From one look to the next: is the deployment loading, serving, dead, hung, out of time, or out of sight?

`advance` is called about once a second with what was seen; it is also right after the first token, for as long as
somebody watches. `/health` proves nothing here: serving takes every rank alive and a token.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from cluster.plan.blame import first_cause
from cluster.plan.boot import (
    Alive,
    Answered,
    Boot,
    CannotTell,
    Died,
    Evidence,
    HttpError,
    Hung,
    Limits,
    Loading,
    Member,
    Observation,
    OutOfTime,
    RankState,
    Serving,
    TimedOut,
    Unknown,
    Verdict,
    Weight,
)
from cluster.plan.quiet import disagreement, how_far, no_progress, peer_notes
from cluster.plan.watch import look, with_evidence

_ENGINE_DEAD = 503
_REFUSALS_TOLD = range(400, 500)
_REFUSALS_BELIEVED = 3
_ONE_LOOK = 1.5  # a token is dated by the look that saw it


def advance(state: Boot, seen: Observation, limits: Limits) -> Boot:
    """The state after this look. Tell `notes`, act on `verdict`; Died and OutOfTime stay as they are."""
    if state.is_over:
        return replace(state, notes=())
    sights = {sight.rank: sight for sight in seen.ranks}
    ranks = tuple(
        look(rank, sights[rank.member.rank], state.members, seen.now, limits) if rank.member.rank in sights else rank
        for rank in state.ranks
    )
    state = _ask_head(replace(state, ranks=ranks), seen)
    state = _note_serving(_demand_proof(state, seen.now, limits), seen)
    state = replace(state, verdict=_judge(state, seen.now, limits))
    return _tell(state, seen, limits)


def describe(verdict: Verdict, members: Sequence[Member]) -> str:
    """The verdict as one sentence, ranks with their nodes."""
    names = {member.rank: f"rank {member.rank} ({member.node})" for member in members}
    match verdict:
        case Loading(text):
            return text
        case Serving(_, proof):
            return f"serving: {proof}"
        case Died(rank, cause):
            return f"{'the deployment died' if rank is None else f'{names[rank]} failed first'}: {cause}"
        case Hung(_, _, cause):
            return f"hung: {cause}"
        case OutOfTime(limit, text):
            return f"not serving after {limit:.0f} s: {text}"
        case CannotTell(nodes, reasons):
            return "cannot tell: " + "; ".join(f"{node}: {why}" for node, why in zip(nodes, reasons, strict=True))
        case _:
            assert_never(verdict)


def wedged(boot: Boot, now: float, limits: Limits) -> Hung | None:
    """The hang of a deployment that has served: RAS misses a rank, tokens stand still, or a completion timed out."""
    everyone = tuple(rank.member.rank for rank in boot.ranks)
    for rank in boot.ranks:
        if rank.ras_silent_since is not None and now - rank.ras_silent_since >= limits.ras_silent:
            missing = rank.ras_missing or tuple(other for other in everyone if other != rank.member.rank)
            return Hung(missing, rank.ras_silent_since, f"{_ranks(missing)} does not answer NCCL's RAS")
    if gpu_is_busy(boot.ranks, limits):
        return None
    running = 0.0 if boot.counters is None else boot.counters.running
    if running > 0 and now - boot.moved_at >= limits.stalled:
        cause = f"{running:.0f} requests are running and no token was made for {now - boot.moved_at:.0f} s"
        return Hung(everyone, boot.moved_at, cause)
    if boot.timed_out_since is not None and boot.tokens_at < boot.timed_out_since + _ONE_LOOK:
        return Hung(
            everyone, boot.timed_out_since, "a one-token completion was not answered, and no token was made since"
        )
    return None


def gpu_is_busy(ranks: tuple[RankState, ...], limits: Limits) -> bool:
    """A GPU of known idle draw is drawing more: it works, whatever the counters say (a long prefill does that)."""
    watts = [rank.process.gpu_watts for rank in ranks if isinstance(rank.process, Alive)]
    return any(draw is not None and draw >= limits.idle_watts for draw in watts)


def _judge(state: Boot, now: float, limits: Limits) -> Verdict:
    died = first_cause(state.ranks, now, limits.grace)
    if died is not None:
        return died
    lost = [rank for rank in state.ranks if rank.lost >= limits.lost_answers]
    if state.served_at is not None:
        hang = wedged(state, now, limits)
        return hang or (_out_of_sight(lost) if lost else Serving(state.served_at, state.proof))
    hang = disagreement(state)
    if hang is None and not lost and not gpu_is_busy(state.ranks, limits):
        hang = no_progress(state, now, limits)
    if hang is not None:
        return hang
    if now - state.began >= limits.wall:
        return OutOfTime(limits.wall, how_far(state))
    return _out_of_sight(lost) if lost else Loading(how_far(state))


def _out_of_sight(lost: list[RankState]) -> CannotTell:
    reasons = tuple(rank.process.reason if isinstance(rank.process, Unknown) else "" for rank in lost)
    return CannotTell(tuple(rank.member.node for rank in lost), reasons)


def _ask_head(state: Boot, seen: Observation) -> Boot:
    counters = seen.head.counters
    if counters is not None:
        before = state.counters
        made = before is not None and counters.moved_since(before)
        moved_at = seen.now if made or before is None or not counters.running else state.moved_at
        state = replace(state, counters=counters, moved_at=moved_at, tokens_at=seen.now if made else state.tokens_at)
        if made and counters.running and before is not None and counters.generation > before.generation:
            state = replace(state, proof="tokens are being made")
    match seen.head.completion:
        case Answered():
            proof = "a one-token completion was answered"
            state = replace(state, proof=proof, failed_completions=0, timed_out_since=None, tokens_at=seen.now)
        case TimedOut(after):
            since = seen.now - after if state.timed_out_since is None else state.timed_out_since
            state = replace(state, timed_out_since=since)
        case HttpError(status, said) if status not in _REFUSALS_TOLD:
            state = replace(state, failed_completions=state.failed_completions + 1)
            if state.served_at is not None or state.failed_completions >= _REFUSALS_BELIEVED:
                state = _blame_head(state, seen.now, f"it answers a completion with status {status}", said)
        case _:
            pass
    if seen.head.health == _ENGINE_DEAD:
        state = _blame_head(state, seen.now, "its engine died", "/health answers 503")
    return state


def _blame_head(state: Boot, now: float, cause: str, line: str) -> Boot:
    piece = Evidence(now, Weight.SYMPTOM, cause, line or cause, 0)
    ranks = tuple(with_evidence(rank, piece) if rank.member.rank == 0 else rank for rank in state.ranks)
    return replace(state, ranks=ranks)


def _demand_proof(state: Boot, now: float, limits: Limits) -> Boot:
    """A rank whose overlay is not active answers, and answers wrong: a token of it proves nothing."""
    if not (limits.proof and state.proof and state.served_at is None):
        return state
    cause = f"it serves, but its log does not say that the overlay is active with {limits.proof}"
    piece = Evidence(now, Weight.OWN, cause, f"no line `spark_overlay ... active in vLLM ...: {limits.proof}`", 0, True)
    ranks = tuple(
        rank if limits.proof in rank.proofs else with_evidence(rank, replace(piece, blames=rank.member.rank))
        for rank in state.ranks
    )
    return state if ranks == state.ranks else replace(state, ranks=ranks, proof="")


def _note_serving(state: Boot, seen: Observation) -> Boot:
    alive = all(isinstance(rank.process, Alive) for rank in state.ranks)
    if state.served_at is None and state.proof and alive:
        return replace(state, served_at=seen.now)
    return state if state.served_at is not None else replace(state, proof="")


def _tell(state: Boot, seen: Observation, limits: Limits) -> Boot:
    """Add the sentences that are due now and were not said before."""
    due: dict[str, str] = {}
    if state.served_at is None:
        due |= peer_notes(state, seen.now, limits)
        if gpu_is_busy(state.ranks, limits) and no_progress(state, seen.now, limits):
            due["busy"] = f"no new log line for {limits.quiet:.0f} s, but a GPU draws power: still waiting"
    for rank in state.ranks:
        due |= {f"hint {rank.member.rank} {hint}": f"{rank.name}: {hint}" for hint in rank.hints}
        if rank.lost > 1 and isinstance(rank.process, Unknown):
            what = f"{rank.member.node} does not answer ({rank.process.reason})"
            due[f"lost {rank.member.rank}"] = f"{what}; rank {rank.member.rank} counts as unknown, not as dead"
    match seen.head.completion:
        case HttpError(status, said) if status in _REFUSALS_TOLD:
            due[f"refused {status}"] = f"a completion is refused with status {status}: {said}"
        case _:
            pass
    new = {key: text for key, text in due.items() if key not in state.told}
    return replace(state, notes=tuple(new.values()), told=state.told | frozenset(new))


def _ranks(numbers: tuple[int, ...]) -> str:
    return "rank " + " and ".join(str(number) for number in numbers)
