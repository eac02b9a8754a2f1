"""What stands in the way of a copy by ZFS, told before anything is done: no ZFS, no rights, no room, a conflict."""

from collections.abc import Iterable
from typing import NoReturn, assert_never

from cluster.errors import Refused
from cluster.model.units import Bytes, format_bytes
from cluster.probe.zfs import Dataset, ZfsSeen
from cluster.share.zfs_plan import Clash, Conflict

# `mount` belongs to most of them although it mounts nothing: on Linux only root may mount.
HEAD_RIGHTS = frozenset({"send", "snapshot", "mount", "hold", "release", "destroy"})
WORKER_RIGHTS = frozenset(
    {"receive", "create", "mount", "rollback", "hold", "release", "destroy", "readonly", "atime", "userprop"}
)


def usable(node: str, seen: ZfsSeen) -> ZfsSeen:
    if not seen.words:
        raise Refused(
            "there is no ZFS to use",
            where=node,
            evidence=(seen.problem,),
            fix=f"on {node}: sudo apt install zfsutils-linux; or sparkctl share --backend nfs",
        )
    return seen


def check_rights(
    node: str, seen: ZfsSeen, datasets: Iterable[str], needed: frozenset[str], rights: frozenset[str] | None = None
) -> None:
    """Rights granted on a parent count for what lies below it."""
    if seen.is_root:
        return
    for dataset in sorted(datasets):
        has = rights if rights is not None else _rights(seen, dataset)
        if missing := needed - has:
            at = dataset if dataset in seen.datasets else parent_of(dataset, seen)
            raise Refused(
                f"{seen.user} may not {', '.join(sorted(missing))}",
                where=f"{node}:{dataset}",
                fix=f"on {node}: sudo zfs allow -u {seen.user} {','.join(sorted(needed))} {at}",
            )


def _rights(seen: ZfsSeen, dataset: str) -> frozenset[str]:
    return next(
        (one.rights for one in seen.places.values() if one.dataset and one.dataset.name == dataset), frozenset()
    )


def parent_of(dataset: str, seen: ZfsSeen) -> str:
    """The nearest dataset above it that exists; empty when not even the pool does."""
    above = dataset.rpartition("/")[0]
    while above and above not in seen.datasets:
        above = above.rpartition("/")[0]
    return above


def available(target: str, there: Dataset | None, seen: ZfsSeen) -> Bytes:
    """What the dataset can take, or the nearest one above it while it is not there."""
    parent = parent_of(target, seen)
    return there.available if there else seen.datasets[parent].available if parent else Bytes(0)


def check_room(node: str, target: str, there: Dataset | None, seen: ZfsSeen, size: Bytes) -> None:
    """By what the dataset can take, or its parent before it exists: what the pool calls free is more than that."""
    parent = parent_of(target, seen)
    if there is None and parent != target.rpartition("/")[0]:
        raise Refused(
            f"there is no dataset {target.rpartition('/')[0]} to receive it in",
            where=node,
            evidence=[f"pools there: {', '.join(sorted(name for name in seen.datasets if '/' not in name)) or 'none'}"],
            fix="set ZFS_POOL to a pool or dataset of the worker",
        )
    can_take = available(target, there, seen)
    if size > can_take:
        raise Refused(
            f"no room: {format_bytes(size)} needed, {format_bytes(can_take)} available",
            where=f"{node}:{target}",
            evidence=[f"{size} bytes needed, {can_take} available to {there.name if there else parent}"],
            fix=f"on {node}: zfs list -o space; or sparkctl share --backend nfs, which needs no disk there",
        )


def check_clash(where: str, target: str, label: str, conflict: Conflict) -> NoReturn:
    """A conflict is somebody's to decide. Each choice is told with what it destroys."""
    evidence = [f"@{one.name} guid {one.guid}, {format_bytes(one.written)} written" for one in conflict.lost]
    if conflict.written:
        evidence.append(f"{format_bytes(conflict.written)} written since its newest snapshot")
    another = f"receive into another dataset: ZFS_WORKER_MODEL_DS={target}-2"
    raise Refused(
        conflict.clash.value, where=where, evidence=evidence, fix=f"{_choice(target, label, conflict)}; or {another}"
    )


def _choice(target: str, label: str, conflict: Conflict) -> str:
    match conflict.clash:
        case Clash.FOREIGN:
            return f"let sparkctl have it: zfs set sparkctl:id={label} {target}"
        case Clash.NO_COMMON | Clash.EXISTS | Clash.PLAIN:
            return f"remove it by hand: zfs destroy -r {target}"
        case Clash.DIVERGED | Clash.AHEAD | Clash.MODIFIED:
            base = conflict.base.name if conflict.base else ""
            lost = ", ".join(f"@{one.name}" for one in conflict.lost) or "what was written"
            return f"ZFS_CONFLICT=rollback goes back to @{base}, which destroys {lost}"
        case _:
            assert_never(conflict.clash)
