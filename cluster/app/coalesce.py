"""`coalesce`: join a rank-sliced pack into one rank's on a node, with a manifest; and check such a pack by it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from cluster.app.packs import (
    RESERVE,
    Folder,
    Link,
    Order,
    Outcome,
    carry_out,
    demand,
    folder,
    json_object,
    pack,
    pack_node,
    shards,
)
from cluster.app.session import OpenNode
from cluster.errors import SettingsError
from cluster.model.events import Emit, Severity, Told
from cluster.model.packs import Made, PackFile, PackReport
from cluster.model.settings import Settings
from cluster.model.units import format_bytes
from cluster.node.base import Node
from cluster.weights.assembly import Assembly
from cluster.weights.coalesce import (
    MANIFEST,
    Sliced,
    coalesced,
    joined_config,
    joined_index,
    joined_quantization,
    manifest,
    manifest_files,
    ranks_of,
    sliced,
)
from cluster.weights.safetensors import read_header

CONFIG, QUANTIZED, INDEX = "config.json", "quantization_config.json", "model.safetensors.index.json"
WRITTEN = (CONFIG, QUANTIZED, INDEX, MANIFEST)
ORDER = Order(sums=True)


@dataclass(frozen=True, slots=True)
class Wanted:
    source: str
    target: str
    link: str = "hardlink"
    order: Order = ORDER
    reserve: int = RESERVE
    dry: bool = False


@dataclass(frozen=True, slots=True)
class _Texts:
    config: Mapping[str, Any]
    quantized: Mapping[str, Any]
    index: Mapping[str, Any]


def coalesce(settings: Settings, open_one: OpenNode, emit: Emit, wanted: Wanted) -> PackReport:
    """The source is not touched. What is complete in the target is kept, when its bytes are those of the manifest."""
    with pack_node(settings, open_one) as node:
        source, target = pack(node, wanted.source), folder(node, wanted.target)
        if source.path == target.path:
            raise SettingsError(
                "the new pack cannot lie where the old one does",
                where=f"{node.name}:{target.path}",
                fix="name another folder for it",
            )
        where = f"{node.name}:{source.path}"
        config = json_object(node, source.path / CONFIG)
        ranks = ranks_of(config, where)
        texts = _Texts(config, *(json_object(node, source.path / name) for name in (QUANTIZED, INDEX)))
        found = {one.name: one for one in shards(node, source)}
        parts = sliced(((one.name, one.header) for one in found.values()), ranks, where)
        made = tuple(
            coalesced(family, [str(found[file].path) for file, _ in family.files], where) for family in parts.families
        )
        assemblies, kept = _todo(node, target, made, wanted)
        links = tuple(_links(source, target, parts, wanted.link))
        written = sum(one.size for one in assemblies)
        report = PackReport(
            "coalesce", str(source.path), str(target.path), True, False, _planned(made, assemblies, links), written,
            written + wanted.reserve if written else 0, target.free,
        )  # fmt: skip
        if wanted.dry:
            return report
        demand(node, target, written, wanted.reserve)
        if written:
            emit(Told(Severity.NOTE, f"{format_bytes(written)} to write, {format_bytes(target.free)} free", node.name))
        carried = [name for name, _ in parts.carried if name not in {name for name, _, _ in links}]
        hashed = (*kept, *carried) if wanted.order.sums else ()
        outcome = carry_out(node, emit, "coalesce", target.path, assemblies, links, wanted.order, hashed)
        if not outcome.ok:
            return replace(report, ok=False, done=True, files=outcome.files)
        _write_texts(node, target.path, texts, parts, made)
        _write_manifest(node, source, target.path, parts, made, outcome)
        still = tuple(
            PackFile(one.name, Made.KEPT, one.size) for one in made if one.name in kept and not wanted.order.sums
        )
        files = tuple(sorted((*still, *outcome.files), key=lambda one: one.name))
        return replace(report, done=True, files=files, manifest=str(target.path / MANIFEST))


def check(settings: Settings, open_one: OpenNode, emit: Emit, path: str) -> PackReport:
    """Hold every file against the manifest: its size first, then its digest."""
    with pack_node(settings, open_one) as node:
        target = pack(node, path)
        where = f"{node.name}:{target.path / MANIFEST}"
        listed = manifest_files(
            json_object(node, target.path / MANIFEST, absent="name a folder that coalesce made"), where
        )
        sizes = {one.name: one.size for one in target.shards}
        wrong = {
            name: "is missing" if name not in sizes else f"has {sizes[name]} bytes, the manifest says {size}"
            for name, (size, _) in listed.items()
            if sizes.get(name) != size
        }
        names = tuple(name for name in listed if name not in wrong)
        outcome = carry_out(node, emit, "check", target.path, (), (), ORDER, names)
        wrong |= {
            name: f"has the digest {sha[:12]}, the manifest says {listed[name][1][:12]}"
            for name, sha in outcome.sums.items()
            if sha != listed[name][1]
        }
    files = tuple(
        PackFile(name, Made.FAILED if name in wrong else Made.KEPT, size, detail=wrong.get(name, ""))
        for name, (size, _) in listed.items()
    )
    return PackReport("check", str(target.path), str(target.path), not wrong, True, files, 0, 0, target.free, where)


def _todo(
    node: Node, target: Folder, made: tuple[Assembly, ...], wanted: Wanted
) -> tuple[tuple[Assembly, ...], tuple[str, ...]]:
    """What must be written, and what is there: its header and size, and its digest where a manifest has one."""
    complete = [one for one in made if _is_complete(node, target, one)]
    if complete and wanted.order.sums and target.named(MANIFEST):
        listed = manifest_files(json_object(node, target.path / MANIFEST), f"{node.name}:{target.path / MANIFEST}")
        seen = carry_out(node, _silent, "check", target.path, (), (), ORDER, [one.name for one in complete]).sums
        complete = [one for one in complete if listed.get(one.name, (0, seen[one.name]))[1] == seen[one.name]]
    names = tuple(one.name for one in complete)
    return tuple(one for one in made if one.name not in names), names


def _silent(event: object) -> None:
    """Digests that only decide what is kept are no progress."""


def _is_complete(node: Node, target: Folder, made: Assembly) -> bool:
    there = target.named(made.name)
    if there is None or there.target or there.size != made.size:
        return False
    return node.read(str(target.path / made.name), 0, len(made.header)) == made.header


def _links(source: Folder, target: Folder, parts: Sliced, how: str) -> list[Link]:
    """Carried files, linked as asked, and all others that we do not write ourselves, copied."""
    ranked = {file for family in parts.families for file, _ in family.files}
    found: list[Link] = []
    for one in source.entries:
        if one.kind != "file" or one.name in ranked or one.name in WRITTEN or one.name.endswith((".tmp", ".part")):
            continue
        there = target.named(one.name)
        if there is None or there.size != one.size or there.kind == "dangling":
            found.append((one.name, one.real, how if one in source.shards else "copy"))
    return found


def _planned(
    made: tuple[Assembly, ...], assemblies: tuple[Assembly, ...], links: tuple[Link, ...]
) -> tuple[PackFile, ...]:
    files = [PackFile(one.name, Made.PLANNED if one in assemblies else Made.KEPT, one.size) for one in made]
    return (*files, *(PackFile(name, Made.PLANNED, 0, detail=how) for name, _, how in links))


def _write_texts(node: Node, target: PurePosixPath, texts: _Texts, parts: Sliced, made: tuple[Assembly, ...]) -> None:
    config = joined_config(texts.config, parts.ranks)
    names = {one.name: [tensor.name for tensor in read_header(one.header, one.name).tensors] for one in made}
    size = _tensor_bytes(parts, made)
    index = joined_index(texts.index.get("weight_map", {}), names, size)
    for name, tree in ((CONFIG, config), (QUANTIZED, joined_quantization(texts.quantized, config)), (INDEX, index)):
        node.write(str(target / name), (json.dumps(tree, indent=2) + "\n").encode(), 0o644)


def _write_manifest(
    node: Node, source: Folder, target: PurePosixPath, parts: Sliced, made: tuple[Assembly, ...], outcome: Outcome
) -> None:
    sizes = {one.name: one.size for one in made} | {name: header.size for name, header in parts.carried}
    files = {name: (size, outcome.sums.get(name, "")) for name, size in sizes.items()}
    tensors = sum(len(read_header(one.header, one.name).tensors) for one in made)
    tensors += sum(len(header.tensors) for _, header in parts.carried)
    tree = manifest(str(source.path), parts.ranks, tensors, _tensor_bytes(parts, made), files)
    node.write(str(target / MANIFEST), (json.dumps(tree, indent=1) + "\n").encode(), 0o644)


def _tensor_bytes(parts: Sliced, made: tuple[Assembly, ...]) -> int:
    carried = sum(one.end - one.start for _, header in parts.carried for one in header.tensors)
    return carried + sum(one.size - len(one.header) for one in made)
