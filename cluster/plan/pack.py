"""What `pack` has to do on each node: which files, from which folder, whether they fit. What is wrong with a source.

Every rank owns whole hash columns of every layer's table, and reads them from one packed file per layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from cluster.errors import Refused, SettingsError
from cluster.model.kit import EngramLayout
from cluster.model.nodes import NodeSettings
from cluster.model.settings import Settings
from cluster.model.units import format_bytes
from cluster.probe.tables import FolderSeen, OutSeen, PackedSeen, TablesSeen
from cluster.weights.engram import Engram, Source, Table, embed_only, needed_shards, source, tables
from cluster.weights.packed import BadPack, Layout, Packed, check, file_name, packed
from cluster.weights.safetensors import check_size, header_end, read_header

INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
LAYOUTS = {EngramLayout.DENSE: Layout.DENSE, EngramLayout.PAGED: Layout.PAGED}


@dataclass(frozen=True, slots=True)
class PackJob:
    """One file that a rank needs, and where its rows come from."""

    rank: int
    wanted: Packed
    shard: PurePosixPath
    place: Source
    out: PurePosixPath


@dataclass(frozen=True, slots=True)
class SlimFolder:
    """A folder that is to hold the tables alone: links to the shards of `source`, their own index, config.json."""

    source: PurePosixPath
    out: str
    shards: tuple[str, ...]
    index: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodePack:
    """All that is to be done on one node. `network`: the source lies on another machine."""

    node: str
    jobs: tuple[PackJob, ...]
    slim: SlimFolder | None
    network: bool


class Whole(StrEnum):
    """Whether a folder may serve as the tables' folder of a server."""

    OK = "ok"
    FAIL = "fail"
    REWRITE = "rewrite"


@dataclass(frozen=True, slots=True)
class FolderVerdict:
    """`missing` are names that a server would look for; REWRITE: only the index names too much."""

    verdict: Whole
    missing: tuple[str, ...]
    shards: tuple[str, ...]


def tp_rank(settings: Settings, rank: int) -> tuple[int, int]:
    """Which share of the columns the rank of a node has, of how many: stages of a pipeline repeat them."""
    ranks = settings.serve.tensor_parallel
    return rank % ranks, ranks


def candidates(settings: Settings, node: NodeSettings) -> tuple[str, ...]:
    """Folders on the node that may hold the tables, the likeliest first."""
    named = (node.engram, node.model or settings.serve.model, settings.engram.source)
    return tuple(dict.fromkeys(one for one in named if one))


def packed_folder(settings: Settings, node: NodeSettings, out: str = "") -> str:
    """Where the node's packed files go."""
    folder = out or node.packed
    if not folder:
        names = "HEAD_PACKED_DIR" if node is settings.head else "WORKER_PACKED_DIR"
        raise SettingsError(
            "nothing says where the packed Engram files go", where=node.name, fix=f"set {names}, or give --out DIR"
        )
    return folder


def judge_folder(seen: FolderSeen) -> FolderVerdict:
    """What a server would miss in a folder of tables: two shards, an index that names no others, config.json."""
    shards = tuple(sorted(set((seen.weight_map or {}).values())))
    needed = (*shards, *((CONFIG, INDEX) if seen.present else ()))
    missing = tuple(name for name in needed if name not in seen.names)
    verdict = Whole.FAIL if missing or not shards else Whole.REWRITE if seen.full else Whole.OK
    return FolderVerdict(verdict, missing, shards)


def choose_source(node: str, folders: Sequence[FolderSeen]) -> FolderSeen:
    """The fastest folder with whole tables: one on the node's own disk before one on the network."""
    whole = [one for one in folders if one.engram and judge_folder(one).verdict is not Whole.FAIL]
    if whole:
        return min(whole, key=lambda one: one.network)
    raise Refused(
        "no folder on this node holds the Engram tables",
        where=node,
        evidence=[f"{one.path}: {_lack(one)}" for one in folders] or ["no folder is set"],
        fix="put the checkpoint's Engram shards, its index and config.json there, and set ENGRAM_DIR or\n"
        "WORKER_ENGRAM_DIR to the folder; a worker without them can mount the head's folder and name the mount point",
    )


def node_pack(settings: Settings, rank: int, seen: TablesSeen, layers: Sequence[int], out: str = "") -> NodePack:
    """The files of one node. Refused when its source does not hold the tables that its config describes."""
    node = settings.nodes[rank]
    folder = choose_source(node.name, seen.folders)
    assert folder.engram is not None
    assert seen.out is not None
    chosen = _chosen(folder.engram, layers, f"{node.name}:{folder.path}/{CONFIG}")
    shards = needed_shards(folder.weight_map or {}, (table.layer for table in chosen))
    jobs = []
    for table in chosen:
        path = folder.path / shards[table.layer]
        place = _place(folder, shards[table.layer], folder.engram, table, f"{node.name}:{path}")
        share, ranks = tp_rank(settings, rank)
        wanted = packed(folder.engram, table, share, ranks, LAYOUTS[settings.engram.layout])
        jobs.append(PackJob(rank, wanted, path, place, seen.out.path / file_name(table.layer, share, ranks)))
    slim = None
    if settings.engram.source:
        index = embed_only(folder.weight_map or {})
        slim = SlimFolder(folder.path, settings.engram.source, tuple(sorted(set(index.values()))), index)
    return NodePack(node.name, tuple(jobs), slim, folder.network)


def _chosen(engram: Engram, layers: Sequence[int], where: str) -> tuple[Table, ...]:
    every = tables(engram)
    unknown = sorted(set(layers) - {table.layer for table in every})
    if unknown:
        there = ", ".join(str(table.layer) for table in every)
        raise SettingsError(f"layer {unknown[0]} has no Engram table; these have: {there}", where=where)
    return tuple(table for table in every if not layers or table.layer in layers)


def _place(folder: FolderSeen, shard: str, engram: Engram, table: Table, where: str) -> Source:
    seen = folder.shards.get(shard)
    if seen is None:
        raise Refused("the shard cannot be read", where=where, fix="see who owns it, and its mode")
    header_end(seen.first, where)
    header = read_header(seen.first, where)
    check_size(header, seen.size, where)
    return source(header, engram, table, where)


def fault_of(job: PackJob, seen: PackedSeen | None, where: str) -> BadPack | None:
    """What is wrong with a file, by its header and size; None when nothing is, or when there is no file."""
    if seen is None or seen.size is None:
        return None
    try:
        check(seen.first, seen.size, job.wanted, where)
    except BadPack as error:
        return error
    return None


def check_room(packs: Sequence[NodePack], seen: Mapping[str, TablesSeen], reserve: int) -> None:
    """Refuse before the first byte; nodes that are one machine and write to one disk are added up."""
    missing: dict[tuple[str, int], int] = {}
    places: dict[tuple[str, int], tuple[str, OutSeen]] = {}
    for one in packs:
        out = seen[one.node].out
        assert out is not None
        if not out.writable:
            raise Refused("cannot write there", where=f"{one.node}:{out.path}", fix="choose another folder")
        disk = seen[one.node].machine, out.device
        places.setdefault(disk, (one.node, out))
        files = {file.name: file for file in out.files}
        for job in one.jobs:
            there = files.get(job.out.name)
            is_there = there is not None and there.size is not None and fault_of(job, there, "") is None
            if not is_there:
                missing[disk] = missing.get(disk, 0) + max(0, job.wanted.size - (there.part if there else 0))
    for disk, size in missing.items():
        node, out = places[disk]
        if size + reserve > out.free:
            raise Refused(
                f"{format_bytes(out.free)} are free, {format_bytes(size + reserve)} are needed"
                f" ({format_bytes(size)} of rows, {format_bytes(reserve)} stay free)",
                where=f"{node}:{out.path}",
                fix="make room, choose another disk, or pack one layer with --layer",
            )


def _lack(seen: FolderSeen) -> str:
    if not seen.present:
        return "does not exist"
    if seen.weight_map is None:
        return f"has no {INDEX}"
    if not seen.weight_map:
        return f"its {INDEX} names no Engram tables"
    missing = judge_folder(seen).missing
    if missing:
        return f"lacks {', '.join(missing)}"
    return f"its {CONFIG} describes no Engram tables"
