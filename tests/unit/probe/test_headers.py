"""A model's shape from what the header program says."""

import json

import pytest

from cluster.errors import Unreadable
from cluster.model.memory import ModelShape, TensorGroup
from cluster.model.units import Bytes
from cluster.probe.headers import parse_shape, shape_of


def answer(**changes) -> str:
    said = {"present": True, "files": 2, "groups": [], "problems": [], "config": None}
    return json.dumps(said | changes)


def test_equal_layers_are_told_apart_again():
    groups = [["layers.#.w", 0, 1, 2, 10], ["layers.#.w", 2, 2, 2, 12], ["norm.weight", None, None, 1, 4]]
    assert parse_shape("a", answer(groups=groups)) == ModelShape(
        groups=(
            TensorGroup("layers.#.w", 0, 2, Bytes(10)),
            TensorGroup("layers.#.w", 1, 2, Bytes(10)),
            TensorGroup("layers.#.w", 2, 2, Bytes(12)),
            TensorGroup("norm.weight", None, 1, Bytes(4)),
        ),
        files=2,
    )


def test_a_folder_that_is_not_there_has_no_shape():
    assert parse_shape("a", answer(present=False)) is None


def test_a_model_of_several_parts_keeps_its_numbers_one_level_down():
    config = {
        "model_type": "deepseek_v41",
        "text_config": {"num_hidden_layers": 40, "num_attention_heads": 64, "hidden_size": 5120, "model_type": "text"},
    }
    shape = shape_of((), config)
    assert (shape.kind, shape.layers, shape.heads, shape.head_size) == ("deepseek_v41", 40, 64, 80)


def test_a_latent_cache_counts_its_rotary_part():
    assert shape_of((), {"kv_lora_rank": 512, "qk_rope_head_dim": 64}).latent == 576


def test_an_answer_that_is_none_names_the_node():
    with pytest.raises(Unreadable) as caught:
        parse_shape("spark-a", "{}")
    assert caught.value.where == "spark-a"
