"""Evict pages of the weights before a launch and after the ranks serve, as the policy says, and tell the price."""

from collections.abc import Iterable

from cluster.app.agents import agent
from cluster.app.ledger import MemoryPlan
from cluster.app.observe import told
from cluster.app.ranks import rank_of
from cluster.app.session import Session
from cluster.errors import SparkctlError
from cluster.model.events import Emit, Severity, Told
from cluster.model.kit import PageCache
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.node.base import Node
from cluster.plan.memory_checks import wants_drop
from cluster.plan.pages import Evicted, folders, parse_evicted, policy, price
from cluster.plan.share import reading_of, want_of
from cluster.share.base import through

LIMIT = Seconds(120.0)


def before_launch(session: Session, plan: MemoryPlan | None, emit: Emit) -> None:
    """Where the driver would not find enough free memory though enough is available; everywhere for `evict-all`."""
    settings = session.settings
    match policy(settings):
        case PageCache.EVICT_ALL:
            _evict(session, [node.name for node in settings.nodes], PageCache.EVICT_ALL, emit)
        case PageCache.EVICT_CHECKPOINT if plan is not None:
            names = [one.facts.node for one in plan.nodes if wants_drop(settings, one)]
            _evict(session, names, PageCache.EVICT_CHECKPOINT, emit)
        case _:
            return


def after_serving(session: Session, emit: Emit) -> None:
    """The ranks have their weights: the files' pages only keep memory from whoever needs it. Of all nodes, the one
    that serves files to the others too. A failure is told and ends nothing: it serves."""
    if policy(session.settings) is PageCache.KEEP:
        return
    try:
        _evict(session, [node.name for node in session.settings.nodes], PageCache.EVICT_CHECKPOINT, emit)
    except (SparkctlError, ExceptionGroup) as error:
        emit(Told(Severity.WARNING, f"pages of the weights were not evicted: {error}"))


def _evict(session: Session, names: Iterable[str], how: PageCache, emit: Emit) -> None:
    chosen = set(names)

    def act(node: Node) -> Evicted | None:
        if node.name not in chosen:
            return None
        return parse_evicted(node.name, told(node, node.run(_command(session, node.name, how))))

    for name, done in session.each(act).items() if chosen else ():
        if done is not None:
            emit(Told(Severity.NOTE, price(done, how), name))


def _command(session: Session, name: str, how: PageCache) -> Command:
    settings = session.settings
    mine = settings.nodes[rank_of(settings, name)]
    is_all = how is PageCache.EVICT_ALL
    reading = reading_of(settings, mine, "model")
    named = folders(settings, mine) if reading is None else (reading.path,)
    command = agent("drop", {"folders": named, "all": is_all, "price": True}, LIMIT)
    return command if reading is None or is_all else through(reading, want_of(settings), command)
