"""What a pack holds, from its headers alone: bits per weight, codebooks, bytes by part, and what a loader trips over.

An EXL3 linear layer is `.trellis` [in/16, out/16, 16 K], `.suh` [in] and `.svh` [out], and a marker for its codebook.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.model.packs import Component, LayerWidths, Width
from cluster.weights.budget import Split, classify
from cluster.weights.relay import is_overlay, is_pad
from cluster.weights.safetensors import Header, Tensor

MARKERS = {"mcg": 0xCBAC1FED, "mul1": 0x83DCD12D}
PLAIN = "3inst"  # the codebook of layers without a marker
MOST_BITS = 8
SHOWN = 3
_LAYER = re.compile(r"(?:^|\.)(?:layers|mtp|blocks|h)\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Linear:
    """One EXL3 layer; `weights` counts what it stands for, `size` is its trellis in bytes."""

    module: str
    bits: int
    codebook: str
    weights: int
    size: int


@dataclass(frozen=True, slots=True)
class Contents:
    """Every tensor of a pack with the file that holds it; of two with one name the last."""

    tensors: Mapping[str, Tensor]
    files: Mapping[str, str]
    twice: tuple[str, ...]

    def named(self, module: str, *suffixes: str) -> Tensor | None:
        return next((self.tensors[name] for one in suffixes if (name := f"{module}.{one}") in self.tensors), None)


def contents(headers: Iterable[tuple[str, Header]]) -> Contents:
    tensors: dict[str, Tensor] = {}
    files: dict[str, str] = {}
    twice = []
    for file, header in headers:
        for one in header.tensors:
            if one.name in tensors and not is_pad(one.name):
                twice.append(f"{one.name} ({files[one.name]}, {file})")
            tensors[one.name], files[one.name] = one, file
    return Contents(tensors, files, tuple(twice))


def linears(held: Contents) -> tuple[tuple[Linear, ...], tuple[str, ...]]:
    """All EXL3 layers, and a sentence for each that is none although it has a trellis."""
    good: list[Linear] = []
    wrong: list[str] = []
    for name, trellis in held.tensors.items():
        if name.endswith(".trellis"):
            module = name.removesuffix(".trellis")
            faults = tuple(_faults(module, trellis, held))
            wrong += faults
            if not faults:
                rows, columns, last = trellis.shape
                book = next((one for one in MARKERS if f"{module}.{one}" in held.tensors), PLAIN)
                good.append(Linear(module, last // 16, book, rows * columns * 256, trellis.end - trellis.start))
    return tuple(good), tuple(wrong)


def _faults(module: str, trellis: Tensor, held: Contents) -> Iterator[str]:
    shape = list(trellis.shape)
    if trellis.dtype != "I16" or len(shape) != 3 or shape[2] % 16 or not 0 < shape[2] <= 16 * MOST_BITS:
        yield f"{module}: its trellis is {trellis.dtype} {shape}, which is no number of bits per weight"
        return
    for short, old, length in (("suh", "su", shape[0] * 16), ("svh", "sv", shape[1] * 16)):
        found = held.named(module, short, old)
        want = [length] if found is None or found.name.endswith(short) else [length // 16]
        if found is None:
            yield f"{module}: no {short}"
        elif list(found.shape) != want:
            yield f"{module}: {short} has the shape {list(found.shape)}, its trellis wants {want}"
    if all(f"{module}.{one}" in held.tensors for one in MARKERS):
        yield f"{module}: has the markers of two codebooks"


def average(found: Sequence[Linear]) -> float:
    weights = sum(one.weights for one in found)
    return sum(one.bits * one.weights for one in found) / weights if weights else 0.0


def widths(found: Iterable[Linear]) -> tuple[Width, ...]:
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for one in found:
        counts[one.bits] += 1
        sizes[one.bits] += one.size
    return tuple(Width(bits, counts[bits], sizes[bits]) for bits in sorted(counts))


def layer_of(name: str) -> int | None:
    found = _LAYER.search(name)
    return int(found[1]) if found else None


def by_layer(found: Iterable[Linear]) -> tuple[LayerWidths, ...]:
    """The widths of each kind in each layer; neighbouring layers that are alike are told once."""
    groups: dict[tuple[str, int | None], list[Linear]] = {}
    for one in found:
        groups.setdefault((classify(one.module + ".trellis")[0], layer_of(one.module)), []).append(one)
    told: list[LayerWidths] = []
    for (kind, layer), members in sorted(groups.items(), key=lambda one: (one[0][0], one[0][1] or 0)):
        made = widths(members)
        last = told[-1] if told else None
        if last and layer is not None and (last.kind, last.last, last.widths) == (kind, layer - 1, made):
            told[-1] = LayerWidths(last.first, layer, kind, made)
        else:
            told.append(LayerWidths(layer, layer, kind, made))
    return tuple(told)


def components(held: Contents) -> tuple[Component, ...]:
    """Bytes of each part in the files, and resident on one box: tables read by rows stay on the disk."""
    disk: Counter[str] = Counter()
    resident: Counter[str] = Counter()
    for name, one in held.tensors.items():
        part, split = classify(name)
        disk[part] += one.end - one.start
        resident[part] += 0 if split is Split.ON_DISK else one.end - one.start
    return tuple(Component(part, size, resident[part]) for part, size in disk.most_common())


def marker_faults(values: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """`values` is "NAME:VALUE" -> tensors. Kernels never look at a marker's value, but a wrong one was damaged."""
    told = []
    for key, names in sorted(values.items()):
        book, _, value = key.partition(":")
        if int(value) != MARKERS.get(book):
            told.append(f"{some(names)}: the marker {book} holds {int(value):#x}, not {MARKERS[book]:#x}")
    return tuple(told)


def index_faults(held: Contents, weight_map: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the index names and no file holds, and what files hold and it does not name, pads and overlays apart."""
    missing = [name for name, file in weight_map.items() if held.files.get(name) != file]
    surplus = [
        name
        for name, file in held.files.items()
        if name not in weight_map and not is_pad(name) and not is_overlay(file)
    ]
    return tuple(missing), tuple(surplus)


def storage_faults(held: Contents, storage: Mapping[str, Any]) -> tuple[str, ...]:
    """Tensors of `tensor_storage` in quantization_config.json that are not there, or have another shape."""
    wrong = []
    for module in storage.values():
        for name, told in module.get("stored_tensors", {}).items():
            found = held.tensors.get(name)
            if found is None:
                wrong.append(f"{name} is missing")
            elif list(found.shape) != list(told.get("shape", found.shape)):
                wrong.append(f"{name} has the shape {list(found.shape)}, quantization_config.json says {told['shape']}")
    return tuple(wrong)


def map_differences(found: Sequence[Linear], k_map: Mapping[str, Any]) -> tuple[str, ...]:
    """Where a K map says other widths than the files have. The files are right: it is only what somebody planned."""
    told = []
    for key, kind in (("routed", "routed experts"), ("shared", "shared experts"), ("engram", "engram projection")):
        for layer, bits in k_map.get(key, {}).items():
            have = {
                one.bits
                for one in found
                if layer_of(one.module) == int(layer) and classify(one.module + ".trellis")[0] == kind
            }
            if have and have != {bits}:
                told.append(f"layer {layer}, {kind}: {_set(have)} bits, the map says {bits}")
    for key, kind in (("mtp_bits", "draft"), ("attn_default", "attention")):
        have = {one.bits for one in found if classify(one.module + ".trellis")[0].startswith(kind)}
        if key in k_map and have and have != {k_map[key]}:
            told.append(f"{kind}: {_set(have)} bits, the map says {k_map[key]}")
    if "codebook" in k_map and (other := {one.codebook for one in found} - {k_map["codebook"]}):
        told.append(f"codebook {', '.join(sorted(other))}, the map says {k_map['codebook']}")
    return tuple(told)


def codebook(found: Sequence[Linear]) -> str:
    """The one, or all of them with their counts: a server's plugin takes one, the library goes layer by layer."""
    counts = Counter(one.codebook for one in found)
    if len(counts) > 1:
        return ", ".join(f"{name} {count}" for name, count in counts.most_common())
    return next(iter(counts), "")


def some(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _set(bits: Iterable[int]) -> str:
    return " and ".join(map(str, sorted(bits)))
