"""`weights`: what lies on the nodes and who needs it; keep a folder on purpose; remove those that nobody needs."""

from cluster.app.agents import agent
from cluster.app.lock import held
from cluster.app.observe import told
from cluster.app.session import OpenNode, Session
from cluster.errors import SettingsError
from cluster.model.events import Emit
from cluster.model.settings import Settings
from cluster.model.weights import HeldFolder, WeightsReport
from cluster.node.base import Node
from cluster.plan.fetch import registry
from cluster.plan.weights_life import parse_holdings, preview

LIMIT = 600.0


def ls(settings: Settings, open_one: OpenNode, emit: Emit) -> WeightsReport:
    with Session(settings, open_one, emit) as session:
        session.need_all()
        return WeightsReport(settings.deployment, "ls", False, _ask(session))


def pin(settings: Settings, open_one: OpenNode, emit: Emit, folder: str, reason: str) -> WeightsReport:
    """On every node that has the folder; an empty reason takes the pin away."""
    with Session(settings, open_one, emit) as session:
        session.need_all()
        found = tuple(one for one in _ask(session, pinned=(folder, reason)) if one.path == folder)
    if not found:
        raise SettingsError("no node knows such a folder of weights", where=folder, fix="sparkctl weights ls")
    return WeightsReport(settings.deployment, "pin" if reason else "unpin", False, found)


def prune(settings: Settings, open_one: OpenNode, emit: Emit, folder: str, *, yes: bool) -> WeightsReport:
    """Says what would go, and with `yes` removes it: each node looks again before it does."""
    with Session(settings, open_one, emit) as session:
        session.need_all()
        seen = preview(_ask(session), folder)
        if folder and folder not in {one.path for one in seen}:
            raise SettingsError("no node knows such a folder of weights", where=folder, fix="sparkctl weights ls")
        if yes and any(one.freed is not None for one in seen):
            with held(session.head, settings, "weights prune", emit):
                seen = _ask(session, gone=seen)
    return WeightsReport(settings.deployment, "prune", not yes, seen)


def _ask(
    session: Session, *, pinned: tuple[str, str] | None = None, gone: tuple[HeldFolder, ...] = ()
) -> tuple[HeldFolder, ...]:
    settings = session.settings
    by_name = {node.name: node for node in settings.nodes}

    def ask(node: Node) -> tuple[HeldFolder, ...]:
        mine = by_name[node.name]
        configured = [one for one in (mine.model or settings.serve.model, mine.engram) if one]
        want = {
            "registry": registry(mine.state_dir),
            "folders": configured,
            "pin": {"path": pinned[0], "text": pinned[1]} if pinned else None,
            "remove": [one.path for one in gone if one.node == node.name and one.freed is not None],
        }
        text = told(node, node.run(agent("holdings", want, LIMIT)))
        return parse_holdings(node.name, text, settings.deployment)

    asked = session.each(ask)
    return tuple(one for node in settings.nodes for one in asked[node.name])
