"""Join a pack that was sliced for tensor parallelism back into one rank's, without touching a weight.

EXL3 slices are whole tiles: columns of gate and up, rows of down. Joining them is copying bytes in another order.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.errors import Refused
from cluster.weights.assembly import Assembly, Copy, Entry, Piece, Same, Weave, header_bytes
from cluster.weights.safetensors import Header, Tensor

OPERATION = "lossless_tp_rank_coalesce"
FORMAT = "rank-sliced-exl3-tp1-v1"
MANIFEST = "rank-sliced-tp1-manifest.json"
_KEY = re.compile(r"(.+)\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.rank(\d+)\.(trellis|suh|svh|mcg|mul1)")
_FILE = re.compile(r"(.+)-tp(\d+)-rank(\d+)\.safetensors")
# The dimension along which a field is joined; fields that are not here are the same on every rank.
_ROWS = {"trellis": 0, "suh": 0}
_COLUMNS = {"trellis": 1, "svh": 0}
_AXIS = {"gate_proj": _COLUMNS, "up_proj": _COLUMNS, "w1": _COLUMNS, "w3": _COLUMNS, "down_proj": _ROWS, "w2": _ROWS}


@dataclass(frozen=True, slots=True)
class Family:
    """The files of all ranks of one part of the pack, in rank order."""

    name: str
    files: tuple[tuple[str, Header], ...]

    @property
    def output(self) -> str:
        return f"{self.name}-tp1-rank0.safetensors"


@dataclass(frozen=True, slots=True)
class Sliced:
    """A sliced pack: what has to be joined, and the files that are carried over as they are."""

    ranks: int
    families: tuple[Family, ...]
    carried: tuple[tuple[str, Header], ...]


def ranks_of(config: Mapping[str, Any], where: str) -> int:
    """How many ranks the pack was sliced for, as its config.json says."""
    tail = config.get("hybrid_tr3_tail")
    ranks = tail.get("tp") if isinstance(tail, Mapping) and tail.get("format") == "exl3-trellis" else None
    if not isinstance(ranks, int) or ranks < 2:
        raise Refused(
            "config.json does not say that the pack is sliced",
            where=where,
            evidence=(f"hybrid_tr3_tail: {tail}",),
            fix="only packs with hybrid_tr3_tail of format exl3-trellis and tp from 2 on can be joined",
        )
    return ranks


def sliced(headers: Iterable[tuple[str, Header]], ranks: int, where: str) -> Sliced:
    """Refused when a rank is missing or double, or a file holds what its name does not say."""
    families: dict[str, dict[int, tuple[str, Header]]] = {}
    carried = []
    for file, header in headers:
        match = _FILE.fullmatch(file)
        rank = int(match[3]) if match else None
        _must_hold(file, header, rank, where)
        if match is None:
            carried.append((file, header))
            continue
        if int(match[2]) != ranks:
            raise Refused(
                f"{file} is of {match[2]} ranks, config.json says {ranks}",
                where=where,
                fix="download the pack again, into an empty folder: files of two packs are mixed",
            )
        families.setdefault(match[1], {})[int(match[3])] = (file, header)
    for name, found in families.items():
        wrong = sorted(set(range(ranks)) ^ set(found))
        if wrong:
            raise Refused(
                f"{name} has not exactly the ranks 0 to {ranks - 1}",
                where=where,
                evidence=[
                    f"{name}-tp{ranks}-rank{rank}.safetensors is {'missing' if rank < ranks else 'too much'}"
                    for rank in wrong
                ],
                fix="download the files that are missing, and remove those that are too much",
            )
    if not families:
        raise Refused("no file is sliced", where=where, evidence=("looked for NAME-tpN-rankR.safetensors",))
    made = tuple(Family(name, tuple(found[rank] for rank in range(ranks))) for name, found in families.items())
    return Sliced(ranks, made, tuple(carried))


def _must_hold(file: str, header: Header, rank: int | None, where: str) -> None:
    for one in header.tensors:
        match = _KEY.fullmatch(one.name)
        found = int(match[3]) if match else None
        if found != rank:
            held = "a tensor of no rank" if found is None else f"a tensor of rank {found}"
            raise Refused(
                f"{file} holds {held}", where=where, evidence=(one.name,), fix="download the file again: it is misnamed"
            )


def joined_name(name: str) -> str:
    match = _KEY.fullmatch(name)
    return f"{match[1]}.{match[2]}.rank0.{match[4]}" if match else name


def coalesced(family: Family, paths: Sequence[str], where: str) -> Assembly:
    """The family's one file. `paths` are those of its files, in rank order."""
    by_name = [{joined_name(one.name): one for one in header.tensors} for _, header in family.files]
    for (file, _), named in zip(family.files, by_name, strict=True):
        different = sorted(set(named) ^ set(by_name[0]))
        if different:
            raise Refused(
                f"{file} does not hold the same tensors as rank 0", where=where, evidence=different[:5],
                fix="download the file again",
            )  # fmt: skip
    entries: list[Entry] = []
    plans: list[tuple[str, tuple[Tensor, ...], int | None]] = []
    at = 0
    for name in by_name[0]:
        parts = tuple(named[name] for named in by_name)
        axis = _axis(name)
        shape = _shape(name, parts, axis, where)
        size = sum(one.end - one.start for one in parts) if axis is not None else parts[0].end - parts[0].start
        entries.append(Entry(name, parts[0].dtype, shape, at, at + size))
        plans.append((name, parts, axis))
        at += size
    told = {"operation": OPERATION, "source_tp": str(len(paths)), "target_tp": "1"}
    header = header_bytes(entries, told)
    pieces = [
        piece
        for entry, (name, parts, axis) in zip(entries, plans, strict=True)
        for piece in _pieces(name, parts, axis, len(header) + entry.start)
    ]
    return Assembly(family.output, header, tuple(paths), tuple(pieces), len(header) + at)


def _axis(name: str) -> int | None:
    match = _KEY.fullmatch(name)
    return _AXIS[match[2]].get(match[4]) if match else None


def _shape(name: str, parts: Sequence[Tensor], axis: int | None, where: str) -> tuple[int, ...]:
    first = parts[0]
    for rank, one in enumerate(parts):
        if (one.dtype, one.shape) != (first.dtype, first.shape):
            raise Refused(
                f"{name} differs in type or shape between rank 0 and rank {rank}",
                where=where,
                evidence=(f"{first.dtype} {list(first.shape)}", f"{one.dtype} {list(one.shape)}"),
                fix="files of two packs are mixed; download them again",
            )
    if axis is None:
        return first.shape
    return (*first.shape[:axis], first.shape[axis] * len(parts), *first.shape[axis + 1 :])


def _pieces(name: str, parts: Sequence[Tensor], axis: int | None, at: int) -> tuple[Piece, ...]:
    length = parts[0].end - parts[0].start
    places = tuple((rank, one.start) for rank, one in enumerate(parts))
    match axis:
        case None:
            return (Same(places, at, length, name),)
        case 0:
            return tuple(Copy(rank, start, at + rank * length, length) for rank, start in places)
        case _:
            rows = parts[0].shape[0]
            return (Weave(places, length // rows, rows, at),) if length else ()


def joined_config(config: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    tail = {**config["hybrid_tr3_tail"], "tp": 1, "source_tp": ranks, "source_operation": OPERATION}
    return {**config, "hybrid_tr3_tail": tail}


def joined_quantization(quantized: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    return {**quantized, "rank_sliced": config["hybrid_tr3_tail"], "source_operation": OPERATION}


def joined_index(weight_map: Mapping[str, str], files: Mapping[str, Sequence[str]], size: int) -> dict[str, Any]:
    """`files` are the tensors of each joined file; those of carried files stay where the old index has them."""
    made = {name: file for name, file in weight_map.items() if not _KEY.fullmatch(name)}
    made |= {name: file for file, names in files.items() for name in names}
    return {"metadata": {"total_size": size}, "weight_map": dict(sorted(made.items()))}


def manifest(source: str, ranks: int, tensors: int, size: int, files: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """Names, sizes and digests of the tensor files."""
    return {
        "format": FORMAT,
        "source": source,
        "source_tp": ranks,
        "target_tp": 1,
        "tensor_count": tensors,
        "tensor_bytes": size,
        "files": [{"name": name, "bytes": files[name][0], "sha256": files[name][1]} for name in sorted(files)],
    }


def manifest_files(tree: Mapping[str, Any], where: str) -> dict[str, tuple[int, str]]:
    """Name -> size and digest. Refused when the manifest is of another kind, or has no digests to check."""
    if tree.get("format") != FORMAT or tree.get("target_tp") != 1:
        raise Refused(
            "the file is no manifest of a joined pack",
            where=where,
            evidence=(f"format: {tree.get('format')}",),
            fix="name a folder that coalesce made",
        )
    found = {one["name"]: (int(one["bytes"]), str(one["sha256"])) for one in tree.get("files", ())}
    if not found or not all(sha256 for _, sha256 in found.values()):
        raise Refused(
            "the manifest holds no digests, so nothing can be checked", where=where, fix="coalesce with --sums"
        )
    return found
