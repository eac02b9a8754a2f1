"""What a deployment shares with its workers, and the verdict over samples that were read on every node."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cluster.errors import SettingsError, Unreadable
from cluster.model.kit import Sync
from cluster.model.nodes import NodeSettings
from cluster.model.settings import RuntimeKind, Settings
from cluster.plan.engram import inside, source_folder
from cluster.plan.verify import MODEL, TABLES
from cluster.share.base import Folder, Reading, ReadThrough, Want
from cluster.share.nfs_facts import by_volume, volume_reading

SAMPLES = 16
SHOWN = 5


def shares(settings: Settings) -> bool:
    """Whether a start shares the weights before it looks at them. In place there is nothing to do but to look."""
    weights = settings.weights
    return bool(settings.workers) and weights.sync is not Sync.INPLACE and not weights.skip


def want_of(settings: Settings) -> Want:
    """Every folder that a worker's rank reads, and that the head has."""
    in_containers = settings.launch.runtime is RuntimeKind.CONTAINER
    if not settings.workers:
        raise SettingsError("there is no worker to share with", fix="set WORKER_IP")
    if not settings.serve.model:
        raise SettingsError("nothing says where the model is", fix="set MODEL_DIR")
    model = Folder(
        MODEL,
        "model",
        settings.head.model or settings.serve.model,
        {node.name: model_on(node, settings) for node in settings.workers},
        settings.serve.model if in_containers else "",
    )
    folders = [model]
    tables = {node.name: source_folder(settings, node) for node in settings.workers}
    head = source_folder(settings, settings.head)
    if head and all(tables.values()) and head != model.source:
        folders.append(Folder(TABLES, "engram", head, tables, inside(settings)[0] if in_containers else ""))
    return Want(
        settings.deployment,
        settings.head,
        settings.workers,
        tuple(folders),
        settings.weights,
        settings.container.engine if in_containers else "",
        settings.image.name if in_containers else "",
    )


def reading_of(settings: Settings, node: NodeSettings, name: str) -> Reading | None:
    """Where a worker's container has a folder from a volume of its engine; None when it is a folder of the node."""
    if settings.weights.sync is not Sync.NFS or node not in settings.workers:
        return None
    want = want_of(settings)
    folder = next((one for one in want.folders if one.name == name), None)
    return volume_reading(want, folder) if folder is not None and by_volume(want) else None


def volume_of(settings: Settings, node: NodeSettings, name: str) -> str:
    reading = reading_of(settings, node, name)
    return reading.mounts[0].source if reading else ""


def model_on(node: NodeSettings, settings: Settings) -> str:
    """A native rank is told the common path; a container may have it from anywhere."""
    is_inside = settings.launch.runtime is RuntimeKind.CONTAINER
    return (node.model if is_inside else "") or settings.serve.model


@dataclass(frozen=True, slots=True)
class Sample:
    """What was read of one file; `error` when it could not be."""

    name: str
    size: int = 0
    read: int = 0
    digest: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Samples:
    """Those of one folder on one node, and the mount they were read through."""

    files: Mapping[str, Sample]
    mount: ReadThrough


def parse_samples(text: str, where: str) -> Samples:
    """The answer of `agent/sample.py`; one that ends too early is no answer."""
    found: dict[str, Sample] = {}
    try:
        said = [json.loads(line) for line in text.splitlines()]
        end = said.pop()
        count, mount = end["files"], ReadThrough(end["kind"], tuple(end["options"].split(",")))
        for one in said:
            sample = Sample(**one)
            found[sample.name] = sample
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise Unreadable(
            f"the samples cannot be read: {error}", where=where, evidence=text.splitlines()[-2:]
        ) from error
    if len(found) != count:
        raise Unreadable(f"samples of {len(found)} files came, not {count}", where=where)
    return Samples(found, mount)


def unlike(head: Mapping[str, Sample], there: Mapping[str, Sample]) -> tuple[str, ...]:
    """Every file that is not the head's, by name; what a node has beside them is its own business."""
    return tuple(_differences(head.values(), there))


def _differences(head: Iterable[Sample], there: Mapping[str, Sample]) -> Iterable[str]:
    for mine in head:
        other = there.get(mine.name)
        if mine.error:
            yield f"{mine.name}: cannot be read on the head: {mine.error}"
        elif other is None:
            yield f"{mine.name}: is not there"
        elif other.error:
            yield f"{mine.name}: {other.error}"
        elif other.size != mine.size:
            yield f"{mine.name}: {other.size} bytes, the head has {mine.size}"
        elif other.digest != mine.digest:
            yield f"{mine.name}: its content is not the head's"
