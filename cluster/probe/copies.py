"""What a node has of folders that are copied: the answer of `agent/manifest.py`, folder by folder."""

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.errors import Unreadable
from cluster.probe.manifest import IndexFact, ReadProgress, Record, Room, parse_line
from cluster.weights.manifest import FileFact


@dataclass(frozen=True, slots=True)
class Held:
    """One folder: the files that lie there, and those of them that an attach has brought; None when none ever did."""

    room: Room
    files: Mapping[str, FileFact]
    record: Record | None = None


def parse_held(text: str, where: str) -> tuple[Held, ...]:
    """In the order in which they were asked for."""
    found: list[tuple[Room, dict[str, FileFact], list[Record]]] = []
    for line in text.splitlines():
        match parse_line(line, where):
            case Room() as room:
                found.append((room, {}, []))
            case FileFact() as fact if found:
                found[-1][1][fact.name] = fact
            case Record() as record if found:
                found[-1][2].append(record)
            case FileFact() | Record():
                raise Unreadable("files of no folder", where=where, evidence=[line[:200]])
            case ReadProgress() | IndexFact():
                pass
    return tuple(
        Held(room, files, next((one for one in records if one.was_written), None)) for room, files, records in found
    )
