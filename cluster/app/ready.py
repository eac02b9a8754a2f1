"""Wait until a boot serves, hangs, dies or runs out of time, and tell on the way how far each rank is."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from cluster.app.evidence import collect
from cluster.app.pace import Pace
from cluster.app.ranks import limits, members, stopped_processes
from cluster.app.session import Session
from cluster.errors import Hung as HungError
from cluster.errors import OutOfTime as OutOfTimeError
from cluster.errors import RankDied, SparkctlError, Unreachable
from cluster.model.events import Emit, Progress, Severity, StageTime, Told
from cluster.model.fabric import Transport
from cluster.plan.boot import Boot, CannotTell, Died, Hung, Loading, Observation, OutOfTime, Serving, Verdict
from cluster.plan.engram import PROOF, needs_proof
from cluster.plan.fabric_told import cut, fabric_status
from cluster.plan.guard_told import stopped_by_guard
from cluster.plan.readiness import advance, describe
from cluster.probe.ranks import NodeLook, RankLook

STAGE = "load"
OUT_OF_SIGHT = 60.0  # a control link may be down for a while without harm to the ranks
HEARTBEAT = 5.0


@dataclass(slots=True)
class Times:
    """Seconds from launch to the first sign of each milestone."""

    began: float
    port: float | None = None
    http: float | None = None
    token: float | None = None
    phases: list[tuple[str, float]] = field(default_factory=list)
    transports: dict[int, Transport] = field(default_factory=dict)

    def note(self, seen: Observation, verdict: Verdict) -> None:
        since = seen.now - self.began
        if isinstance(seen.head.health, int):
            self.port = self.port if self.port is not None else since
            if seen.head.health == 200:
                self.http = self.http if self.http is not None else since
        if isinstance(verdict, Serving) and self.token is None:
            self.token = since

    def tree(self) -> tuple[StageTime, ...]:
        marks = [("port open", self.port), ("HTTP answers", self.http), ("first token", self.token)]
        parts, last = [], 0.0
        for name, at in marks:
            if at is not None:
                parts.append(StageTime(name, at - last, f"{at:.1f} s after launch"))
                last = at
        return tuple(parts)


Note = Callable[[Observation, Mapping[str, NodeLook]], None]


def wait(session: Session, boot: str, emit: Emit, pace: Pace, note: Note = lambda seen, looks: None) -> Times:
    """Returns once it serves. Raises RankDied, Hung, OutOfTime or Unreachable; the ranks are left as they are.

    `note` is given every observation, with the newest look at each node.
    """
    state = Boot.begin(members(session.settings), pace.clock())
    times, told = Times(state.began), _Teller(emit, pace.clock)
    wanted = limits(session.settings)
    if needs_proof(session.settings):  # only here are logs read from their first line
        wanted = replace(wanted, proof=PROOF)
    with pace.watch(session, boot) as watch:
        while True:
            seen = watch.observe()
            state = advance(state, seen, wanted)
            times.note(seen, state.verdict)
            note(seen, watch.looks)
            told.tell(state)
            match state.verdict:
                case Loading():
                    continue
                case Serving():
                    times.transports = {rank.member.rank: rank.transport for rank in state.ranks}
                    return times
                case CannotTell() as verdict:
                    if told.out_of_sight_for() < OUT_OF_SIGHT:
                        continue
                    raise failure(session, state, verdict, boot, watch.looks, emit)
                case verdict:
                    raise failure(session, state, verdict, boot, watch.looks, emit)


def failure(
    session: Session, state: Boot, verdict: Verdict, boot: str, looks: Mapping[str, NodeLook], emit: Emit
) -> SparkctlError:
    """The error that a verdict is, with evidence kept on disk."""
    what = describe(verdict, state.members)
    if isinstance(verdict, CannotTell):
        return Unreachable(
            what,
            evidence=verdict.reasons,
            fix="the ranks were left running; once the node answers: sparkctl status, then stop or start",
        )
    folder = collect(session, boot, what, emit, stacks=not isinstance(verdict, Died))
    kept = f"evidence is in {folder}/" if folder else ""
    seen = [(name, rank) for name, look in looks.items() for rank in look.ranks if rank.boot == boot]
    stopped, guarded = (*_cut(session, looks), *_stopped(seen)), stopped_by_guard(seen)
    match verdict:
        case Died(rank=rank, evidence=evidence):
            where = "" if rank is None else f"rank {rank} on {state.members[rank].node}"
            return RankDied(what, where=where, evidence=(*_cut(session, looks), *guarded, *evidence), fix=kept)
        case Hung(ranks=ranks, cause=cause):
            where = ", ".join(f"rank {rank} on {state.members[rank].node}" for rank in ranks)
            return HungError(what, where=where, evidence=(*stopped, cause), fix=kept)
        case OutOfTime(text=text):
            fix = "; ".join(filter(None, (kept, "READY_TIMEOUT sets the limit")))
            return OutOfTimeError(what, evidence=(text, *stopped), fix=fix)
        case _:
            return SparkctlError(f"not a failure: {what}")


def _cut(session: Session, looks: Mapping[str, NodeLook]) -> tuple[str, ...]:
    nodes = {node.name: node for node in session.settings.nodes}
    return cut((name, fabric_status(nodes[name], look.fabric)) for name, look in looks.items() if look.fabric)


def _stopped(ranks: Iterable[tuple[str, RankLook]]) -> tuple[str, ...]:
    """A stopped process is the plainest reason for a hang that there is; no log ever mentions it."""
    return tuple(
        f"rank {rank.rank} on {name}: {one} is stopped (state T)"
        for name, rank in ranks
        for one in stopped_processes(rank)
    )


class _Teller:
    """Says each change of phase once, and gives a sign of life in between."""

    def __init__(self, emit: Emit, clock: Callable[[], float]) -> None:
        self._emit = emit
        self._clock = clock
        self._said: dict[int, tuple[str, float]] = {}
        self._lost_since: float | None = None

    def tell(self, state: Boot) -> None:
        for note in state.notes:
            self._emit(Told(Severity.NOTE, note))
        now = self._clock()
        self._lost_since = (self._lost_since or now) if isinstance(state.verdict, CannotTell) else None
        for rank in state.ranks:
            text = f"{rank.phase.text} {rank.step}".strip()
            before, at = self._said.get(rank.member.rank, ("", 0.0))
            changed = text != before
            if changed or now - at >= HEARTBEAT:
                self._said[rank.member.rank] = (text, now)
                self._emit(
                    Progress(
                        STAGE,
                        rank.member.node,
                        float(rank.phase),
                        None,
                        "",
                        heartbeat=not changed,
                        text=text,
                        rank=rank.member.rank,
                    )
                )

    def out_of_sight_for(self) -> float:
        return 0.0 if self._lost_since is None else self._clock() - self._lost_since
