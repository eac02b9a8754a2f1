"""The quantization block that a mixed-width EXL3 pack must have in its config.json, read off the files' shapes.

A server takes the method from this block before it looks at its own options: a block left from the source model makes
it load something else, and a missing width makes it fail at the first layer that has another.
"""

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from cluster.errors import Refused
from cluster.weights.safetensors import Header

BASE_BITS = 2
MOST_BITS = 8
_EXPERT = re.compile(r"layers\.(\d+)\.ffn\.experts\.\d+\.w[123]\.trellis")


class Route(StrEnum):
    """How the weights that are not experts are served: as bf16 by a stock server, or as fp8 by a patched loader."""

    A = "a"
    B = "b"


_POLICY = {Route.A: "bf16_as_stored", Route.B: "official_source_native"}


def expert_bits(headers: Iterable[Header], where: str) -> dict[int, int]:
    """Bits per weight of the routed experts of each layer; those of the drafting part are not served as EXL3."""
    found: dict[int, dict[int, str]] = {}
    for header in headers:
        for one in header.tensors:
            match = _EXPERT.fullmatch(one.name)
            if match:
                bits, rest = divmod(one.shape[-1], 16)
                if rest or not 0 < bits <= MOST_BITS:
                    raise Refused(
                        f"{one.name} has a trellis of {one.shape[-1]} words, which is no number of bits",
                        where=where,
                        fix="sparkctl inspect shows what else is wrong with the pack",
                    )
                found.setdefault(int(match[1]), {}).setdefault(bits, one.name)
    for layer, names in found.items():
        if len(names) > 1:
            raise Refused(
                f"the experts of layer {layer} have different widths, which no layer_bits can say",
                where=where,
                evidence=[f"{bits} bits: {name}" for bits, name in sorted(names.items())],
                fix="this pack is for a loader that goes by tensor: serve it natively",
            )
    if not found:
        raise Refused(
            "no routed expert is EXL3",
            where=where,
            evidence=("looked for layers.N.ffn.experts.N.w1|w2|w3.trellis",),
            fix="sparkctl inspect shows what the pack holds",
        )
    return {layer: next(iter(found[layer])) for layer in sorted(found)}


def layer_bits(bits: Mapping[int, int]) -> dict[str, int]:
    """Only the layers that are not of the base width."""
    return {str(layer): width for layer, width in sorted(bits.items()) if width != BASE_BITS}


def block(bits: Mapping[int, int], route: Route) -> dict[str, Any]:
    """The whole of `quantization_config`. The draft's experts are as in the source: both routes need the fp8 part."""
    return {
        "quant_method": "exl3",
        "bits": BASE_BITS,
        "codebook": "mcg",
        "head_bits": 16,
        "non_routed_dtype_policy": _POLICY[route],
        "scope": "dsv4_routed_experts_only",
        "serving_reader_qualified": False,
        "version": "0.0.43",
        "layer_bits": layer_bits(bits),
        "mtp_experts": "source",
        "mtp_experts_start_layer": 43,
        "non_routed_quantization": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "scale_fmt": "ue8m0",
            "weight_block_size": [128, 128],
        },
    }


def repaired(config: Mapping[str, Any], bits: Mapping[int, int], route: Route) -> dict[str, Any]:
    """The config with the block in place. An empty text_config goes: the server would take it for the model's."""
    made = {key: value for key, value in config.items() if not (key == "text_config" and value == {})}
    made["quantization_config"] = block(bits, route)
    return made


def as_text(config: Mapping[str, Any]) -> str:
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"
