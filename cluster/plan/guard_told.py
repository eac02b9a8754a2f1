"""What the memory guards have to say of a deployment: that they were killed, and what they did."""

from collections.abc import Iterable

from cluster.model.units import format_bytes
from cluster.probe.ranks import GuardLife, GuardSeen, RankLife, RankLook

STOPPED = "stopped our ranks; "


def guard_line(rank: RankLook | None) -> str:
    """Beside the node in `status`; empty where no guard was started."""
    guard = rank.guard if rank else None
    if rank is None or guard is None:
        return ""
    if guard.state is GuardLife.KILLED and rank.state in (RankLife.ALIVE, RankLife.ORPHANED):
        return "the memory guard was killed: nothing guards this node's memory now; sparkctl restart starts one"
    if guard.state is not GuardLife.WATCHING:
        return ""
    lowest = f", {format_bytes(guard.lowest)} was the least available" if guard.lowest is not None else ""
    said = f"; {guard.did[-1]}" if guard.did else ""
    return f"the memory guard {'acts' if guard.mode == 'act' else 'watches'}{lowest}{said}"


def stopped_by_guard(ranks: Iterable[tuple[str, RankLook]]) -> tuple[str, ...]:
    """Why ranks are gone that nobody asked to stop, by node; the guard that saw it first says most."""
    found = [
        (name, what.removeprefix(STOPPED))
        for name, rank in ranks
        for what in _did(rank.guard)
        if what.startswith(STOPPED)
    ]
    found.sort(key=lambda one: one[1].startswith("another node"))
    return tuple(f"the memory guard on {name} stopped the ranks: {why}" for name, why in found)


def _did(guard: GuardSeen | None) -> tuple[str, ...]:
    return guard.did if guard else ()
