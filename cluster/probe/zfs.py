"""What `zfs` says of datasets, snapshots and rights, read from the answer of `agent/zfs_look.py`."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cluster.errors import Unreadable
from cluster.model.units import Bytes

# Columns as they are asked for; `-Hp` separates them with tabs and gives plain numbers.
DATASET = "name,available,referenced,mountpoint,mounted,written,"
DATASET += "receive_resume_token,encryption,keystatus,readonly,sparkctl:id,sparkctl:made"
SNAPSHOT = "name,guid,createtxg,written"
NONE = ("-", "none", "")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`order` (createtxg) tells which is newer, on one pool only; `guid` is the same wherever it was received.

    written  bytes since the snapshot before it
    tags     who holds it
    """

    name: str
    guid: int
    order: int
    written: Bytes = Bytes(0)
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dataset:
    """A file system. `available` is what it can take: quotas, reservations and slop space are taken off.

    written  bytes since its newest snapshot
    token    of a receive that was cut off; `to_guid` is the snapshot that it is on the way to, 0 when nobody can tell
    owner    our label, when an attach has made it
    made     the outermost folder that its first mount made; empty when all were there
    """

    name: str
    available: Bytes
    referenced: Bytes
    mountpoint: str
    mounted: bool
    written: Bytes = Bytes(0)
    token: str = ""
    is_encrypted: bool = False
    has_key: bool = True
    read_only: bool = False
    owner: str = ""
    to_guid: int = 0
    made: str = ""
    snapshots: tuple[Snapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A wanted folder on a node: its dataset if there is one, or why there is none.

    listing  digest of names, sizes and times of its files
    hidden   files lie in the folder that a mount would hide
    absent   the outermost folder that a mount would make, and a detach may remove; empty when there is none
    rights   what the user may do with the dataset, or with the one that it would be made in
    """

    dataset: Dataset | None
    problem: str = ""
    listing: str = ""
    hidden: bool = False
    rights: frozenset[str] = frozenset()
    absent: str = ""


@dataclass(frozen=True, slots=True)
class ZfsSeen:
    """`words` run zfs, with sudo where that is needed and allowed; empty when there is no ZFS: `problem` says why."""

    words: tuple[str, ...]
    user: str
    is_root: bool
    problem: str
    datasets: Mapping[str, Dataset]
    places: Mapping[str, Place]


def parse_zfs(text: str, where: str) -> ZfsSeen:
    try:
        said = json.loads(text)
        places = {name: _place(one, said) for name, one in said["places"].items()}
        datasets = {one.name: one for one in parse_datasets(said["list"])}
        is_root = said["user"] == "root" or "sudo" in said["zfs"]
        return ZfsSeen(tuple(said["zfs"]), said["user"], is_root, said["problem"], datasets, places)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise Unreadable(f"what it says of ZFS cannot be read: {error}", where=where, evidence=[text[:200]]) from error


def _place(one: Mapping[str, Any], said: Mapping[str, Any]) -> Place:
    (dataset,) = parse_datasets(one["list"]) or (None,)
    if dataset is not None:
        held = parse_holds(one["holds"])
        snapshots = parse_snapshots(one["snapshots"], held)
        dataset = replace(dataset, snapshots=snapshots, to_guid=parse_token(one["token"]))
    rights = rights_of(one["allow"], said["user"], said["groups"])
    return Place(dataset, one["problem"], one["listing"], one["hidden"], rights, one["absent"])


def parse_datasets(text: str) -> tuple[Dataset, ...]:
    """`zfs list -Hp -o` with the columns of DATASET."""
    return tuple(_dataset(line) for line in text.splitlines() if line)


def _dataset(line: str) -> Dataset:
    name, available, referenced, mountpoint, mounted, written, token, *more = line.split("\t")
    encryption, key, read_only, owner, made = more
    return Dataset(
        name,
        Bytes(int(available)),
        Bytes(int(referenced)),
        "" if mountpoint in NONE else mountpoint,
        mounted == "yes",
        Bytes(0 if written in NONE else int(written)),
        "" if token in NONE else token,
        encryption not in ("off", *NONE),
        key != "unavailable",
        read_only == "on",
        "" if owner in NONE else owner,
        made="" if made in NONE else made,
    )


def parse_snapshots(text: str, held: Mapping[str, tuple[str, ...]]) -> tuple[Snapshot, ...]:
    """`zfs list -Hp -t snapshot -o` with the columns of SNAPSHOT, oldest first. A guid takes all 64 bits."""
    found = []
    for line in text.splitlines():
        name, guid, order, written = line.split("\t")
        short = name.partition("@")[2]
        amount = Bytes(0 if written in NONE else int(written))
        found.append(Snapshot(short, int(guid), int(order), amount, held.get(short, ())))
    return tuple(sorted(found, key=lambda one: one.order))


def parse_holds(text: str) -> dict[str, tuple[str, ...]]:
    """`zfs holds -H`: snapshot, tag, time."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        name, tag, *_ = line.split("\t")
        short = name.partition("@")[2]
        found[short] = (*found.get(short, ()), tag)
    return found


def parse_token(text: str) -> int:
    """The snapshot that a receive was on its way to, of what `zfs send -nvt TOKEN` tells; 0 when it does not."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "toguid":
            return int(value.strip(), 0)
    return 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A dry run of a send: the bytes of the stream, and what it is. Older versions leave the size out when it is 0."""

    size: Bytes
    base: str = ""
    snapshot: str = ""


def parse_estimate(text: str) -> Estimate:
    size, base, snapshot = Bytes(0), "", ""
    for line in text.splitlines():
        match line.split("\t"):
            case ["full", name, *_]:
                snapshot = name
            case ["incremental", start, name, *_]:
                base, snapshot = start, name
            case ["size", amount]:
                size = Bytes(int(amount))
            case _:
                pass
    return Estimate(size, base, snapshot)


def rights_of(text: str, user: str, groups: Iterable[str]) -> frozenset[str]:
    """`zfs allow DATASET`: what was granted to the user, to one of the groups or to everyone, sets resolved."""
    names = frozenset(groups)
    sets: dict[str, frozenset[str]] = {}
    granted: set[str] = set()
    for line in text.splitlines():
        match line.split():
            case [name, what] if name.startswith("@"):
                sets[name] = sets.get(name, frozenset()) | frozenset(what.split(","))
            case ["user", name, what] if name == user:
                granted.update(what.split(","))
            case ["group", name, what] if name in names:
                granted.update(what.split(","))
            case ["everyone", what]:
                granted.update(what.split(","))
            case _:
                pass
    for name in [one for one in granted if one.startswith("@")]:
        granted.remove(name)
        granted |= sets.get(name, frozenset())
    return frozenset(granted)
