"""The steps around a stream: what a copy by ZFS holds, mounts, tidies up, and what its end takes away."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from cluster.errors import Refused
from cluster.model.nodes import NodeSettings
from cluster.model.steps import Command, NodeName, Run, Step
from cluster.model.units import Seconds
from cluster.probe.zfs import Dataset, Place, Snapshot, ZfsSeen
from cluster.share.base import REMOVE_EMPTY, Folder, Want
from cluster.share.zfs_checks import usable
from cluster.share.zfs_plan import PREFIX, TAG, name_of, newest_common, surplus, wanted_of

PATIENCE = Seconds(120.0)


@dataclass(frozen=True, slots=True)
class Pair:
    """One folder on the head and on one worker. `wanted` is None while the head's snapshot is still to be taken."""

    want: Want
    folder: Folder
    head: ZfsSeen
    source: Dataset
    listing: str
    worker: NodeSettings
    there: ZfsSeen
    place: Place
    target: str

    @property
    def wanted(self) -> Snapshot | None:
        return wanted_of(self.source, self.listing)

    @property
    def snapshot(self) -> str:
        return self.wanted.name if self.wanted else name_of(self.listing)

    @property
    def mountpoint(self) -> str:
        return self.folder.targets[self.worker.name]

    @property
    def where(self) -> str:
        return f"{self.worker.name}:{self.target}"


def named(want: Want, folder: Folder, node: NodeSettings) -> str:
    """The dataset that settings name; empty when it follows from the folder or the pool."""
    is_model, weights = folder.name == "model", want.weights
    if node is want.head:
        return weights.zfs_head_model if is_model else weights.zfs_head_engram
    return weights.zfs_worker_model if is_model else weights.zfs_worker_engram


def pairs_of(want: Want, seen: Mapping[NodeName, ZfsSeen]) -> Iterator[Pair]:
    """Raises Refused when there is no ZFS, or the weights do not lie on it."""
    head = seen[want.head.name]
    for folder in want.folders:
        place = usable(want.head.name, head).places[folder.name]
        if place.dataset is None or place.dataset.mountpoint != folder.source:
            there = f"inside {place.dataset.name} ({place.dataset.mountpoint})" if place.dataset else place.problem
            raise Refused(
                f"{folder.what} has no ZFS dataset of its own",
                where=f"{want.head.name}:{folder.source}",
                evidence=(there,),
                fix=f"zfs create -o recordsize=1M -o atime=off -o mountpoint={folder.source} POOL/{folder.name}, and "
                "fetch into it; or sparkctl share --backend nfs",
            )
        pool = want.weights.zfs_pool or place.dataset.name.partition("/")[0]
        for worker in want.workers:
            there_seen = usable(worker.name, seen[worker.name])
            found = there_seen.places[folder.name]
            target = named(want, folder, worker) or (
                found.dataset.name if found.dataset else f"{pool}/{want.name(folder)}"
            )
            yield Pair(want, folder, head, place.dataset, place.listing, worker, there_seen, found, target)


def once(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Two workers need one and the same of the head."""
    return tuple(dict.fromkeys(steps))


def on_head(one: Pair, why: str, *words: str) -> Run:
    return Run(one.want.head.name, why, Command((*one.head.words, *words), limit=PATIENCE))


def on_worker(one: Pair, why: str, *words: str) -> Run:
    return Run(one.worker.name, why, Command((*one.there.words, *words), limit=PATIENCE))


def go_back(one: Pair, to: Snapshot, lost: tuple[Snapshot, ...]) -> Iterator[Step]:
    for snapshot in lost:
        if TAG in snapshot.tags:
            yield on_worker(one, f"release @{snapshot.name}", "release", TAG, f"{one.target}@{snapshot.name}")
    name = next(each.name for each in (one.place.dataset or one.source).snapshots if each.guid == to.guid)
    destroys = f", which destroys {', '.join(f'@{each.name}' for each in lost)}" if lost else ""
    deep = ("-r",) if lost else ()
    yield on_worker(one, f"roll {one.target} back to @{name}{destroys}", "rollback", *deep, f"{one.target}@{name}")


def holds(one: Pair) -> Iterator[Step]:
    """The base of the next stream must outlive whoever tidies up by hand."""
    base = newest_common(one.source.snapshots, one.place.dataset.snapshots) if one.place.dataset else None
    if base is None or one.place.dataset is None:
        return
    theirs = next(each for each in one.place.dataset.snapshots if each.guid == base.guid)
    if TAG not in base.tags:
        yield on_head(one, f"hold @{base.name}", "hold", TAG, f"{one.source.name}@{base.name}")
    if TAG not in theirs.tags:
        yield on_worker(one, f"hold @{theirs.name}", "hold", TAG, f"{one.target}@{theirs.name}")


def mounts(one: Pair) -> Iterator[Step]:
    """Only root may mount on Linux, whatever was delegated. Raises Refused with the command that is left to type."""
    dataset = one.place.dataset
    if dataset is None or (dataset.mounted and dataset.mountpoint == one.mountpoint):
        return
    # To set a mountpoint mounts as well, and to mount what is mounted is an error.
    is_elsewhere = dataset.mountpoint != one.mountpoint
    words = ("set", f"mountpoint={one.mountpoint}", one.target) if is_elsewhere else ("mount", one.target)
    if not dataset.has_key:
        raise Refused(
            "its key is not loaded", where=one.where, fix=f"on {one.worker.name}: sudo zfs load-key {one.target}"
        )
    if not one.there.is_root:
        raise Refused(
            "all of it was received, and only root may mount it",
            where=one.where,
            fix=f"on {one.worker.name}: sudo zfs {' '.join(words)}",
        )
    yield on_worker(one, f"zfs {' '.join(words)}", *words)


def tidies(pairs: tuple[Pair, ...]) -> Iterator[Step]:
    """Old checkpoints of ours, on every node; never what the next stream starts from, on any node."""
    common = {
        base.guid
        for one in pairs
        if one.place.dataset and (base := newest_common(one.source.snapshots, one.place.dataset.snapshots))
    }
    on_its_way = {one.place.dataset.to_guid for one in pairs if one.place.dataset}
    precious, keep = frozenset(common | on_its_way), pairs[0].want.weights.zfs_keep
    for one in {pair.source.name: pair for pair in pairs}.values():
        for snapshot in surplus(one.source.snapshots, precious, keep):
            if TAG in snapshot.tags:
                yield on_head(one, f"release @{snapshot.name}", "release", TAG, f"{one.source.name}@{snapshot.name}")
            yield on_head(one, f"remove @{snapshot.name}", "destroy", f"{one.source.name}@{snapshot.name}")
    for one in pairs:
        for snapshot in surplus(one.place.dataset.snapshots, precious, keep) if one.place.dataset else ():
            if TAG in snapshot.tags:
                yield on_worker(one, f"release @{snapshot.name}", "release", TAG, f"{one.target}@{snapshot.name}")
            yield on_worker(one, f"remove @{snapshot.name}", "destroy", f"{one.target}@{snapshot.name}")


def unmakes(want: Want, node: NodeSettings, seen: ZfsSeen) -> Iterator[Step]:
    """The dataset that an attach has made, the folders that its mount made, and no other."""
    for folder in want.folders:
        dataset = seen.places[folder.name].dataset if seen.words else None
        if dataset is None or dataset.owner != want.label:
            continue
        inner = [name for name in seen.datasets if name.startswith(f"{dataset.name}/")]
        if inner:
            raise Refused("other datasets lie in it", where=f"{node.name}:{dataset.name}", evidence=inner[:8])
        words: list[tuple[str, ...]] = [("unmount", dataset.name)] if dataset.mounted else []
        words += [("release", TAG, f"{dataset.name}@{one.name}") for one in dataset.snapshots if TAG in one.tags]
        words += [("receive", "-A", dataset.name)] if dataset.token else []
        words += [("destroy", "-r", dataset.name)] if dataset.snapshots or not dataset.token else []
        for each in words:
            yield Run(node.name, f"zfs {' '.join(each)}", Command((*seen.words, *each), limit=PATIENCE))
        for path in made(dataset):
            command = Command((*seen.words[:-1], *REMOVE_EMPTY, path), limit=PATIENCE)
            yield Run(node.name, f"remove {path}, which was made for it", command)


def made(dataset: Dataset) -> tuple[str, ...]:
    """Folders, the innermost first. None when it was given another place since."""
    place = PurePosixPath(dataset.mountpoint or "/")
    if not dataset.made or not place.is_relative_to(dataset.made):
        return ()
    return tuple(str(one) for one in (place, *place.parents) if one.is_relative_to(dataset.made))


def forgets(want: Want, seen: ZfsSeen) -> Iterator[Step]:
    """The head's snapshots of ours; its files stay."""
    for folder in want.folders:
        dataset = seen.places[folder.name].dataset if seen.words else None
        for one in dataset.snapshots if dataset else ():
            if one.name.startswith(PREFIX):
                words = [("release", TAG)] if TAG in one.tags else []
                for each in (*words, ("destroy",)):
                    argv = (*seen.words, *each, f"{dataset.name}@{one.name}" if dataset else "")
                    yield Run(want.head.name, f"{each[0]} @{one.name}", Command(argv, limit=PATIENCE))
