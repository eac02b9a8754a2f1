"""Look at the Engram tables of every node: one more question to each, and only when a folder of them is set."""

from cluster.app.agents import agent
from cluster.app.observe import told
from cluster.app.session import Session
from cluster.node.base import Node
from cluster.plan.engram import folders_wanted, is_on
from cluster.probe.tables import TablesSeen, parse_tables

LOOK = 120.0  # a long index on a disk that may be busy


def tables_of(node: Node, folders: tuple[str, ...], out: str) -> TablesSeen:
    """Which tables lie in these folders of the node, and which packed files in `out`."""
    return parse_tables(node.name, told(node, node.run(agent("tables", {"folders": folders, "out": out}, LOOK))))


def look_at_tables(session: Session) -> dict[str, TablesSeen]:
    """What the ranks would open; nothing when no tables lie in files."""
    settings = session.settings
    if not is_on(settings):
        return {}
    nodes = {node.name: node for node in settings.nodes}

    def ask(node: Node) -> TablesSeen:
        return tables_of(node, folders_wanted(settings, nodes[node.name]), nodes[node.name].packed)

    return session.each(ask)
