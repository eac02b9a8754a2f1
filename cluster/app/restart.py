"""`restart`: check everything that can be checked while it runs, then stop and start under one lock."""

from cluster.app.check import check
from cluster.app.lock import held
from cluster.app.pace import REAL, Pace
from cluster.app.session import OpenNode, Session
from cluster.app.stages import Stages
from cluster.app.start import begin
from cluster.app.stop import end
from cluster.model.events import Emit, Served
from cluster.model.settings import Settings


def restart(
    settings: Settings,
    open_one: OpenNode,
    emit: Emit,
    forced: frozenset[str] = frozenset(),
    pace: Pace = REAL,
) -> Served:
    """A refusal ends it while the old ranks still serve; ports are theirs now, so those are checked after the stop."""
    stages, session = Stages(emit, pace.clock), Session(settings, open_one, emit)
    try:
        with stages.stage("connect", tuple(node.name for node in settings.nodes)):
            session.open().need_all()
        with held(session.head, settings, "restart", emit):
            with stages.stage("check first"):
                check(session, emit, forced, ports=False, pace=pace)
            emit(end(session, emit, pace))
            return begin(session, emit, stages, forced, pace)
    finally:
        session.close()
