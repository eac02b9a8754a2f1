"""`relay`: a pack whose tensors lie on a grid: links to the old one where that is enough, written anew where not."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from cluster.app.packs import (
    RESERVE,
    Entry,
    Folder,
    Link,
    Order,
    Shard,
    carry_out,
    demand,
    folder,
    pack,
    pack_node,
    shard,
    shards,
)
from cluster.app.session import OpenNode
from cluster.errors import Refused, SettingsError
from cluster.model.events import Emit, Severity, Told
from cluster.model.packs import AlignedShare, AlignmentReport, Made, PackFile, PackReport
from cluster.model.settings import Settings
from cluster.model.units import format_bytes
from cluster.node.base import Node
from cluster.weights.assembly import Assembly
from cluster.weights.relay import Reach, Rules, alignment, is_overlay, is_pad, off_grid, relaid, speeds_up

OVERLAY = "exllamav3"
REQUANT = "requant_"
RULES, ORDER = Rules(), Order()


@dataclass(frozen=True, slots=True)
class Wanted:
    """`link` is symlink, hardlink or copy; `parts` how many overlay files there must be, None for any number."""

    source: str
    target: str
    rules: Rules = RULES
    overlay: str = ""
    parts: int | None = None
    link: str = "symlink"
    order: Order = ORDER
    reserve: int = RESERVE
    dry: bool = False


@dataclass(frozen=True, slots=True)
class _Plan:
    assemblies: tuple[Assembly, ...]
    links: tuple[Link, ...]
    files: tuple[PackFile, ...]  # what would be, or already is
    written: int
    notes: tuple[str, ...]


def relay(settings: Settings, open_one: OpenNode, emit: Emit, wanted: Wanted) -> PackReport:
    """A second run finds all in place; a link to nothing is placed anew."""
    with pack_node(settings, open_one) as node:
        source, target = pack(node, wanted.source), folder(node, wanted.target)
        if source.path == target.path or target.path in source.path.parents:
            raise SettingsError(
                "the new pack cannot lie where the old one does",
                where=f"{node.name}:{target.path}",
                fix="name another folder for it",
            )
        beside, parts = _overlay(node, source, wanted)
        lying = {str(one.path / each.name): each for one in (source, beside) for each in one.entries}
        found = (*shards(node, source), *parts)
        _must_differ(node, found)
        plan = _plan(node, source, target, found, lying, wanted)
        report = PackReport(
            "relay", str(source.path), str(target.path), True, False, plan.files, plan.written,
            plan.written + wanted.reserve if plan.written else 0, target.free, notes=plan.notes,
        )  # fmt: skip
        if wanted.dry:
            return report
        if plan.written:
            emit(
                Told(
                    Severity.NOTE, f"{format_bytes(plan.written)} to write, {format_bytes(target.free)} free", node.name
                )
            )
        demand(node, target, plan.written, wanted.reserve)
        outcome = carry_out(node, emit, "relay", target.path, plan.assemblies, plan.links, wanted.order)
        kept = tuple(one for one in plan.files if one.made is Made.KEPT)
        files = tuple(sorted((*kept, *outcome.files), key=lambda one: one.name))
        return replace(report, ok=outcome.ok, done=True, files=_with_details(files, plan.files))


def _with_details(files: tuple[PackFile, ...], planned: tuple[PackFile, ...]) -> tuple[PackFile, ...]:
    why = {one.name: one.detail for one in planned}
    return tuple(replace(one, detail=one.detail or why.get(one.name, "")) for one in files)


def _overlay(node: Node, source: Folder, wanted: Wanted) -> tuple[Folder, tuple[Shard, ...]]:
    """Where they lie, and the parts themselves: they belong beside the shards, loaders look in one folder only."""
    nested = source.named(OVERLAY)
    path = wanted.overlay or (str(source.path / OVERLAY) if nested and nested.kind == "folder" else "")
    found: tuple[Shard, ...] = ()
    lying = source
    if path:
        lying = folder(node, path)
        if not lying.present:
            raise SettingsError("there is no such folder", where=f"{node.name}:{lying.path}", fix="check --overlay")
        found = tuple(
            shard(node, lying.path / one.name, one.size) for one in lying.shards if source.named(one.name) is None
        )
    beside = [one for one in source.shards if one.name.startswith(REQUANT)]
    count = len(found) + len(beside)
    if wanted.parts is not None and count != wanted.parts:
        raise Refused(
            f"there are {count} overlay parts, not {wanted.parts}",
            where=f"{node.name}:{path or source.path}",
            evidence=tuple(sorted([*(one.name for one in found), *(one.name for one in beside)]))[:12],
            fix="download the missing parts: without them the pack works, but slower, and nothing says so",
        )
    return lying, found


def _must_differ(node: Node, found: Iterable[Shard]) -> None:
    """The last of two tensors with one name would win, and which is last is chance."""
    where: dict[str, str] = {}
    for one in found:
        for tensor in one.header.tensors:
            if tensor.name in where and not is_pad(tensor.name):
                raise Refused(
                    f"{tensor.name} is in two files",
                    where=f"{node.name}:{one.path.parent}",
                    evidence=(where[tensor.name], one.name),
                    fix="remove the file that does not belong to this pack",
                )
            where[tensor.name] = one.name


def _plan(
    node: Node,
    source: Folder,
    target: Folder,
    found: tuple[Shard, ...],
    lying: dict[str, Entry],
    wanted: Wanted,
) -> _Plan:
    assemblies: list[Assembly] = []
    links: list[Link] = []
    files: list[PackFile] = []
    written = 0
    for one in found:
        moved = off_grid(one.header, wanted.rules)
        there = target.named(one.name)
        if moved:
            made = relaid(one.name, str(one.path), one.first, one.header, wanted.rules)
            why = f"{len(moved)} of {len(one.header.tensors)} tensors off the grid"
            if _is_there(node, target, there, made):
                files.append(PackFile(one.name, Made.KEPT, made.size))
                continue
            assemblies.append(made)
            written += made.size
            files.append(PackFile(one.name, Made.PLANNED, made.size, detail=_repairs(there, why)))
        else:
            _link(one.name, lying[str(one.path)], there, wanted.link, links, files)
            written += one.header.size if wanted.link == "copy" and files[-1].made is Made.PLANNED else 0
    for other in source.entries:
        if other not in source.shards and not other.name.endswith((".tmp", ".part")) and other.name != OVERLAY:
            how = "symlink" if other.kind == "folder" else wanted.link
            _link(other.name, other, target.named(other.name), how, links, files)
    return _Plan(tuple(assemblies), tuple(links), tuple(files), written, _notes(target, found, wanted))


def _link(name: str, source: Entry, there: Entry | None, how: str, links: list[Link], files: list[PackFile]) -> None:
    """One hop to the file itself, so that a link of a download cache may go."""
    if there and _leads(there, source, how):
        files.append(PackFile(name, Made.KEPT, source.size))
    else:
        links.append((name, source.real, how))
        files.append(PackFile(name, Made.PLANNED, source.size, detail=_repairs(there, how)))


def _leads(there: Entry, source: Entry, how: str) -> bool:
    match how:
        case "symlink":
            return there.target == source.real and there.kind != "dangling"
        case "hardlink":
            return not there.target and there.size == source.size
        case _:
            return not there.target and there.size == source.size and there.inode != source.inode


def _repairs(there: Entry | None, why: str) -> str:
    if there is None:
        return why
    state = f"a link to nothing ({there.target})" if there.kind == "dangling" else "another file"
    return f"{why}; replaces {state}"


def _is_there(node: Node, target: Folder, there: Entry | None, made: Assembly) -> bool:
    """A file gets its name only after it was complete, so its header and size tell all."""
    if there is None or there.kind != "file" or there.target or there.size != made.size:
        return False
    return node.read(str(target.path / made.name), 0, len(made.header)) == made.header


def _notes(target: Folder, found: tuple[Shard, ...], wanted: Wanted) -> tuple[str, ...]:
    parts = [one for one in found if one.name.startswith(REQUANT)]
    notes = []
    if parts:
        notes.append(f"{len(parts)} overlay parts beside the shards")
        if not speeds_up(one.header for one in parts):
            notes.append("no overlay part holds layers.0.attn.*.trellis: the parts may be those of another pack")
    strange = sorted({one.name for one in target.shards} - {one.name for one in found})
    if strange:
        notes.append(f"also in {target.path}, and loaded with it: {', '.join(strange)}")
    if wanted.link == "symlink":
        notes.append("links are absolute: keep the old pack where it is, and mount it at the same path in containers")
    return tuple(notes)


def align(settings: Settings, open_one: OpenNode, path: str, rules: Rules, threshold: int) -> AlignmentReport:
    """Reads headers only. A shard that cannot be read is an error."""
    with pack_node(settings, open_one) as node:
        source = pack(node, path)
        found = shards(node, source)
    shares = alignment((one.header for one in found), rules.smallest)
    copied = sum(one.size for one in shares if one.reach is Reach.COPIED)
    counts = Counter(one.name.partition("_")[0] for one in found if is_overlay(one.name))
    return AlignmentReport(
        str(source.path),
        copied <= threshold,
        copied,
        threshold,
        tuple(AlignedShare(str(one.reach), one.dtype, one.size, one.count, one.examples) for one in shares),
        tuple(one.name for one in found if off_grid(one.header, rules)),
        tuple(one.name for one in found if is_overlay(one.name)),
        tuple(f"{count} parts named {name}_*" for name, count in counts.items() if count > 1),
    )
