"""Engram tables in files: what a rank is told of them, and whether what lies on its node is right, before a boot."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

from cluster.errors import SparkctlError
from cluster.model.checks import Finding, Severity
from cluster.model.facts import Identity
from cluster.model.kit import EngramBackend
from cluster.model.nodes import NodeSettings
from cluster.model.settings import RuntimeKind, Settings
from cluster.model.units import format_bytes
from cluster.plan.pack import LAYOUTS, judge_folder, node_pack, tp_rank
from cluster.probe.tables import FolderSeen, OutSeen, PackedSeen, TablesSeen
from cluster.weights.engram import Engram, Table, tables
from cluster.weights.packed import BadPack, check, file_name, packed

OVERLAY = "spark-overlay"
PLUGIN = "spark_overlay"
PLUGINS = "VLLM_PLUGINS"
PROOF = "engram=file"  # what the overlay's first line of a rank's log must name
SOURCE_INSIDE, PACKED_INSIDE = "/engram-src", "/engram-packed"
PLACES = {
    EngramBackend.OVERLAY: ("SPARK_OVERLAY_ENGRAM_SOURCE", "SPARK_OVERLAY_ENGRAM_PACKED"),
    EngramBackend.OWN: ("DSV41_SOURCE", "DSV41_PACKED_DIR"),
}
ROWS, DIRECT, PRESENT = "ENGRAM.ROWS", "ENGRAM.DIRECT", "ENGRAM.OVERLAY"
_GIB = 2**30
_NOWHERE = OutSeen(PurePosixPath("/"), False, 0, 0, False, None, ())


def is_on(settings: Settings) -> bool:
    """Whether any node was given a folder of tables or of packed files. All ranks then read theirs from files."""
    if settings.launch.command:
        return False
    return bool(settings.engram.source) or any(node.engram or node.packed for node in settings.nodes)


def needs_proof(settings: Settings) -> bool:
    return is_on(settings) and settings.engram.backend is EngramBackend.OVERLAY


def source_folder(settings: Settings, node: NodeSettings) -> str:
    """The tables' own folder, for layers that are not packed."""
    return settings.engram.source or node.engram


def folders_wanted(settings: Settings, node: NodeSettings) -> tuple[str, ...]:
    """The tables' folder first; the model's own config describes them as well."""
    named = (source_folder(settings, node), node.model or settings.serve.model)
    return tuple(dict.fromkeys(one for one in named if one))


def inside(settings: Settings) -> tuple[str, str]:
    """Where a container has the tables and the packed files."""
    return settings.container.engram or SOURCE_INSIDE, settings.container.packed or PACKED_INSIDE


def common_variables(settings: Settings) -> dict[str, str]:
    """What all ranks are told alike; the published kits' names of the same settings go along as they are."""
    if not needs_proof(settings):
        return {}
    engram = settings.engram
    told: dict[str, int | None] = {
        "CACHE_BYTES": _per_table(engram.cache_gib),
        "RESIDENT_SCALES": None if engram.resident_scales is None else int(engram.resident_scales),
        "DEPTH": engram.io_threads,
        "REPORT_SECONDS": engram.stats_seconds,
    }
    others = [name for name in dict(settings.launch.environment).get(PLUGINS, "").split(",") if name]
    return {
        "SPARK_OVERLAY_ENGRAM": "file",
        PLUGINS: ",".join(dict.fromkeys((*others, PLUGIN))),
        **{f"SPARK_OVERLAY_ENGRAM_{name}": str(value) for name, value in told.items() if value is not None},
    }


def rank_variables(settings: Settings, node: NodeSettings) -> dict[str, str]:
    """Where this rank's node has the tables and its packed files."""
    if not is_on(settings):
        return {}
    folders = source_folder(settings, node), node.packed
    seen = inside(settings) if settings.launch.runtime is RuntimeKind.CONTAINER else folders
    names = PLACES[settings.engram.backend]
    return {name: place for name, folder, place in zip(names, folders, seen, strict=True) if folder}


@dataclass(frozen=True, slots=True)
class BenchFile:
    """A packed file that is right, and what the overlay's own benchmark is to be told of it."""

    rank: int
    layer: int
    request: dict[str, Any]


def files_to_bench(settings: Settings, seen: Mapping[str, TablesSeen]) -> dict[str, list[BenchFile]]:
    found: dict[str, list[BenchFile]] = {node.name: [] for node in settings.nodes}
    for rank, node in enumerate(settings.nodes):
        looked = seen[node.name]
        engram = next((one.engram for one in looked.folders if one.engram), None)
        if engram is None or looked.out is None:
            continue
        there = {one.name for one in looked.out.files if one.size is not None}
        for table in tables(engram):
            share, ranks = tp_rank(settings, rank)
            name = file_name(table.layer, share, ranks)
            finding = _check_layer(settings, rank, node, looked, engram, table)
            if name not in there or finding.severity is Severity.REFUSAL:
                continue
            request = {
                "packed": str(looked.out.path / name),
                "layer": table.layer,
                "rank": share,
                "ranks": ranks,
                "total": table.rows,
                "engram": asdict(engram),
            }
            found[node.name].append(BenchFile(rank, table.layer, request))
    return found


def check_overlay(settings: Settings, identities: Mapping[str, Identity]) -> list[Finding]:
    """The native runtime can be looked into; an image cannot, and there the log must prove it."""
    if not needs_proof(settings) or settings.launch.runtime is RuntimeKind.CONTAINER:
        return []
    found = []
    for name, identity in identities.items():
        version = dict(identity.packages).get(OVERLAY)
        if version:
            found.append(Finding(PRESENT, Severity.OK, name, f"{OVERLAY} {version}"))
            continue
        fix = f"on {name}: {settings.launch.venv}/bin/pip install ./overlay   (from sparkctl's sources)"
        seen = f"{OVERLAY} is not in {settings.launch.venv}, and vLLM keeps Engram tables in memory without it"
        found.append(Finding(PRESENT, Severity.REFUSAL, name, seen, "the overlay on every node", fix))
    return found


def check_tables(settings: Settings, seen: Mapping[str, TablesSeen]) -> list[Finding]:
    """Every packed file that a rank would open, by header and size; what is not packed must be in the tables."""
    found: list[Finding] = []
    for rank, node in enumerate(settings.nodes):
        if node.name in seen:
            found += _check_node(settings, rank, node, seen[node.name])
    return found


def _check_node(settings: Settings, rank: int, node: NodeSettings, seen: TablesSeen) -> list[Finding]:
    engram = next((one.engram for one in seen.folders if one.engram), None)
    if engram is None:
        told = "no config.json on this node describes Engram tables: packed files were not looked at"
        return [Finding(ROWS, Severity.NOT_CHECKED, node.name, told)]
    found = [_check_layer(settings, rank, node, seen, engram, table) for table in tables(engram)]
    return [*found, *_direct(node, seen.out)]


def _check_layer(
    settings: Settings, rank: int, node: NodeSettings, seen: TablesSeen, engram: Engram, table: Table
) -> Finding:
    share, ranks = tp_rank(settings, rank)
    wanted = packed(engram, table, share, ranks, LAYOUTS[settings.engram.layout])
    name = file_name(table.layer, share, ranks)
    files = {one.name: one for one in seen.out.files} if seen.out else {}
    there = files.get(name)
    if there is not None and there.size is not None:
        assert seen.out is not None
        try:
            check(there.first, there.size, wanted, f"{seen.out.path / name}")
        except BadPack as error:
            observed = f"{error.where} {error.fault.value}" + "".join(f": {one}" for one in error.evidence)
            return Finding(ROWS, Severity.REFUSAL, node.name, observed, "the rows of this rank", "sparkctl pack")
        return _vouched(node, there, f"{seen.out.path / name}", f"{name}, {format_bytes(wanted.size)}")
    return _unpacked(settings, rank, node, seen, table, name, there)


def _vouched(node: NodeSettings, file: PackedSeen, path: str, told: str) -> Finding:
    """Bytes inside rows say nothing of themselves: the file must be the one that had its checksums."""
    match file.proved:
        case True:
            return Finding(ROWS, Severity.OK, node.name, told)
        case False:
            observed = f"{path} was written to after its checksums were taken: its rows may not be those of the table"
            fix = "sparkctl pack   (reads it whole, and packs it again if a row is wrong)"
            return Finding(ROWS, Severity.REFUSAL, node.name, observed, "the file as it was packed", fix)
        case None:
            observed = f"{told}: it has no checksums, as another program packed it; its rows were not looked at"
            fix = "sparkctl pack   (compares it with the tables once, and keeps checksums)"
            return Finding(ROWS, Severity.WARNING, node.name, observed, "rows with checksums", fix)


def _unpacked(
    settings: Settings,
    rank: int,
    node: NodeSettings,
    seen: TablesSeen,
    table: Table,
    name: str,
    there: PackedSeen | None,
) -> Finding:
    half = f" (of an ended pack {format_bytes(there.part)} are on the disk)" if there is not None and there.part else ""
    folder = source_folder(settings, node)
    whole: Sequence[FolderSeen] = [one for one in seen.folders[:1] if folder and judge_folder(one).missing == ()]
    try:
        if not whole:
            where = folder or "no folder of tables is set"
            told = f"{name} is not packed{half}, and the tables are not there either: {where}"
            return Finding(ROWS, Severity.REFUSAL, node.name, told, "packed rows, or the tables", "sparkctl pack")
        node_pack(settings, rank, TablesSeen(seen.machine, tuple(whole), seen.out or _NOWHERE), (table.layer,))
    except SparkctlError as error:
        return Finding(ROWS, Severity.REFUSAL, node.name, str(error), "packed rows, or whole tables", "sparkctl pack")
    slow = ", over the network" if whole[0].network else ""
    told = f"{name} is not packed{half}: layer {table.layer} is read from {whole[0].path}{slow}, two reads a row"
    return Finding(ROWS, Severity.WARNING, node.name, told, "packed rows", "sparkctl pack")


def _direct(node: NodeSettings, out: OutSeen | None) -> list[Finding]:
    if out is None or out.direct is None:
        return []
    if out.direct:
        return [Finding(DIRECT, Severity.OK, node.name, f"{out.path} is read past the page cache")]
    told = f"{out.path} lies on a file system that cannot be read past the page cache: rows crowd out the server"
    return [Finding(DIRECT, Severity.WARNING, node.name, told, "direct reads", "pack onto ext4 or xfs on NVMe")]


def _per_table(gib: Decimal | None) -> int | None:
    """The setting is for a node; the overlay's is for each of its two tables."""
    return None if gib is None else int(gib * _GIB / 2)
