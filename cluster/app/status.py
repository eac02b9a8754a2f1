"""`status`: one look at every node, judged. Changes nothing, takes no lock, two round trips at most."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

from cluster.app.evidence import collect
from cluster.app.pace import REAL, Pace
from cluster.app.ranks import head_sight, limits, look, members, newest, rank_of, sight, stopped_processes
from cluster.app.receipts import Kept, read_kept
from cluster.app.session import OpenNode, Session
from cluster.errors import Exit, NodeError
from cluster.model.deployment import State
from cluster.model.events import Emit, NodeStatus, RankStatus, Severity, StatusReport, Told
from cluster.model.settings import Settings
from cluster.plan.assess import Assessment, assess
from cluster.plan.boot import Gone, HeadSight, Observation, RankSight, Unknown
from cluster.plan.guard_told import guard_line, stopped_by_guard
from cluster.plan.launch import api_url
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
    hung = ""
    with Session(settings, open_one, emit) as session:
        while True:
            session.retry_missing()
            seen = report(session)
            yield seen
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


def _kept(session: Session) -> Kept:
    try:
        return read_kept(session.head, session.settings)
    except NodeError as error:
        return Kept(None, "", error.what)


def examine(session: Session, kept: Kept) -> tuple[StatusReport, tuple[NodeLook, ...]]:
    """The judged report, and the looks it rests on."""
    settings = session.settings
    looks = look(session, ask_head=True)
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
    return _report(settings, kept, looks, boot, judged, head, seen_head), seen


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
        ranks=tuple(_rank(settings, rank, looks, boot, judged) for rank in range(len(settings.nodes))),
        nodes=tuple(_node(settings, name, seen, boot) for name, seen in looks.items()),
        reasons=(*stopped, *(guarded or judged.reasons), *((kept.problem,) if kept.problem else ())),
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
    settings: Settings, rank: int, looks: dict[str, NodeLook | NodeError], boot: str, judged: Assessment
) -> RankStatus:
    name = settings.nodes[rank].name
    seen = looks.get(name)
    if not isinstance(seen, NodeLook):
        return RankStatus(rank, name, "unknown", seen.what if seen else "not asked")
    mine = _mine(seen, boot, rank)
    if mine is None:
        return RankStatus(rank, name, "absent")
    standing = next((one for one in judged.ranks if one.rank == rank), None)
    return RankStatus(
        rank=rank,
        node=name,
        state=mine.state.value,
        detail=_detail(mine, standing.phase if standing else ""),
        pid=mine.main,
        processes=len(mine.processes),
        rss=sum(one.rss for one in mine.processes),
        since=mine.started,
    )


def _detail(rank: RankLook, phase: str) -> str:
    match rank.state:
        case RankLife.EXITED if rank.exit is not None:
            how = f"signal {rank.exit.signal}" if rank.exit.signal else f"exit code {rank.exit.code}"
            asked = " as asked" if rank.exit.requested else ""
            return f"ended{asked} with {how} at {rank.exit.at}" + (f": {rank.exit.error}" if rank.exit.error else "")
        case RankLife.ORPHANED:
            return f"its launcher was killed, {len(rank.processes)} of its processes live on: sparkctl stop ends them"
        case RankLife.VANISHED:
            return "nothing of it lives and nothing says how it ended: killed, or the node went down"
        case _:
            return phase


def _node(settings: Settings, name: str, seen: NodeLook | NodeError, boot: str) -> NodeStatus:
    if isinstance(seen, NodeError):
        return NodeStatus(name, False, detail=seen.what)
    guard = guard_line(_mine(seen, boot, rank_of(settings, name)))
    return NodeStatus(name, True, seen.memory.total, seen.memory.available, guard)


def _completion(head: HeadSeen | None) -> str:
    match head.completion if head else None:
        case None:
            return ""
        case seen:
            return f"{seen.answer} in {seen.seconds:.2f} s"
