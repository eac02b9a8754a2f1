"""Which bytes land on which rank: the published checkpoints' figures, and rules for any model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.model.memory import GIB, ModelShape, TensorGroup
from cluster.model.units import Bytes
from cluster.weights.budget import Loading, Split, budget, classify, copied, parts
from tests.checkpoints import flash_2x, llama, one_spark_pack


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("embed.weight", ("embedding", Split.SHARDED)),
        ("head.trellis", ("output head", Split.SHARDED)),
        ("vision.blocks.0.attn.qkv.weight", ("vision", Split.WHOLE)),
        ("aligner.weight", ("vision", Split.WHOLE)),
        ("mtp.0.ffn.experts.3.w1.trellis", ("draft experts", Split.SHARDED)),
        ("mtp.0.ffn.shared_experts.w1.trellis", ("draft shared", Split.SHARDED)),
        ("mtp.0.attn.wq_b.trellis", ("draft attention", Split.SHARDED)),
        ("mtp.0.attn.wo_b.trellis", ("draft attention", Split.WHOLE)),
        ("mtp.0.main_proj.trellis", ("draft other", Split.WHOLE)),
        ("layers.3.ffn.experts.17.w2.suh", ("routed experts", Split.SHARDED)),
        ("layers.3.ffn.shared_experts.w2.suh", ("shared experts", Split.SHARDED)),
        ("layers.3.ffn.gate.bias", ("router", Split.WHOLE)),
        ("layers.3.attn.wq_a.trellis", ("attention", Split.WHOLE)),
        ("layers.3.attn.wkv.trellis", ("attention", Split.WHOLE)),
        ("layers.3.attn.indexer.wq_b.trellis", ("attention", Split.WHOLE)),
        ("layers.3.attn.compressor.wgate.trellis", ("attention", Split.WHOLE)),
        ("layers.3.attn.wo_a.slice.2.trellis", ("attention", Split.SHARDED)),
        ("layers.1.engram.wkv.trellis", ("engram projection", Split.WHOLE)),
        ("layers.1.engram.embed.weight", ("engram tables", Split.ON_DISK)),
        ("layers.3.hc_attn_fn", ("layers, other", Split.WHOLE)),
        ("norm.weight", ("other", Split.WHOLE)),
        ("__align_pad__.model-00001.0", ("padding", Split.ON_DISK)),
        ("model.layers.0.self_attn.q_proj.weight", ("attention", Split.SHARDED)),
        ("model.layers.0.self_attn.k_proj.weight", ("attention", Split.BY_HEAD)),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", ("attention", Split.WHOLE)),
        ("model.layers.0.mlp.gate_proj.weight", ("dense", Split.SHARDED)),
        ("model.layers.0.mlp.gate.weight", ("router", Split.WHOLE)),
        ("model.layers.0.mlp.experts.5.down_proj.weight", ("routed experts", Split.SHARDED)),
        ("model.layers.0.input_layernorm.weight", ("layers, other", Split.WHOLE)),
        ("model.language_model.layers.0.mlp.up_proj.weight", ("dense", Split.SHARDED)),
    ],
)
def test_a_tensor_is_known_by_its_name(name, expected):
    assert classify(name) == expected


def test_a_rank_of_the_two_spark_checkpoint_takes_99_and_a_half_gib():
    two = budget(flash_2x(), Loading(tensor_parallel=2))
    assert [abs(rank / GIB - 99.5) < 1 for rank in two.ranks] == [True, True]
    assert 196 <= two.total / GIB <= 197


def test_without_drafting_each_rank_wins_three_and_a_half_gib():
    with_it, without = (budget(flash_2x(), Loading(2, drafting=drafting)).ranks[0] for drafting in (True, False))
    assert 3.0 < (with_it - without) / GIB < 4.0


def test_the_one_spark_pack_has_its_published_parts():
    found = {name: round(size / GIB, 2) for name, size in parts(one_spark_pack().groups).items()}
    assert found == {"text": 111.16, "mtp": 7.39, "engram": 189.13}


@pytest.mark.parametrize(("pattern", "resident"), [(r"^(?!mtp\.)", 111.16), ("", 0.0), (".*", 118.55)])
def test_a_copy_pattern_says_what_is_resident(pattern, resident):
    assert round(copied(one_spark_pack().groups, pattern) / GIB, 2) == resident


def test_engram_tables_are_never_resident():
    whole = budget(one_spark_pack(), Loading())
    tables = next(bucket for bucket in whole.buckets if bucket.name == "engram tables")
    assert (tables.total > 188 * GIB, tables.ranks) == (True, (0,))


def test_kv_heads_are_copied_when_there_are_more_ranks_than_heads():
    one, two = (llama(kv_heads=heads) for heads in (1, 4))
    spared = [budget(shape, Loading(1)).ranks[0] - budget(shape, Loading(2)).ranks[0] for shape in (one, two)]
    projections = 4 * 2 * 256 * 64 * 2
    assert spared[1] - spared[0] == 4 * projections // 2


def test_a_pipeline_splits_by_layers_with_the_rest_before_the_last_stage():
    shape = llama(layers=5)
    first, second = budget(shape, Loading(pipeline_parallel=2)).ranks
    layer = sum(one.size for one in shape.groups if one.layer == 0)
    ends = sum(one.size for one in shape.groups if one.name in ("lm_head.weight", "model.norm.weight"))
    embedding = 512 * 256 * 2
    assert (first, second) == (3 * layer + embedding, 2 * layer + ends)


_NAMES = st.sampled_from(
    ["layers.#.ffn.experts.*.w1.weight", "layers.#.attn.wq_b.weight", "layers.#.attn.wq_a.weight", "embed.weight",
     "model.layers.#.self_attn.k_proj.weight", "norm.weight", "mtp.#.main_proj.weight", "vision.weight"]
)  # fmt: skip
_GROUPS = st.lists(
    st.builds(lambda name, layer, size: TensorGroup(name, layer if "#" in name else None, 1, Bytes(size)),
              _NAMES, st.integers(0, 7), st.integers(0, 2**40)),
    max_size=20,
)  # fmt: skip


@given(_GROUPS, st.integers(1, 8), st.integers(0, 16))
def test_more_ranks_never_take_more_each_and_hold_everything_together(groups, ranks, kv_heads):
    shape = ModelShape(tuple(groups), layers=8, kv_heads=kv_heads)
    few, many = (budget(shape, Loading(count)) for count in (ranks, ranks + 1))
    assert max(many.ranks) <= max(few.ranks)
    assert sum(few.ranks) >= shape.size
