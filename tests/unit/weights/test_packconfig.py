"""The quantization block of a mixed-width pack."""

from typing import Any

import pytest

from cluster.errors import Refused
from cluster.weights.packconfig import Route, block, expert_bits, layer_bits, repaired
from cluster.weights.safetensors import read_header
from tests.packs import linear, shard_bytes


def header(**layers: int):
    """`header(l3e0=2)`: expert 0 of layer 3 has 2 bits; `mtp` and other prefixes as they stand."""
    content: dict[str, Any] = {}
    for key, bits in layers.items():
        layer, _, expert = key.removeprefix("l").partition("e")
        content |= linear(f"layers.{layer}.ffn.experts.{expert}.w1", 32, 32, bits)
    return read_header(shard_bytes(content), "pack")


def test_widths_come_from_the_files():
    bits = expert_bits([header(l0e0=2, l0e1=2, l3e0=3), header(l10e0=2, l9e0=5)], "pack")
    assert bits == {0: 2, 3: 3, 9: 5, 10: 2}
    assert layer_bits(bits) == {"3": 3, "9": 5}


def test_drafts_and_prefixed_names_do_not_count():
    content = {
        **linear("layers.0.ffn.experts.0.w2", 32, 32, 2),
        **linear("mtp.0.layers.0.ffn.experts.0.w2", 32, 32, 4),
        **linear("model.layers.0.ffn.experts.0.w2", 32, 32, 5),
        **linear("layers.0.ffn.shared_experts.w2", 32, 32, 6),
    }
    assert expert_bits([read_header(shard_bytes(content), "pack")], "pack") == {0: 2}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([header(l4e0=2, l4e1=3)], "the experts of layer 4 have different widths, which no layer_bits can say"),
        ([], "no routed expert is EXL3"),
        ([header(l4e0=9)], "has a trellis of 144 words, which is no number of bits"),
    ],
)
def test_what_no_block_can_say_is_refused(found, told):
    with pytest.raises(Refused) as error:
        expert_bits(found, "pack")
    assert told in error.value.what


def test_routes_differ_in_one_key():
    a, b = block({0: 2, 1: 3}, Route.A), block({0: 2, 1: 3}, Route.B)
    assert {key for key in a if a[key] != b[key]} == {"non_routed_dtype_policy"}
    assert a["layer_bits"] == {"1": 3}
    assert a["non_routed_quantization"]["weight_block_size"] == [128, 128]


def test_an_old_block_is_replaced_whole():
    made = repaired({"model_type": "x", "quantization_config": {"quant_method": "fp8", "other": 1}}, {0: 2}, Route.A)
    assert made["quantization_config"] == block({0: 2}, Route.A)
    assert list(made) == ["model_type", "quantization_config"]


@pytest.mark.parametrize(("config", "stays"), [({}, False), ({"hidden_size": 1}, True)])
def test_only_an_empty_text_config_goes(config, stays):
    made = repaired({"text_config": config}, {0: 2}, Route.A)
    assert ("text_config" in made) is stays


def test_a_second_repair_changes_nothing():
    once = repaired({"model_type": "x", "text_config": {}}, {0: 2, 7: 4}, Route.B)
    assert repaired(once, {0: 2, 7: 4}, Route.B) == once
