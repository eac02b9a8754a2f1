"""Bits, codebooks and faults, from headers alone."""

import pytest

from cluster.model.packs import Component, LayerWidths, Width
from cluster.weights.inspect import (
    average,
    by_layer,
    codebook,
    components,
    contents,
    index_faults,
    linears,
    map_differences,
    marker_faults,
    storage_faults,
    widths,
)
from cluster.weights.safetensors import Header, read_header
from tests.packs import linear, shard_bytes, tensors


def headers(**shards) -> list[tuple[str, Header]]:
    return [(f"{name}.safetensors", read_header(shard_bytes(content), name)) for name, content in shards.items()]


def held(**content):
    return contents(headers(model=content))


def pack():
    return {
        **linear("layers.0.ffn.experts.0.w1", 64, 32, 2),
        **linear("layers.0.ffn.experts.1.w1", 64, 32, 3),
        **linear("layers.1.ffn.experts.0.w1", 64, 32, 2),
        **linear("layers.2.ffn.experts.0.w1", 64, 32, 2),
        **linear("layers.0.attn.wq_a", 32, 32, 6, "mcg"),
        **linear("head", 32, 64, 6),
        **tensors(embed__weight=("BF16", 64, 32), layers__1__engram__embed__weight=("F8_E4M3", 100, 8)),
    }


def test_the_trellis_tells_the_bits():
    found, wrong = linears(held(**pack()))
    assert wrong == ()
    assert widths(found) == (Width(2, 3, 1536), Width(3, 1, 768), Width(6, 2, 2304))
    assert average(found) == pytest.approx((3 * 2 * 2048 + 3 * 2048 + 6 * 1024 + 6 * 2048) / (5 * 2048 + 1024))


def test_layers_that_are_alike_are_told_once():
    found, _ = linears(held(**pack()))
    assert by_layer(found) == (
        LayerWidths(0, 0, "attention", (Width(6, 1, 768),)),
        LayerWidths(None, None, "output head", (Width(6, 1, 1536),)),
        LayerWidths(0, 0, "routed experts", (Width(2, 1, 512), Width(3, 1, 768))),
        LayerWidths(1, 2, "routed experts", (Width(2, 1, 512),)),
    )


def test_several_codebooks_are_counted():
    found, _ = linears(held(**pack()))
    assert codebook(found) == "mul1 5, mcg 1"
    assert codebook(found[:1]) == "mul1"


def test_a_layer_without_a_marker_has_the_first_codebook():
    content = {name: one for name, one in linear("a", 32, 32, 4).items() if not name.endswith("mul1")}
    assert codebook(linears(held(**content))[0]) == "3inst"


def test_tables_read_by_rows_are_on_disk_only():
    told = {one.name: one for one in components(held(**pack()))}
    assert told["engram tables"] == Component("engram tables", 800, 0)
    assert told["embedding"] == Component("embedding", 4096, 4096)


def without(suffix: str):
    return {name: one for name, one in linear("a.w", 64, 32, 3).items() if not name.endswith(suffix)}


def broken(**changes):
    return {**linear("a.w", 64, 32, 3), **{f"a.w.{name}": one for name, one in changes.items()}}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (without("suh"), "a.w: no suh"),
        (without("svh"), "a.w: no svh"),
        (broken(suh=("F16", (32,), bytes(64))), "a.w: suh has the shape [32], its trellis wants [64]"),
        (broken(mcg=("I32", (), bytes(4))), "a.w: has the markers of two codebooks"),
        (
            broken(trellis=("I16", (4, 2, 40), bytes(640))),
            "a.w: its trellis is I16 [4, 2, 40], which is no number of bits per weight",
        ),
        (
            broken(trellis=("F16", (4, 2, 48), bytes(768))),
            "a.w: its trellis is F16 [4, 2, 48], which is no number of bits per weight",
        ),
        (
            broken(trellis=("I16", (4, 2, 144), bytes(2304))),
            "a.w: its trellis is I16 [4, 2, 144], which is no number of bits per weight",
        ),
    ],
)
def test_a_layer_that_is_not_whole_is_named(content, told):
    assert linears(held(**content)) == ((), (told,))


def test_older_files_keep_signs_in_bits():
    content = without("suh") | {"a.w.su": ("I16", (4,), bytes(8))}
    assert linears(held(**content))[1] == ()


def test_a_damaged_marker_is_named():
    good, bad = f"mul1:{0x83DCD12D}", "mcg:0"
    assert marker_faults({good: ("a.mul1",), bad: ("b.mcg", "c.mcg", "d.mcg", "e.mcg")}) == (
        "b.mcg, c.mcg, d.mcg and 1 more: the marker mcg holds 0x0, not 0xcbac1fed",
    )


def test_an_index_and_the_files_are_held_against_each_other():
    found = contents(
        headers(
            **{
                "model-1": tensors(a=("U8", 1), b=("U8", 1)),
                "model-2": {**tensors(c=("U8", 1)), "__align_pad__.model-2.0": ("U8", (1,), b"\0")},
                "requant_1": tensors(d=("U8", 1)),
            }
        )
    )
    index = {"a": "model-1.safetensors", "c": "model-1.safetensors", "gone": "model-2.safetensors"}
    assert index_faults(found, index) == (("c", "gone"), ("b",))


def test_a_tensor_in_two_files_is_named():
    found = contents(headers(x=tensors(a=("U8", 1)), y=tensors(a=("U8", 1))))
    assert found.twice == ("a (x.safetensors, y.safetensors)",)


def test_the_library_s_own_list_of_tensors_is_a_check():
    storage = {
        "a.w": {"stored_tensors": {"a.w.suh": {"shape": [64]}, "a.w.svh": {"shape": [64]}, "a.w.bias": {"shape": [1]}}}
    }
    assert storage_faults(held(**broken()), storage) == (
        "a.w.svh has the shape [32], quantization_config.json says [64]",
        "a.w.bias is missing",
    )


def test_a_map_of_widths_is_only_a_check():
    found, _ = linears(held(**pack()))
    k_map = {"codebook": "mul1", "routed": {"0": 2, "1": 2, "2": 3}, "attn_default": 5}
    assert map_differences(found, k_map) == (
        "layer 0, routed experts: 2 and 3 bits, the map says 2",
        "layer 2, routed experts: 2 bits, the map says 3",
        "attention: 6 bits, the map says 5",
        "codebook mcg, the map says mul1",
    )
