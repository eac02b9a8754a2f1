"""`export`: a deployment as text for another system. Contacts nobody."""

from cluster.model.events import Emit, ExportReport, Severity, Told
from cluster.model.exl3 import Profile
from cluster.model.settings import Settings, is_alone
from cluster.plan.kubernetes import Cluster, manifests
from cluster.plan.yaml_text import documents


def kubernetes(settings: Settings, cluster: Cluster, emit: Emit) -> ExportReport:
    """One stream of YAML documents for `kubectl apply -f -`."""
    text = documents(manifests(settings, cluster))
    if settings.exl3.profile is not Profile.NONE:
        emit(Told(Severity.NOTE, "its weights live in the page cache: run nothing on that node that drops it"))
    if not is_alone(settings) and settings.head.gid is None:
        emit(
            Told(Severity.NOTE, "no GID index is set: NCCL chooses one in the pods; sparkctl preflight shows the right")
        )
    return ExportReport("kubernetes", settings.deployment, text)
