"""The weights before a start: fetched to the head when asked for, then shared as WEIGHT_SYNC says, and proven."""

from dataclasses import replace

from cluster.app.check import bring_image
from cluster.app.fetch import Wanted, fetch
from cluster.app.session import OpenNode, Session
from cluster.app.share import Sharing, chosen
from cluster.app.stages import Stages
from cluster.errors import NodeError, Refused, StepFailed
from cluster.model.events import Emit, Severity, Told
from cluster.model.settings import Settings
from cluster.plan.share import shares, volume_of, want_of


def download(settings: Settings, open_one: OpenNode, emit: Emit) -> None:
    """AUTO_DOWNLOAD: nobody is asked when every file is there and proven."""
    if not settings.weights.auto_download:
        return
    if settings.head.control != "local":
        emit(Told(Severity.NOTE, "AUTO_DOWNLOAD fetches only where sparkctl runs on the head", settings.head.name))
        return
    try:
        fetch(settings, open_one, emit, Wanted(offline=True))
    except Refused as gap:
        emit(Told(Severity.NOTE, f"fetching first: {gap.what}", settings.head.name))
        try:
            fetch(settings, open_one, emit, Wanted())
        except (StepFailed, NodeError) as error:  # no network: weights that came by other means may be whole
            told = f"nothing could be fetched ({error}); what lies there is taken as it is"
            emit(Told(Severity.WARNING, told, settings.head.name))


def bring_weights(session: Session, emit: Emit, stages: Stages, forced: frozenset[str]) -> None:
    """On an open session whose lock is held. In place there is nothing to do: the checks compare the nodes.

    Afterwards the session's settings name the backend that `auto` chose.
    """
    settings = session.settings
    if not shares(settings):
        return
    kind = chosen(session, emit, settings.weights.sync)
    session.settings = settings = replace(settings, weights=replace(settings.weights, sync=kind))
    if any(volume_of(settings, node, "model") for node in settings.workers):
        with stages.stage("image"):  # only a container can read a volume, and that is what proves it
            bring_image(session, emit, forced)
    report = Sharing(session, emit, stages, kind, want_of(settings)).attach()
    for one in report.folders:
        emit(Told(Severity.NOTE, f"{one.what} is at {one.path}: {one.how}", one.node))
    for note in report.notes:
        emit(Told(Severity.WARNING, note))
