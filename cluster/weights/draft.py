"""A smaller drafting model out of a pack's own: some experts of each stage, renumbered, everything else as it is.

Which experts stay is read off the plan by which the pack itself was pruned: those that matter to structured answers
first, then by rank. A draft is only ever checked by the model, so fewer experts cost acceptance and never truth.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cluster.errors import Refused, SettingsError
from cluster.weights.assembly import Assembly, Copy, Entry, header_bytes, joined
from cluster.weights.safetensors import Header, Tensor

FILE, PLAN = "dspark-draft.safetensors", "DSPARK_DRAFT_PLAN.json"
FEWEST = 8
STRUCTURED = ("agentic_tool_trajectory", "tool_calling")
_EXPERT = re.compile(r"(mtp\.(\d+)\.ffn\.experts\.)(\d+)(\..+)")
_GATE = re.compile(r"mtp\.(\d+)\.ffn\.gate\.(weight|bias)")


def must_be(experts: int, config: Mapping[str, Any], where: str) -> None:
    have, groups = config.get("n_routed_experts"), config.get("n_group", 1) or 1
    if not isinstance(have, int):
        raise Refused("config.json does not say how many experts there are", where=where, fix="download the pack again")
    if not FEWEST <= experts < have:
        what = f"the draft keeps from {FEWEST} to {have - 1} experts, not {experts}"
        most = max(FEWEST, (have - 1) // groups * groups)
        raise SettingsError(what, where="--experts", fix=f"--experts {most}")
    if experts % groups:
        what = f"{experts} experts do not divide into {groups} groups"
        raise SettingsError(what, where=f"--experts, {where}", fix=f"choose a multiple of {groups}")


def chosen(plan: Mapping[str, Any], experts: int, structured: int, where: str) -> tuple[int, ...]:
    """The experts that stay, by their present numbers, ascending."""
    try:
        maps = plan["keep_maps"]
        present = {original: number for number, original in enumerate(maps["mtp_keep"])}
        layer = str(maps["mtp_keep_from_layer"])
        ranked = maps["structured_ranked_by_category"]
        wanted = [one for category in STRUCTURED for one in ranked[category][layer][:structured]]
        wanted += maps["mtp_ranked"]
    except (KeyError, TypeError, IndexError) as error:
        raise Refused(
            f"the plan says nothing of {error}", where=where, fix="use the plan that came with the pack"
        ) from error
    kept = list(dict.fromkeys(present[one] for one in wanted if one in present))[:experts]
    if len(kept) < experts:
        raise Refused(
            f"the plan ranks {len(kept)} experts of the pack, {experts} are wanted", where=where, fix="lower --experts"
        )
    return tuple(sorted(kept))


def draft(headers: Iterable[tuple[str, Header]], kept: Sequence[int], experts: int, where: str) -> Assembly:
    """Only `mtp.*`: kept experts renumbered in their order, rows of the gate gathered in the same."""
    numbers = {old: new for new, old in enumerate(kept)}
    paths: list[str] = []
    entries: list[Entry] = []
    moves: list[tuple[int, int, int, int]] = []
    at = 0
    for path, header in headers:
        used = [(one, name) for one in header.tensors if (name := _kept_name(one.name, numbers))]
        source = len(paths)
        paths += [path] if used else []
        for one, name in used:
            ranges = _ranges(one, kept, experts, where)
            size = sum(length for _, length in ranges)
            shape = (len(kept), *one.shape[1:]) if _GATE.fullmatch(one.name) else one.shape
            entries.append(Entry(name, one.dtype, shape, at, at + size))
            for start, length in ranges:
                moves.append((source, start, at, length))
                at += length
    _must_be_whole([one.name for one in entries], len(kept), where)
    header_text = header_bytes(entries, {"operation": "dspark_draft", "experts": str(len(kept))})
    copies = joined(Copy(source, start, len(header_text) + to, length) for source, start, to, length in moves)
    return Assembly(FILE, header_text, tuple(paths), copies, len(header_text) + at)


def _kept_name(name: str, numbers: Mapping[int, int]) -> str:
    """Empty for what the draft does not hold."""
    match = _EXPERT.fullmatch(name)
    if match is None:
        return name if name.startswith("mtp.") else ""
    number = numbers.get(int(match[3]))
    return "" if number is None else f"{match[1]}{number}{match[4]}"


def _ranges(one: Tensor, kept: Sequence[int], experts: int, where: str) -> list[tuple[int, int]]:
    """Start and length of what is taken of a tensor: all of it, or the gate's rows of the kept experts."""
    if not _GATE.fullmatch(one.name):
        return [(one.start, one.end - one.start)]
    if not one.shape or one.shape[0] != experts:
        raise Refused(
            f"{one.name} has the shape {list(one.shape)}, config.json says {experts} experts", where=where,
            fix="the pack and its config.json do not belong together",
        )  # fmt: skip
    row = (one.end - one.start) // experts
    return [(one.start + number * row, row) for number in kept]


def _must_be_whole(names: Sequence[str], experts: int, where: str) -> None:
    """Every stage has its gate and all of the experts."""
    stages: dict[str, set[int]] = {}
    gates = set()
    for name in names:
        if match := _EXPERT.fullmatch(name):
            stages.setdefault(match[2], set()).add(int(match[3]))
        elif match := _GATE.fullmatch(name):
            gates.add(match[1])
    if not stages:
        raise Refused("the pack has no drafting part", where=where, evidence=("looked for mtp.N.ffn.experts.*",))
    for stage, found in stages.items():
        if len(found) < experts or stage not in gates:
            raise Refused(
                f"stage {stage} of the drafting part is not whole",
                where=where,
                evidence=(f"{len(found)} of {experts} experts, {'a' if stage in gates else 'no'} gate",),
                fix="download the pack again",
            )


def draft_config(config: Mapping[str, Any], experts: int) -> dict[str, Any]:
    return {**config, "n_routed_experts": experts}


def draft_index(assembly_names: Iterable[str], size: int) -> dict[str, Any]:
    return {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(sorted(assembly_names), FILE)}


def draft_plan(source: str, kept: Sequence[int], structured: int, size: int, sha256: str) -> dict[str, Any]:
    return {
        "source": source,
        "kept_experts": list(kept),
        "structured_per_category": structured,
        "file": {"name": FILE, "bytes": size, "sha256": sha256},
    }
