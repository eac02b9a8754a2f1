"""`status`: one look at every node, judged. Changes nothing, takes no lock, two round trips at most."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from cluster.app.evidence import collect
from cluster.app.pace import REAL, Pace
from cluster.app.ranks import head_sight, limits, look, members, newest, rank_of, rebooted, sight, stopped_processes
from cluster.app.receipts import Kept, read_kept
from cluster.app.session import OpenNode, Session
from cluster.errors import Exit, NodeError
from cluster.model.deployment import State
from cluster.model.events import Emit, NodeStatus, RankStatus, Severity, StatusReport, Told
from cluster.model.fabric import Transport
from cluster.model.receipt import RankReceipt, Receipt
from cluster.model.settings import Settings
from cluster.model.status import FabricStatus
from cluster.node.local import LocalNode
from cluster.node.local import memory as local_memory
from cluster.plan.assess import Assessment, RankStanding, assess
from cluster.plan.boot import Gone, HeadSight, Observation, RankSight, Unknown
from cluster.plan.fabric_told import cut, fabric_status
from cluster.plan.guard_told import guard_line, stopped_by_guard
from cluster.plan.launch import api_url
from cluster.plan.transport import described, differences
from cluster.probe.ranks import HeadSeen, NodeLook, RankLife, RankLook

APART = 1.5  # seconds between the two samples of the counters that a look takes while requests run

EXITS = {
    State.SERVING: Exit.DONE,
    State.LOADING: Exit.DEGRADED,
    State.DEGRADED: Exit.DEGRADED,
    State.ABSENT: Exit.ABSENT,
    State.HUNG: Exit.HUNG,
    State.CANNOT_TELL: Exit.UNREACHABLE,
}


def status(settings: Settings, open_one: OpenNode) -> StatusReport:
    with Session(settings, open_one) as session:
        return report(session)


def follow(
    settings: Settings, open_one: OpenNode, emit: Emit, every: float, pace: Pace = REAL
) -> Iterator[StatusReport]:
    """A look every so many seconds, for as long as somebody reads. A hang is caught in the act: stacks are kept."""
    hung, before, at = "", None, 0.0
    with Session(settings, open_one, emit) as session:
        while True:
            session.retry_missing()
            seen, now = report(session), pace.clock()
            yield seen if before is None else with_rates(before, seen, now - at)
            before, at = seen, now
            if seen.state is State.HUNG and seen.boot != hung:
                hung = seen.boot
                folder = collect(session, hung, "\n".join(seen.reasons), emit, stacks=True)
                if folder is not None:
                    emit(Told(Severity.NOTE, f"evidence of the hang is in {folder}/"))
            pace.sleep(every)


def report(session: Session) -> StatusReport:
    name = session.settings.head.name
    kept = Kept(None, "") if name in session.missing else _kept(session)
    return examine(session, kept)[0]


def with_rates(before: StatusReport, now: StatusReport, apart: float) -> StatusReport:
    """What went through the fabric between two looks; an interface that was made anew counts from 0."""
    then = {one.node: one.fabric for one in before.nodes}
    nodes = (replace(one, fabric=_rates(then.get(one.node), one.fabric, apart)) for one in now.nodes)
    return replace(now, nodes=tuple(nodes))


def _rates(before: FabricStatus | None, now: FabricStatus | None, apart: float) -> FabricStatus | None:
    if before is None or now is None or apart <= 0 or now.received < before.received or now.sent < before.sent:
        return now
    return replace(now, in_rate=(now.received - before.received) / apart, out_rate=(now.sent - before.sent) / apart)


def _kept(session: Session) -> Kept:
    try:
        return read_kept(session.head, session.settings)
    except NodeError as error:
        return Kept(None, "", error.what)


def standing(session: Session) -> State:
    """The state alone. Where no rank lives there is no server to ask, and one round trip tells it."""
    idle, _ = _judged(session, Kept(None, ""), look(session, ask_head=False))
    return idle.state if idle.state is State.ABSENT else report(session).state


def examine(session: Session, kept: Kept) -> tuple[StatusReport, tuple[NodeLook, ...]]:
    """The judged report, and the looks it rests on."""
    return _judged(session, kept, look(session, ask_head=True, receipt=kept.receipt))


def _judged(
    session: Session, kept: Kept, looks: dict[str, NodeLook | NodeError]
) -> tuple[StatusReport, tuple[NodeLook, ...]]:
    settings = session.settings
    seen = tuple(one for one in looks.values() if not isinstance(one, NodeError))
    boot = newest(seen)
    now = time.monotonic()
    sights = tuple(_sight(settings, name, one, boot, now) for name, one in looks.items())
    asked = looks.get(settings.head.name)
    head = asked.head if isinstance(asked, NodeLook) else None
    seen_head = head_sight(head, settings)
    observation = Observation(now, sights, seen_head)
    before = head.counters if head is not None and head.later is not None else None
    judged = assess(members(settings), observation, limits(settings), before, APART if before else 0.0)
    nodes = tuple(_node(session, name, one, boot) for name, one in looks.items())
    return _report(settings, kept, looks, boot, judged, head, seen_head, nodes), seen


def _sight(settings: Settings, name: str, one: NodeLook | NodeError, boot: str, now: float) -> RankSight:
    rank = next(rank for rank, node in enumerate(settings.nodes) if node.name == name)
    if isinstance(one, NodeError):
        return RankSight(rank, Unknown(one.what))
    mine = _mine(one, boot, rank)
    return sight(mine, one, now) if mine is not None else RankSight(rank, Gone())


def _mine(seen: NodeLook, boot: str, rank: int) -> RankLook | None:
    return next((one for one in seen.ranks if (one.boot, one.rank) == (boot, rank)), None)


def _report(
    settings: Settings,
    kept: Kept,
    looks: dict[str, NodeLook | NodeError],
    boot: str,
    judged: Assessment,
    head: HeadSeen | None,
    seen_head: HeadSight,
    nodes: tuple[NodeStatus, ...],
) -> StatusReport:
    stopped = tuple(
        f"rank {rank.rank} on {name}: {one} is stopped (state T)"
        for name, seen in looks.items()
        if isinstance(seen, NodeLook)
        for rank in seen.ranks
        if rank.boot == boot
        for one in stopped_processes(rank)
    )
    guarded = stopped_by_guard(
        (name, rank)
        for name, seen in looks.items()
        if isinstance(seen, NodeLook)
        for rank in seen.ranks
        if rank.boot == boot
    )
    receipt = kept.receipt
    current = receipt is not None and receipt.boot == boot
    counters = seen_head.counters
    return StatusReport(
        deployment=settings.deployment,
        state=judged.state,
        boot=boot,
        url=receipt.url if receipt and current else api_url(settings) if boot else "",
        ranks=tuple(
            _rank(settings, rank, looks, boot, judged, receipt if current else None)
            for rank in range(len(settings.nodes))
        ),
        nodes=nodes,
        reasons=(
            *_cut(judged.state, nodes),
            *stopped,
            *(guarded or judged.reasons),
            *((kept.problem,) if kept.problem else ()),
        ),
        model=receipt.model if receipt and current else "",
        health=str(head.health) if head else "",
        completion=_completion(head),
        running=counters.running if counters else None,
        waiting=counters.waiting if counters else None,
        generated=counters.generation if counters else None,
        lock=kept.lock,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _rank(
    settings: Settings,
    rank: int,
    looks: dict[str, NodeLook | NodeError],
    boot: str,
    judged: Assessment,
    receipt: Receipt | None,
) -> RankStatus:
    name = settings.nodes[rank].name
    seen = looks.get(name)
    if not isinstance(seen, NodeLook):
        return RankStatus(rank, name, "unknown", seen.what if seen else "not asked")
    mine = _mine(seen, boot, rank)
    if mine is None:
        return RankStatus(rank, name, "absent")
    standing = next((one for one in judged.ranks if one.rank == rank), None)
    started = next((one for one in receipt.ranks if one.rank == rank), None) if receipt else None
    transport = _transport(started, standing)
    unplanned = differences(transport, started.hca, started.gid, started.interface) if started else ()
    return RankStatus(
        rank=rank,
        node=name,
        state=mine.state.value,
        detail="; ".join(filter(None, (_detail(mine, seen, standing.phase if standing else ""), *unplanned))),
        pid=mine.main,
        processes=len(mine.processes),
        rss=sum(one.rss for one in mine.processes),
        since=mine.started,
        transport=described(transport),
    )


def _transport(started: RankReceipt | None, standing: RankStanding | None) -> Transport | None:
    """What its whole log said when it came up, else what the end of it says."""
    if started is not None and started.transport.kind:
        return started.transport
    return standing.transport if standing else None


def _detail(rank: RankLook, seen: NodeLook, phase: str) -> str:
    if when := rebooted(rank, seen):
        ended = f"ended at {rank.exit.at}; " if rank.exit else ""
        return f"{ended}its node was rebooted at {when}, after the start"
    match rank.state:
        case RankLife.EXITED if rank.exit is not None:
            how = f"signal {rank.exit.signal}" if rank.exit.signal else f"exit code {rank.exit.code}"
            asked = " as asked" if rank.exit.requested else ""
            return f"ended{asked} with {how} at {rank.exit.at}" + (f": {rank.exit.error}" if rank.exit.error else "")
        case RankLife.ORPHANED:
            return f"its launcher was killed, {len(rank.processes)} of its processes live on: sparkctl stop ends them"
        case RankLife.VANISHED:
            return "nothing of it lives and nothing says how it ended: it was killed with its launcher"
        case _:
            return phase


def _node(session: Session, name: str, seen: NodeLook | NodeError, boot: str) -> NodeStatus:
    if isinstance(seen, NodeError):
        return NodeStatus(name, False, detail=seen.what)
    settings = session.settings
    rank = rank_of(settings, name)
    memory = local_memory() if isinstance(session.nodes.get(name), LocalNode) else seen.memory
    return NodeStatus(
        name,
        True,
        memory.total,
        memory.available,
        detail=guard_line(_mine(seen, boot, rank)),
        memory_free=memory.free,
        memory_cached=memory.cached,
        swap_used=memory.swapped,
        fabric=fabric_status(settings.nodes[rank], seen.fabric) if seen.fabric else None,
    )


def _cut(state: State, nodes: tuple[NodeStatus, ...]) -> tuple[str, ...]:
    """The cable is out: whatever else is seen of ranks that do not serve follows from it."""
    if state in (State.SERVING, State.ABSENT):
        return ()
    return cut((one.node, one.fabric) for one in nodes)


def _completion(head: HeadSeen | None) -> str:
    match head.completion if head else None:
        case None:
            return ""
        case seen:
            return f"{seen.answer} in {seen.seconds:.2f} s"
