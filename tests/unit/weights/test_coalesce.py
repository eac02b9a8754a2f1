"""Which slices are joined along which dimension, and what is refused."""

import pytest

from cluster.errors import Refused
from cluster.weights.assembly import Copy, Same, Weave
from cluster.weights.coalesce import (
    coalesced,
    joined_config,
    joined_index,
    joined_quantization,
    manifest,
    manifest_files,
    ranks_of,
    sliced,
)
from cluster.weights.safetensors import Header, read_header
from tests.packs import linear, shard_bytes, tensors

E = "layers.0.ffn.experts.0"
CONFIG = {"hybrid_tr3_tail": {"format": "exl3-trellis", "tp": 2, "bits": 3.0}}


def rank(number: int, proj: str = "w1", bits: int = 1) -> Header:
    return read_header(shard_bytes(linear(f"{E}.{proj}.rank{number}", 32, 32, bits)), "s")


def files(proj: str = "w1", ranks: int = 2) -> dict[str, Header]:
    return {f"experts-tp{ranks}-rank{number}.safetensors": rank(number, proj) for number in range(ranks)}


def family(proj: str):
    return sliced(files(proj).items(), 2, "here").families[0]


def test_columns_are_woven_and_their_scales_appended():
    order = coalesced(family("w1"), ["/a", "/b"], "here")
    assert {one.name: one.shape for one in read_header(order.header, "s").tensors} == {
        f"{E}.w1.rank0.trellis": (2, 4, 16),
        f"{E}.w1.rank0.suh": (32,),
        f"{E}.w1.rank0.svh": (64,),
        f"{E}.w1.rank0.mul1": (),
    }
    assert [type(one) for one in order.pieces] == [Weave, Same, Copy, Copy, Same]
    weave = order.pieces[0]
    assert isinstance(weave, Weave)
    assert (weave.run, weave.rows, weave.length) == (64, 2, 256)
    assert order.name == "experts-tp1-rank0.safetensors"


def test_rows_are_appended():
    order = coalesced(family("w2"), ["/a", "/b"], "here")
    assert {one.name: one.shape for one in read_header(order.header, "s").tensors} == {
        f"{E}.w2.rank0.trellis": (4, 2, 16),
        f"{E}.w2.rank0.suh": (64,),
        f"{E}.w2.rank0.svh": (32,),
        f"{E}.w2.rank0.mul1": (),
    }
    assert [type(one) for one in order.pieces] == [Copy, Copy, Copy, Copy, Same, Same]


def test_files_of_no_rank_are_carried():
    other = read_header(shard_bytes(tensors(embed__weight=("F16", 4))), "s")
    found = sliced({**files(), "model-1.safetensors": other}.items(), 2, "here")
    assert found.carried == (("model-1.safetensors", other),)


WRONG: dict[str, tuple[dict[str, Header | None], str]] = {
    "rank missing": ({"experts-tp2-rank1.safetensors": None}, "experts has not exactly the ranks 0 to 1"),
    "rank too many": ({"experts-tp2-rank2.safetensors": rank(2)}, "experts has not exactly the ranks 0 to 1"),
    "other number of ranks": (
        {"other-tp4-rank0.safetensors": rank(0)},
        "other-tp4-rank0.safetensors is of 4 ranks, config.json says 2",
    ),
    "misnamed": ({"experts-tp2-rank1.safetensors": rank(0)}, "experts-tp2-rank1.safetensors holds a tensor of rank 0"),
    "ranked key in a file of no rank": (
        {"model-1.safetensors": rank(1)},
        "model-1.safetensors holds a tensor of rank 1",
    ),
    "plain key in a ranked file": (
        {"experts-tp2-rank1.safetensors": read_header(shard_bytes(tensors(a=("F16", 1))), "s")},
        "experts-tp2-rank1.safetensors holds a tensor of no rank",
    ),
    "nothing sliced": (dict.fromkeys(files(), None), "no file is sliced"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_pack_that_is_not_sliced_as_it_says_is_refused(wrong):
    changes, told = WRONG[wrong]
    found = {name: header for name, header in {**files(), **changes}.items() if header}
    with pytest.raises(Refused) as error:
        sliced(found.items(), 2, "here")
    assert error.value.what == told


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (rank(1, bits=2), f"{E}.w1.rank0.trellis differs in type or shape between rank 0 and rank 1"),
        (rank(1, "w3"), "experts-tp2-rank1.safetensors does not hold the same tensors as rank 0"),
    ],
)
def test_slices_that_do_not_belong_together_are_refused(second, told):
    found = {**files(), "experts-tp2-rank1.safetensors": second}
    with pytest.raises(Refused) as error:
        coalesced(sliced(found.items(), 2, "here").families[0], ["/a", "/b"], "here")
    assert error.value.what == told


@pytest.mark.parametrize(
    "config", [{}, {"hybrid_tr3_tail": {"format": "exl3-trellis", "tp": 1}}, {"hybrid_tr3_tail": {"tp": 4}}]
)
def test_a_config_must_say_how_many_ranks(config):
    with pytest.raises(Refused, match=r"config\.json does not say that the pack is sliced"):
        ranks_of(config, "here")


def test_the_new_texts_say_one_rank_and_where_it_came_from():
    assert ranks_of(CONFIG, "here") == 2
    config = joined_config({**CONFIG, "hidden_size": 4}, 2)
    tail = {
        "format": "exl3-trellis",
        "tp": 1,
        "bits": 3.0,
        "source_tp": 2,
        "source_operation": "lossless_tp_rank_coalesce",
    }
    assert config == {"hybrid_tr3_tail": tail, "hidden_size": 4}
    assert joined_quantization({"bits": 3}, config) == {
        "bits": 3,
        "rank_sliced": tail,
        "source_operation": "lossless_tp_rank_coalesce",
    }
    index = joined_index({f"{E}.w1.rank1.suh": "old", "embed": "m"}, {"x": (f"{E}.w1.rank0.suh",)}, 9)
    assert index == {"metadata": {"total_size": 9}, "weight_map": {"embed": "m", f"{E}.w1.rank0.suh": "x"}}


def test_a_manifest_without_digests_proves_nothing():
    good = manifest("/s", 2, 3, 9, {"a": (9, "ab")})
    assert manifest_files(good, "here") == {"a": (9, "ab")}
    with pytest.raises(Refused, match="holds no digests"):
        manifest_files(manifest("/s", 2, 3, 9, {"a": (9, "")}), "here")
    with pytest.raises(Refused, match="is no manifest of a joined pack"):
        manifest_files({"format": "other"}, "here")
