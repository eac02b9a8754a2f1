"""Which way to share: what each would cost, and a rule over that which anybody can follow in the printed table."""

from collections.abc import Mapping, Sequence
from typing import Any

from cluster.errors import Refused, SparkctlError
from cluster.model.kit import Sync
from cluster.model.share import Offer
from cluster.model.units import Bytes
from cluster.share.base import Share, Want
from cluster.share.inplace import InplaceSeen
from cluster.share.rsync import CopySeen, RsyncShare
from cluster.share.zfs import ZfsShare

# In the order in which they are taken when two cost the same.
ORDER = (Sync.INPLACE, Sync.NFS, Sync.ZFS, Sync.RSYNC)
LIVES = "nothing of the weights: the worker has its own"
WAITS = "the worker's rank waits for every page that it has not read, and none can load"
REMOTE = ("nfs", "cifs", "smb", "fuse", "ceph", "lustre", "9p", "virtiofs", "glusterfs")


def offer(kind: Sync, want: Want, share: Share[Any], seen: Mapping[str, Any], rate: float) -> Offer:
    """What an attach would cost from here. `rate` is in bytes a second, 0 when it could not be measured."""
    in_use = kind is not Sync.INPLACE and not _detached(share, want, seen)
    try:
        share.attach(want, seen)
        moves, left = _room(share, want, seen)
    except Refused as refused:
        return Offer(kind, impossible=said(refused), in_use=in_use)
    if kind is Sync.NFS and not want.weights.nfs_share:
        return Offer(kind, impossible="NFS_SHARE=0", in_use=in_use)
    seconds = moves / rate if rate and moves else None if moves else 0.0
    return Offer(kind, moves, seconds, left, _if_head_dies(kind, seen), "", in_use)


def not_looked(kind: Sync, error: SparkctlError) -> Offer:
    return Offer(kind, impossible=said(error))


def said(error: SparkctlError) -> str:
    return f"{error}: {error.evidence[0]}" if error.evidence else str(error)


def _detached(share: Share[Any], want: Want, seen: Mapping[str, Any]) -> bool:
    try:
        return share.detach(want, seen).is_empty
    except Refused:
        return False


def _room(share: Share[Any], want: Want, seen: Mapping[str, Any]) -> tuple[Bytes, int | None]:
    """Bytes to move, and what is left of the worker's disk then; None where no disk is taken."""
    match share:
        case RsyncShare():
            moves = share.moves(want, seen)
            rooms = [one.room.free for node in want.workers for one in seen[node.name].folders.values()]
            return moves, min(rooms) - moves
        case ZfsShare():
            moves, available = share.moves(want, seen)
            return moves, available - moves
        case _:
            return Bytes(0), None


def _if_head_dies(kind: Sync, seen: Mapping[str, Any]) -> str:
    match kind:
        case Sync.NFS:
            return WAITS
        case Sync.INPLACE:
            kinds = {
                path.kind for one in seen.values() if isinstance(one, InplaceSeen) for path in one.folders.values()
            }
            far = sorted(one for one in kinds if one.startswith(REMOTE))
            return f"depends on who serves {', '.join(far)}" if far else LIVES
        case _:
            return LIVES


def is_there_already(want: Want, seen: Mapping[str, CopySeen]) -> bool:
    """Whether every worker has every file, by name and size. What is inside is proven by whoever is chosen."""
    for folder in want.folders:
        head = {name: one.size for name, one in seen[want.head.name].folders[folder.name].files.items()}
        for worker in want.workers:
            files = seen[worker.name].folders[folder.name].files
            if not head or any(name not in files or files[name].size != size for name, size in head.items()):
                return False
    return True


def choose(offers: Sequence[Offer], *, all_there: bool) -> tuple[Sync, str]:
    """What is attached stays; then what is there already; then the fewest bytes to move, the earlier in the order."""
    if used := next((one for one in offers if one.in_use), None):
        return used.kind, "it is attached so already"
    possible = [one for one in offers if not one.impossible and (one.kind is not Sync.INPLACE or all_there)]
    if not possible:
        evidence = [f"{one.kind}: {one.impossible or 'the workers do not have every file'}" for one in offers]
        raise Refused("there is no way to share the weights", evidence=evidence, fix="make one of them possible")
    best = min(possible, key=lambda one: (one.moves or 0, ORDER.index(one.kind)))
    if best.kind is Sync.INPLACE:
        return best.kind, "the workers have every file already"
    return best.kind, "nothing has to be moved" if not best.moves else "it moves the fewest bytes of what is possible"


def to_detach(offers: Sequence[Offer]) -> Sync:
    return next((one.kind for one in offers if one.in_use), Sync.INPLACE)
