"""Engram tables and packed files as a node tells of them."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from cluster.errors import Unreadable
from cluster.weights.engram import Engram, engram_of


@dataclass(frozen=True, slots=True)
class ShardSeen:
    """A shard that the index names: its size, and the first bytes, which hold its header unless that is very long."""

    size: int
    first: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class FolderSeen:
    """A folder that may hold the tables. `weight_map` has the tables' entries of the index alone.

    full  whether the index names more than the tables
    """

    path: PurePosixPath
    present: bool = False
    network: bool = False
    device: int = 0
    names: tuple[str, ...] = ()
    engram: Engram | None = None
    weight_map: Mapping[str, str] | None = None
    full: bool = False
    shards: Mapping[str, ShardSeen] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PackedSeen:
    """One packed file: `size` is None when it does not exist; `part` are the bytes of an unfinished one.

    proved  whether nobody wrote to it since its checksums were taken; None where nobody took any
    """

    name: str
    size: int | None
    first: bytes = field(repr=False)
    part: int = 0
    proved: bool | None = None


@dataclass(frozen=True, slots=True)
class OutSeen:
    """Where packed files go. `direct`: whether a page of one could be read past the page cache; None without any."""

    path: PurePosixPath
    present: bool
    device: int
    free: int
    writable: bool
    direct: bool | None
    files: tuple[PackedSeen, ...]


@dataclass(frozen=True, slots=True)
class TablesSeen:
    """One node; `machine` tells two nodes of one machine apart from two machines."""

    machine: str
    folders: tuple[FolderSeen, ...]
    out: OutSeen | None


def parse_tables(node: str, text: str) -> TablesSeen:
    """The answer of the program `agent/tables.py`."""
    try:
        seen: dict[str, Any] = json.loads(text)
        folders = tuple(_folder(node, one) for one in seen["folders"])
        return TablesSeen(seen["machine"], folders, _out(seen["out"]) if seen["out"] else None)
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(
            f"cannot read what it says of its Engram tables: {error}", where=node, evidence=[text[:200]]
        ) from error


def _folder(node: str, seen: dict[str, Any]) -> FolderSeen:
    path = PurePosixPath(seen["path"])
    if not seen["present"]:
        return FolderSeen(path)
    shards = {
        name: ShardSeen(one["size"], base64.b64decode(one["header"])) for name, one in seen["shards"].items()
    }  # fmt: skip
    config = seen["config"]
    return FolderSeen(
        path=path,
        present=True,
        network=seen["network"],
        device=seen["device"],
        names=tuple(seen["names"]),
        engram=None if config is None else engram_of(config, f"{node}:{path}/config.json"),
        weight_map=seen["index"],
        full=seen["full"],
        shards=shards,
    )


def _out(seen: dict[str, Any]) -> OutSeen:
    files = tuple(
        PackedSeen(one["name"], one["size"], base64.b64decode(one["first"]), one["part"], one["proved"])
        for one in seen["files"]
    )
    path = PurePosixPath(seen["path"])
    return OutSeen(path, seen["present"], seen["device"], seen["free"], seen["writable"], seen["direct"], files)
