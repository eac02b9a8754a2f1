"""`--backend auto`: look at every way to share, measure the link, print what each costs, and take one."""

import json
from dataclasses import replace
from typing import Any

from cluster.app.agents import agent, program
from cluster.app.observe import told
from cluster.app.reach import reach
from cluster.app.session import Session
from cluster.errors import SparkctlError
from cluster.model.events import Emit
from cluster.model.kit import Sync
from cluster.model.share import Offer, ShareCosts
from cluster.model.steps import NodeName
from cluster.node.base import Node
from cluster.share.auto import ORDER, choose, is_there_already, not_looked, offer, to_detach
from cluster.share.backends import BETWEEN, BY_NAME
from cluster.share.base import Share, Want

SECONDS = 2.0  # of measuring; logging in comes on top


def looked(session: Session, share: Share[Any], want: Want) -> dict[NodeName, Any]:
    """What one backend wants to know, from all nodes side by side."""
    asked = share.look(want)

    def ask(node: Node) -> Any:
        if node.name not in asked:
            return None
        return share.read(want, node.name, told(node, node.run(asked[node.name])))

    return {name: one for name, one in session.each(ask).items() if one is not None}


def ways_of(session: Session, want: Want, emit: Emit, kind: Sync | None = None) -> Want:
    """With the way from the head to each worker; streams of ZFS may have one of their own."""
    at = (want.weights.zfs_ssh or want.weights.zfs_worker) if kind is Sync.ZFS else ""
    return replace(want, ways={node.name: reach(session, node.name, emit, at) for node in want.workers})


def chosen(session: Session, want: Want, emit: Emit, *, detach: bool, measure: bool = True) -> Sync:
    """What is attached already, else what costs least of what is possible. The table is told first."""
    seen: dict[Sync, dict[NodeName, Any]] = {}
    failed: dict[Sync, SparkctlError] = {}
    try:
        want = want if want.ways else ways_of(session, want, emit)
    except SparkctlError as error:
        failed = dict.fromkeys(BETWEEN, error)
    shares = {kind: BY_NAME[kind](program) for kind in ORDER}
    for kind, share in shares.items():
        try:
            seen[kind] = looked(session, share, want)
        except SparkctlError as error:
            failed.setdefault(kind, error)
    rate = _rate(session, want) if want.ways and measure and not detach else 0.0
    offers: tuple[Offer, ...] = tuple(
        not_looked(kind, failed[kind]) if kind in failed else offer(kind, want, share, seen[kind], rate)
        for kind, share in shares.items()
    )
    if detach:
        return to_detach(offers)
    all_there = Sync.RSYNC in seen and is_there_already(want, seen[Sync.RSYNC])
    kind, why = choose(offers, all_there=all_there)
    emit(ShareCosts(want.deployment, kind, why, rate or None, offers))
    return kind


def _rate(session: Session, want: Want) -> float:
    """The slowest worker's, over as many streams as a copy has."""
    streams = want.weights.copy_streams
    asked = [{"way": way, "streams": streams, "seconds": SECONDS} for way in want.ways.values()]
    answers = [told(session.head, session.head.run(agent("link_rate", one, 60.0))) for one in asked]
    return min(float(json.loads(one)["rate"]) for one in answers)
