"""What runs on the nodes: questions to the native runtime's programs, and their answers as the rules read them."""

from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.resources import files

from cluster.app.agents import source
from cluster.app.observe import told
from cluster.app.receipts import as_started
from cluster.app.session import Session
from cluster.errors import NodeError
from cluster.model.receipt import Receipt
from cluster.model.settings import NodeSettings, RuntimeKind, Settings, is_alone
from cluster.model.units import Seconds
from cluster.node.base import Node
from cluster.plan.boot import (
    Alive,
    Answered,
    Completion,
    Exited,
    Gone,
    HeadSight,
    Health,
    HttpError,
    Limits,
    LogLine,
    Member,
    Process,
    RankSight,
    Rebooted,
    Silence,
    TimedOut,
)
from cluster.plan.launch import ask_address, key_file
from cluster.probe.ranks import CompletionSeen, HeadSeen, HttpAnswer, NodeLook, RankLife, RankLook, parse_look
from cluster.runtime.base import Runtime
from cluster.runtime.container import ContainerRuntime
from cluster.runtime.native import RAS, HeadQuestion, NativeRuntime, Where

RUNTIME = NativeRuntime(source)


def launcher(settings: Settings) -> Runtime:
    """What prepares and launches the ranks; all that comes later is the same for every runtime."""
    if settings.launch.runtime is not RuntimeKind.CONTAINER:
        return RUNTIME
    return ContainerRuntime(RUNTIME, source, files("cluster").joinpath("seccomp", "io_uring.json").read_bytes())


OK = 200
UNAVAILABLE = 503


def where(settings: Settings, node: NodeSettings) -> Where:
    return Where(node.state_dir, settings.deployment, (rank_of(settings, node.name),))


def rank_of(settings: Settings, name: str) -> int:
    return next(rank for rank, node in enumerate(settings.nodes) if node.name == name)


def head_question(settings: Settings, receipt: Receipt | None = None) -> HeadQuestion:
    settings = as_started(settings, receipt)
    return HeadQuestion(
        host=ask_address(settings),
        port=settings.serve.port,
        model=settings.serve.served_model_name or settings.serve.model,
        key_file=key_file(settings) or None,
        ready=settings.watch.ready_path,
    )


def fabric_address(settings: Settings, node: NodeSettings) -> str | None:
    """What a look at the fabric is about; a rank alone needs none."""
    return None if is_alone(settings) else node.address or None


def members(settings: Settings) -> tuple[Member, ...]:
    return tuple(Member(rank, node.name, node.address) for rank, node in enumerate(settings.nodes))


def limits(settings: Settings) -> Limits:
    """vLLM itself gives up after execute_timeout; a stall must be called before that, or its own end is all we see."""
    watch = settings.watch
    stalled = min(watch.stall_seconds, max(1.0, settings.launch.execute_timeout * 0.8))
    return Limits(wall=watch.ready_timeout, quiet=watch.hang_seconds, stalled=stalled)


def look(
    session: Session, *, ask_head: bool, log_lines: int = 200, receipt: Receipt | None = None
) -> dict[str, NodeLook | NodeError]:
    """One round trip to each node. `ask_head`: also health, counters and, when nothing moves, one token."""
    settings = session.settings

    def one(node: Node) -> NodeLook:
        mine = next(each for each in settings.nodes if each.name == node.name)
        head = head_question(settings, receipt) if ask_head and mine is settings.head else None
        limit = Seconds(min(10.0, settings.watch.completion_timeout))
        command = RUNTIME.look(
            where(settings, mine),
            head=head,
            ras=RAS,
            completion_limit=limit,
            log_lines=log_lines,
            fabric=fabric_address(settings, mine),
        )
        return parse_look(told(node, node.run(command)))

    return session.attempt(one)


def newest(looks: Iterable[NodeLook]) -> str:
    """The boot to speak of: the newest of which something lives, else the newest; empty when there is none."""
    ranks = [rank for look in looks for rank in look.ranks]
    living = [rank.boot for rank in ranks if rank.state in (RankLife.ALIVE, RankLife.ORPHANED)]
    return max(living or [rank.boot for rank in ranks], default="")


def sight(rank: RankLook, seen: NodeLook, now: float) -> RankSight:
    """A rank as the rules want it. Ages of lines are measured on the node's own clock, so clocks may differ."""
    lines = tuple(LogLine(now - age(line.at, seen.at), line.text) for line in rank.log.lines)
    return RankSight(rank.rank, _process(rank, seen, now), lines, seen.ras)


def age(at: str, now: float) -> float:
    """Seconds since a UTC time as the shim writes it; 0 for a line without one."""
    try:
        then = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
    return max(0.0, now - then)


def rebooted(rank: RankLook, seen: NodeLook) -> str:
    """When its node booted anew, where that is why the rank is gone; else empty.

    An orderly reboot has systemd end the rank, which then says that it was asked to; only a stop of ours leaves a note.
    """
    if not rank.kernel_boot or rank.kernel_boot == seen.kernel_boot:
        return ""
    ended = rank.state is RankLife.EXITED and rank.exit is not None and rank.exit.requested and not rank.stop_asked
    if not ended and rank.state is not RankLife.VANISHED:
        return ""
    return datetime.fromtimestamp(seen.booted, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _process(rank: RankLook, seen: NodeLook, now: float) -> Process:
    if when := rebooted(rank, seen):
        ended = age(rank.exit.at, seen.at) if rank.exit else max(0.0, seen.at - seen.booted)
        return Rebooted(now - ended, when)
    match rank.state:
        case RankLife.ALIVE:
            return Alive(cpu_seconds=sum(process.cpu for process in rank.processes))
        case RankLife.EXITED if rank.exit is not None:
            code = -rank.exit.signal if rank.exit.signal else rank.exit.code
            at = now - age(rank.exit.at, seen.at)
            return Exited(code if code is not None else 1, rank.exit.requested, at, rank.exit.error)
        case RankLife.ORPHANED:
            return Gone(len(rank.processes))
        case _:
            return Gone()


def head_sight(seen: HeadSeen | None, settings: Settings) -> HeadSight:
    """503 of vLLM's /health is a dead engine; of a path that says whether a model is loaded, it is one that loads."""
    if seen is None:
        return HeadSight()
    loads = seen.health == UNAVAILABLE and settings.watch.ready_path != "/health"
    health = Silence.UNANSWERED if loads else _health(seen.health)
    return HeadSight(health, _completion(seen.completion), seen.later or seen.counters)


def _health(answer: HttpAnswer) -> Health:
    match answer:
        case int():
            return answer
        case "refused":
            return Silence.REFUSED
        case _:
            return Silence.UNANSWERED


def _completion(seen: CompletionSeen | None) -> Completion:
    match seen:
        case None:
            return None
        case CompletionSeen(answer=int(status)) if status == OK:
            return Answered()
        case CompletionSeen(answer=int(status), said=said):
            return HttpError(status, said)
        case CompletionSeen(answer="timeout", seconds=seconds):
            return TimedOut(seconds)
        case _:  # it could not be sent: health says why
            return None


def stopped_processes(rank: RankLook) -> tuple[str, ...]:
    """Names of its processes that a signal stopped (state T): they hold everything and do nothing."""
    return tuple(f"{process.name} (pid {process.pid})" for process in rank.processes if process.state == "T")
