"""`stop`: end every rank on every node, see that it is gone and that its memory came back."""

from dataclasses import replace

from cluster.app.boxes import say_strays
from cluster.app.lock import held
from cluster.app.observe import facts_of
from cluster.app.pace import REAL, Pace
from cluster.app.ranks import RUNTIME, look, rank_of, where
from cluster.app.receipts import Kept, read_kept, utc_now, write_receipt
from cluster.app.session import OpenNode, Session
from cluster.app.stages import Stages
from cluster.errors import NodeError, NotStopped, SparkctlError, StepFailed, Unreachable
from cluster.model.events import Emit, NodeStatus, RankStatus, Severity, Stopped, Told
from cluster.model.settings import Settings
from cluster.model.units import Seconds, format_bytes
from cluster.node.base import Node
from cluster.probe.rank_acts import NodeStopped, parse_failure, parse_stop
from cluster.probe.ranks import NodeLook, RankLife

PATIENCE = 30.0  # seconds for memory to come back: drivers give it back late
SLACK = 0.05  # of what a node had before the launch; other programs come and go


def stop(settings: Settings, open_one: OpenNode, emit: Emit, pace: Pace = REAL) -> Stopped:
    with Session(settings, open_one, emit) as session, held(session.head, settings, "stop", emit):
        return end(session, emit, pace)


def end(session: Session, emit: Emit, pace: Pace) -> Stopped:
    """Stop on an open session whose lock is held. A node that cannot be seen is an error, after the others are done."""
    kept = read_kept(session.head, session.settings)
    _say_strangers(session.settings, kept, emit)
    with Stages(emit, pace.clock).stage("stop", tuple(session.nodes)):
        outcomes = session.attempt(lambda node: _stop_node(node, session))
        _check(session, outcomes)
        say_strays(session, emit)
    _note(session, kept, emit)
    ended = {name: one for name, one in outcomes.items() if isinstance(one, NodeStopped)}
    ranks = tuple(one for name, stopped in ended.items() for one in _ranks(name, stopped))
    if not ranks:
        return Stopped(session.settings.deployment, (), (), nothing=True)
    return Stopped(session.settings.deployment, ranks, _memory(session, kept, emit, pace))


def _say_strangers(settings: Settings, kept: Kept, emit: Emit) -> None:
    """The receipt may name nodes that the settings of today do not; what runs there is not ended silently."""
    if kept.receipt is None or kept.receipt.stopped:
        return
    known = {(node.control, node.state_dir) for node in settings.nodes}
    for rank in kept.receipt.ranks:
        if (rank.control, rank.state_dir) not in known:
            raise NotStopped(
                f"rank {rank.rank} was started on {rank.node} ({rank.control}), which is not in the settings now",
                where=settings.deployment,
                evidence=[f"started {kept.receipt.created}, folder {rank.state_dir}"],
                fix="stop with the settings it was started with",
            )


def _stop_node(node: Node, session: Session) -> NodeStopped:
    settings = session.settings
    mine = settings.nodes[rank_of(settings, node.name)]
    result = node.run(RUNTIME.stop(where(settings, mine), Seconds(settings.watch.stop_grace)))
    said = parse_failure(result.text)
    if said or result.exit not in (0, LEFT):
        raise StepFailed(
            said or f"the stop program ended with exit code {result.exit}",
            where=node.name,
            evidence=result.err_text.strip().splitlines()[-5:],
        )
    return parse_stop(result.text)


AGAIN = "sparkctl stop again, once the node answers"
LEFT = 5  # the agent's exit code when something is left


def _check(session: Session, outcomes: dict[str, NodeStopped | NodeError]) -> None:
    lost = {name: one for name, one in outcomes.items() if isinstance(one, NodeError)}
    left = [
        f"rank {rank.rank} on {name}: {title} (pid {pid})"
        for name, one in outcomes.items()
        if isinstance(one, NodeStopped)
        for rank in one.ranks
        for pid, title in rank.left
    ]
    if left:
        raise NotStopped(
            f"{len(left)} processes are still there after KILL; they sit in a driver or on a dead mount",
            evidence=[*left, *(f"{one}; nobody knows what runs there" for one in lost.values())],
            fix="look at the node: cat /proc/PID/wchan; it may need a reboot",
        )
    if lost:
        names = ", ".join(f"rank {rank_of(session.settings, name)} on {name}" for name in lost)
        raise Unreachable(
            f"cannot tell whether {names} stopped; the other ranks are gone",
            where=", ".join(lost),
            evidence=[str(one) for one in lost.values()],
            fix="\n".join([*dict.fromkeys(one.fix for one in lost.values() if one.fix), AGAIN]),
        )
    seen = look(session, ask_head=False, log_lines=0)
    _check_gone(seen)


def _check_gone(seen: dict[str, NodeLook | NodeError]) -> None:
    """A second pair of eyes: the stop program said so, now look."""
    for name, one in seen.items():
        if isinstance(one, NodeError):
            raise one
        living = [rank for rank in one.ranks if rank.state in (RankLife.ALIVE, RankLife.ORPHANED)]
        if living:
            raise NotStopped(
                f"rank {living[0].rank} is {living[0].state} again after it was stopped",
                where=name,
                evidence=[f"{each.name} (pid {each.pid})" for each in living[0].processes],
                fix="is something else starting it? look for its parent, then sparkctl stop again",
            )


def _note(session: Session, kept: Kept, emit: Emit) -> None:
    """Keep in the receipt that its ranks are gone; a full disk must not make a failure of a stop."""
    if kept.receipt is None or kept.receipt.stopped:
        return
    try:
        write_receipt(session.head, session.settings, replace(kept.receipt, stopped=utc_now()))
    except SparkctlError as error:
        emit(Told(Severity.WARNING, f"the receipt does not say that it was stopped: {error.what}", session.head.name))


def _ranks(name: str, stopped: NodeStopped) -> list[RankStatus]:
    return [
        RankStatus(
            one.rank, name, one.how, f"{len(one.ended)} processes in {one.seconds:.1f} s", processes=len(one.ended)
        )
        for one in stopped.ranks
        if one.how != "absent"
    ]


def _memory(session: Session, kept: Kept, emit: Emit, pace: Pace) -> tuple[NodeStatus, ...]:
    """Wait for each node to have about what it had before the launch, and say what did not come back."""
    before = {rank.node: rank.memory_before for rank in kept.receipt.ranks} if kept.receipt else {}
    deadline = pace.clock() + PATIENCE
    while True:
        facts = session.each(facts_of)
        short = {
            name: before[name] - one.memory.available
            for name, one in facts.items()
            if before.get(name, 0) - one.memory.available > SLACK * before.get(name, 0)
        }
        if not short or pace.clock() >= deadline:
            break
        pace.sleep(1)
    for name, missing in short.items():
        emit(
            Told(
                Severity.WARNING,
                f"{format_bytes(missing)} less is available than before the launch; the ranks are gone, "
                "so another program or the driver holds it",
                name,
            )
        )
    return tuple(NodeStatus(name, True, one.memory.total, one.memory.available) for name, one in facts.items())
