"""Judge a boot in which nothing moves: who waits for whom, which ranks stand still, and what may be the reason."""

from collections.abc import Iterable

from cluster.plan.boot import Alive, Boot, Hung, Limits, RankState
from cluster.plan.loglines import Phase

_FLAT = 0.02  # of one core: less is a process that does nothing


def how_far(boot: Boot) -> str:
    """One phrase for people: the phase of the rank that is furthest behind, with both when they differ."""
    phases = {rank.phase for rank in boot.ranks}
    furthest = max(boot.ranks, key=lambda rank: rank.phase)
    if len(phases) == 1 or all(_has_finished(rank) for rank in boot.ranks if rank is not furthest):
        return _standing(furthest)
    return ", ".join(f"rank {rank.member.rank} {_standing(rank)}" for rank in boot.ranks)


def disagreement(boot: Boot) -> Hung | None:
    """Ranks that wait at different places never meet; no need to wait for the limit to say so."""
    waiting = [rank for rank in boot.ranks if rank.rendezvous]
    if len({rank.rendezvous for rank in waiting}) <= 1 or any(rank.phase > Phase.WAITING for rank in waiting):
        return None
    places = ", ".join(f"rank {rank.member.rank} at {rank.rendezvous}" for rank in waiting)
    since = max(rank.phase_at for rank in waiting)
    return Hung(_numbers(waiting), since, f"the ranks wait for each other at different addresses: {places}")


def no_progress(boot: Boot, now: float, limits: Limits) -> Hung | None:
    """A hang before the first token: no rank says anything new, or one rank is silent and uses no CPU either."""
    last = max(rank.progress_at for rank in boot.ranks)
    if now - last >= limits.quiet:
        behind = min(rank.phase for rank in boot.ranks)
        return Hung(_numbers(rank for rank in boot.ranks if rank.phase is behind), last, _why(boot, now - last))
    for rank in boot.ranks:
        silent = now - rank.progress_at
        if silent >= limits.quiet and _is_frozen(rank, silent) and not _awaits_another(boot, rank):
            cause = f"{rank.name} has said nothing new and used no CPU for {silent:.0f} s, while the others go on"
            return Hung((rank.member.rank,), rank.progress_at, cause)
    return None


def peer_notes(boot: Boot, now: float, limits: Limits) -> dict[str, str]:
    """vLLM waits for its peers without a word; say it for it, once for each set of ranks that are awaited."""
    waiting = [rank for rank in boot.ranks if rank.phase is Phase.WAITING and now - rank.phase_at >= limits.peer_note]
    if not waiting:
        return {}
    awaited = [rank for rank in boot.ranks if rank.phase < Phase.WAITING]
    key = "waiting " + ",".join(str(rank.member.rank) for rank in awaited)
    return {key: f"{_waits(waiting, awaited)} (since {now - waiting[0].phase_at:.0f} s)"}


def _why(boot: Boot, silent: float) -> str:
    waiting = [rank for rank in boot.ranks if rank.phase is Phase.WAITING]
    if waiting:
        cause = _waits(waiting, [rank for rank in boot.ranks if rank.phase < Phase.WAITING])
    else:
        places = ", ".join(f"rank {rank.member.rank} after '{_standing(rank)}'" for rank in boot.ranks)
        cause = f"no rank has said anything new for {silent:.0f} s: {places}"
    for phase in (Phase.COMPILED, Phase.GRAPHS):
        did = [rank for rank in boot.ranks if phase in rank.reached]
        if did and len(did) < len(boot.ranks):
            cause += f"; only rank {did[0].member.rank} has {phase.text}: do all ranks run with the same flags?"
            break
    hints = [f"rank {rank.member.rank}: {hint}" for rank in boot.ranks for hint in rank.hints]
    return "; ".join([cause, *hints])


def _waits(waiting: list[RankState], awaited: list[RankState]) -> str:
    names = " and ".join(rank.name for rank in waiting)
    if awaited:
        missing = " and ".join(rank.name for rank in awaited)
        return f"{names} waits for {missing}, which has not come to the rendezvous {waiting[0].rendezvous}"
    return f"{names} wait for each other at {waiting[0].rendezvous}: can every rank reach it?"


def _has_finished(rank: RankState) -> bool:
    return rank.phase >= Phase.KV_SIZED


def _is_frozen(rank: RankState, silent: float) -> bool:
    if not isinstance(rank.process, Alive) or rank.process.cpu_seconds is None or rank.cpu_at_progress is None:
        return False
    return not _has_finished(rank) and rank.process.cpu_seconds - rank.cpu_at_progress < _FLAT * silent


def _awaits_another(boot: Boot, rank: RankState) -> bool:
    return rank.phase is Phase.WAITING and any(other.phase < Phase.WAITING for other in boot.ranks)


def _standing(rank: RankState) -> str:
    return f"{rank.phase.text} {rank.step}".strip()


def _numbers(ranks: Iterable[RankState]) -> tuple[int, ...]:
    return tuple(rank.member.rank for rank in ranks)
