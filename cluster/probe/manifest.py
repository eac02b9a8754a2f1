"""What the manifest program says of a folder, line by line."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.errors import Unreadable
from cluster.model.nodes import NodeSettings
from cluster.weights.manifest import FileFact


@dataclass(frozen=True, slots=True)
class Room:
    """The folder where it really lies, and what is free there; `inodes` None where the file system does not count.

    begun  bytes of files there that were begun and not ended
    """

    path: str
    present: bool
    free: int
    inodes: int | None
    writable: bool
    begun: int = 0


@dataclass(frozen=True, slots=True)
class IndexFact:
    """Where index and headers differ: the first few and how many. `elsewhere`: indexed shards nobody asked for."""

    missing: tuple[str, ...] = ()
    missing_count: int = 0
    surplus: tuple[str, ...] = ()
    surplus_count: int = 0
    elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """The files that a share says it has brought, None when none says so; `made`: it made the folder as well."""

    names: tuple[str, ...] | None
    made: bool = False

    @property
    def was_written(self) -> bool:
        return self.names is not None


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """Bytes read of all that are to be read, and per second."""

    done: int
    total: int
    rate: float


def parse_line(line: str, where: str) -> Room | Record | ReadProgress | FileFact | IndexFact:
    try:
        said: dict[str, Any] = json.loads(line)
        match said.pop("kind"):
            case "room":
                return Room(**said)
            case "record":
                names = said["names"]
                return Record(None if names is None else tuple(names), bool(said["made"]))
            case "progress":
                return ReadProgress(**said)
            case "file":
                said["first"] = bytes.fromhex(said.get("first", ""))
                return FileFact(**said)
            case _:
                lists = {name: tuple(value) for name, value in said.items() if isinstance(value, list)}
                return IndexFact(**(said | lists))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable("the answer about the weights cannot be read", where=where, evidence=[line[:200]]) from error


def verdicts(node: NodeSettings) -> str:
    """The node's file of what it has proven."""
    return f"{node.state_dir}/weights/verdicts.json"


def request(
    folder: str,
    files: Mapping[str, str] | None,
    cache: str,
    *,
    contents: bool,
    again: bool = False,
    threads: int,
    pads: str = "",
    record: str = "",
) -> dict[str, Any]:
    """The program's argument."""
    return {
        "folder": folder,
        "files": None if files is None else dict(files),
        "hash": contents,
        "again": again,
        "threads": threads,
        "cache": cache,
        "pads": pads,
        "record": record,
    }
