"""What a fetch has to bring: from which repository into which folder, which files, and whether they have room."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from cluster.errors import Refused, SettingsError, Unreadable
from cluster.model.settings import Settings
from cluster.model.units import format_bytes
from cluster.model.weights import WeightFile
from cluster.plan.verify import MODEL, OWN, TABLES
from cluster.probe.manifest import Room
from cluster.weights.engram import engram_of, needed_shards
from cluster.weights.manifest import CONFIG, INDEX, SHARD, Entry, FileFact, Manifest, judge, needed, only

SPARE_INODES = 64


@dataclass(frozen=True, slots=True)
class Source:
    """A repository and the folder on the head where its files go. `tables`: only the shards with Engram tables."""

    what: str
    repo: str
    revision: str
    folder: str
    tables: bool = False


def sources(settings: Settings) -> tuple[Source, ...]:
    weights, head = settings.weights, settings.head
    if not weights.repo and not weights.engram_repo:
        raise SettingsError("nothing says which repository to fetch", fix="set HF_MODEL_REPO=org/name")
    found = []
    if weights.repo:
        folder = head.model or settings.serve.model
        if not folder:
            raise SettingsError("nothing says where the model goes", fix="set MODEL_HOST, or MODEL_DIR")
        found.append(Source(MODEL, weights.repo, weights.revision, folder))
    if weights.engram_repo:
        if not head.engram:
            raise SettingsError(
                "nothing says where the Engram tables go", fix="set ENGRAM_DIR, or HF_ENGRAM_REPO empty"
            )
        found.append(Source(TABLES, weights.engram_repo, weights.engram_revision, head.engram, tables=True))
    return tuple(found)


def wants_index(source: Source, listing: Manifest) -> tuple[str, ...]:
    """Small files that must be read before one knows which large ones are needed."""
    names = (INDEX, CONFIG) if source.tables else (INDEX,)
    return tuple(name for name in names if listing.entry(name) is not None)


def chosen(source: Source, listing: Manifest, read: Mapping[str, bytes], more: Sequence[str] = ()) -> Manifest:
    """The files of a repository that this deployment reads."""
    where = f"{source.repo}@{listing.revision[:12]}"
    weight_map = _json(read[INDEX], f"{where}/{INDEX}").get("weight_map") if INDEX in read else None
    if not source.tables:
        return Manifest(source.repo, listing.revision, needed(listing.files, weight_map, more))
    if CONFIG not in read or weight_map is None:
        raise Refused("the repository has no index and config.json to find the Engram tables by", where=where)
    engram = engram_of(_json(read[CONFIG], f"{where}/{CONFIG}"), where)
    if engram is None:
        raise Refused(
            "the repository's config.json knows of no Engram tables", where=where, fix="look at HF_ENGRAM_REPO"
        )
    shards = sorted(needed_shards(weight_map, engram.layers).values())
    return Manifest(source.repo, listing.revision, only(listing.files, (*shards, INDEX, CONFIG)))


def _json(data: bytes, where: str) -> dict[str, Any]:
    try:
        return dict(json.loads(data))
    except (ValueError, TypeError) as error:
        raise Unreadable("is not a JSON object", where=where, evidence=[str(error)]) from error


def check_shards(manifest: Manifest, expected: int | None, where: str) -> None:
    shards = sum(one.name.endswith(SHARD) for one in manifest.files)
    if expected is not None and shards < expected:
        raise Refused(
            f"the repository has {shards} shards, the recipe expects {expected}",
            where=where,
            fix="look at HF_MODEL_REPO and its revision, or set EXPECTED_SHARDS",
        )


def gaps(manifest: Manifest, facts: Mapping[str, FileFact]) -> tuple[WeightFile, ...]:
    """What is not there, not whole or not right. What nobody has read yet is no gap, it is read later."""
    judged = (judge(facts.get(one.name) or FileFact(one.name, None), one) for one in manifest.files)
    return tuple(one for one in judged if one.state.is_gap)


def to_bring(manifest: Manifest, missing: Iterable[WeightFile]) -> tuple[Entry, ...]:
    """The largest first, so that the end is not one long file alone."""
    names = {one.name for one in missing}
    return tuple(sorted((one for one in manifest.files if one.name in names), key=lambda one: -one.size))


def check_room(
    entries: Sequence[Entry], facts: Mapping[str, FileFact], room: Room, reserve: int, taken: int = 0
) -> None:
    """Refused before the first byte. A file that is replaced lies beside its old self until it is whole."""
    bytes_needed = sum(one.size - min(one.size, facts[one.name].part if one.name in facts else 0) for one in entries)
    if not entries:
        return
    if not room.writable:
        raise Refused("the folder cannot be written", where=room.path, fix="make it writable for this user")
    if bytes_needed + reserve + taken > room.free:
        raise Refused(
            f"{format_bytes(bytes_needed)} are to come, {format_bytes(room.free - taken)} are free",
            where=room.path,
            evidence=[f"{format_bytes(reserve)} of it must stay free"],
            fix="make room (sparkctl weights prune shows what could go), or give another folder",
        )
    if room.inodes is not None and len(entries) + SPARE_INODES > room.inodes:
        raise Refused(
            f"only {room.inodes} files more can be made there", where=room.path, fix="remove small files there"
        )


def part_name(entry: Entry) -> str:
    """Of a name and a content: what is begun of another revision is not gone on with."""
    digest = (entry.sha256 or entry.sha1)[:16] or str(entry.size)
    return f"{entry.name.replace('/', '--')}.{digest}.part"


def parts_folder(folder: str) -> str:
    return str(PurePosixPath(folder) / OWN / "parts")


def lease_path(folder: str) -> PurePosixPath:
    return PurePosixPath(folder) / OWN / "lease"


def registry(state_dir: str) -> str:
    """The node's folder with a note of every folder that was fetched."""
    return f"{state_dir}/weights/folders"


def note_name(folder: str) -> str:
    return folder.strip("/").replace("/", "--") + ".json"
