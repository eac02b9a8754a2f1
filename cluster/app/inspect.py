"""`inspect`: what a pack holds, and what a loader would trip over; reads headers and markers, never the weights."""

import json
from pathlib import PurePosixPath

from cluster.app.agents import agent
from cluster.app.observe import told
from cluster.app.packs import Folder, json_object, pack, pack_node, shards
from cluster.app.session import OpenNode
from cluster.errors import Refused
from cluster.model.packs import InspectReport
from cluster.model.settings import Settings
from cluster.node.base import Node
from cluster.weights.inspect import (
    Contents,
    Linear,
    average,
    by_layer,
    codebook,
    components,
    contents,
    index_faults,
    linears,
    map_differences,
    marker_faults,
    some,
    storage_faults,
    widths,
)
from cluster.weights.packconfig import BASE_BITS, expert_bits
from cluster.weights.relay import is_pad
from cluster.weights.safetensors import Header

INDEX, CONFIG, QUANTIZED = "model.safetensors.index.json", "config.json", "quantization_config.json"
MARKERS_LIMIT = 600.0


def inspect(settings: Settings, open_one: OpenNode, path: str, k_map: str = "") -> InspectReport:
    """A shard that is no safetensors file ends it; everything else that is wrong is told together."""
    with pack_node(settings, open_one) as node:
        lying = pack(node, path)
        found = shards(node, lying)
        held = contents((one.name, one.header) for one in found)
        exl3, problems = linears(held)
        problems += tuple(f"{one} is in two files" for one in held.twice[:5])
        problems += _marker_faults(node, lying)
        indexed, notes = _against_index(node, lying, held)
        problems += indexed + _against_config(node, lying, held, tuple(one.header for one in found), exl3)
        notes += map_differences(exl3, json_object(node, PurePosixPath(k_map), absent="check --k-map")) if k_map else ()
    pads = sum(is_pad(name) for name in held.tensors)
    return InspectReport(
        pack=str(lying.path),
        ok=not problems,
        files=len(found),
        tensors=len(held.tensors) - pads,
        size=sum(one.header.size for one in found),
        codebook=codebook(exl3),
        bits=round(average(exl3), 4),
        widths=widths(exl3),
        layers=by_layer(exl3),
        components=components(held),
        problems=problems,
        notes=notes,
    )


def _marker_faults(node: Node, lying: Folder) -> tuple[str, ...]:
    seen = json.loads(told(node, node.run(agent("markers", {"path": str(lying.path)}, MARKERS_LIMIT))))
    return marker_faults({key: tuple(names) for key, (_, names) in seen.items()})


def _against_index(node: Node, lying: Folder, held: Contents) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Problems and notes. A pack in one file needs no index."""
    if lying.named(INDEX) is None:
        return (), () if len(set(held.files.values())) <= 1 else (f"there is no {INDEX}",)
    missing, surplus = index_faults(held, json_object(node, lying.path / INDEX).get("weight_map", {}))
    problems = []
    if missing:
        problems.append(f"{len(missing)} tensors of the index are not where it says: {some(missing)}")
    if surplus:
        problems.append(f"{len(surplus)} tensors are not in the index: {some(surplus)}")
    return tuple(problems), ()


def _against_config(
    node: Node, lying: Folder, held: Contents, headers: tuple[Header, ...], exl3: tuple[Linear, ...]
) -> tuple[str, ...]:
    problems: list[str] = []
    if lying.named(QUANTIZED) is not None:
        storage = json_object(node, lying.path / QUANTIZED).get("tensor_storage", {})
        wrong = storage_faults(held, storage)
        problems += [some(wrong)] if wrong else []
    if lying.named(CONFIG) is None:
        return (*problems, f"there is no {CONFIG}")
    block = json_object(node, lying.path / CONFIG).get("quantization_config") or {}
    if exl3 and block.get("quant_method") != "exl3":
        said_to_be = block.get("quant_method") or "no quantization"
        problems.append(f"config.json says {said_to_be}, the pack is EXL3: sparkctl packconfig mends it")
    if "layer_bits" in block:
        said = {int(layer): int(bits) for layer, bits in block["layer_bits"].items()}
        problems += _other_widths(headers, str(lying.path), said, int(block.get("bits", BASE_BITS)))
    return tuple(problems)


def _other_widths(headers: tuple[Header, ...], where: str, said: dict[int, int], base: int) -> list[str]:
    try:
        have = expert_bits(headers, where)
    except Refused as error:
        return [error.what]
    wrong = [
        f"layer {layer} has {bits} bits, config.json says {said.get(layer, base)}"
        for layer, bits in have.items()
        if said.get(layer, base) != bits
    ]
    return [some(wrong)] if wrong else []
