"""Parse what `agent/imports.py` says of a server's own interpreter."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.errors import Unreadable


@dataclass(frozen=True, slots=True)
class Imported:
    """One import: what it says of itself, or `error`, why it failed."""

    name: str
    told: Mapping[str, Any]
    error: str = ""


@dataclass(frozen=True, slots=True)
class ImportsSeen:
    """`died` says how the process ended before its time; `steps` has what came before."""

    python: str
    steps: tuple[Imported, ...]
    died: str = ""


def parse_imports(text: str) -> ImportsSeen:
    try:
        seen: dict[str, Any] = json.loads(text)
        steps = tuple(
            Imported(one["name"], one["told"] if one["ok"] else {}, "" if one["ok"] else one["told"]["error"])
            for one in seen["steps"]
        )
        return ImportsSeen(seen["python"], steps, seen["died"])
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable("cannot read what was imported", evidence=[text[:300], repr(error)]) from error
