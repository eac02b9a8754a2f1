"""Which experts a draft keeps, and what becomes of their names and of the gate's rows."""

import pytest

from cluster.errors import Refused, SettingsError
from cluster.weights.assembly import Copy
from cluster.weights.draft import chosen, draft, draft_config, draft_index, draft_plan, must_be
from cluster.weights.safetensors import read_header
from tests.packs import shard_bytes, tensors

PLAN = {
    "keep_maps": {
        "mtp_keep": [3, 5, 8, 13, 21, 34, 55, 89, 90, 91],
        "mtp_keep_from_layer": 42,
        "structured_ranked_by_category": {
            "agentic_tool_trajectory": {"42": [89, 4, 3]},
            "tool_calling": {"42": [89, 34, 5]},
        },
        "mtp_ranked": [91, 8, 90, 13, 3, 55],
    }
}


def test_structured_answers_come_first_then_the_ranking():
    assert chosen(PLAN, 5, 2, "plan") == (2, 5, 7, 8, 9)  # 8, 34, 89, 90, 91; 4 is not in the pack
    assert chosen(PLAN, 3, 3, "plan") == (0, 5, 7)
    assert chosen(PLAN, 4, 0, "plan") == (2, 3, 8, 9)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({}, "the plan says nothing of 'keep_maps'"),
        ({"keep_maps": {"mtp_keep": [1]}}, "the plan says nothing of 'mtp_keep_from_layer'"),
        (PLAN, "the plan ranks 9 experts of the pack, 10 are wanted"),
    ],
)
def test_a_plan_that_does_not_say_enough_is_refused(plan, told):
    with pytest.raises(Refused) as error:
        chosen(plan, 10, 3, "plan")
    assert error.value.what == told


@pytest.mark.parametrize(("experts", "groups"), [(7, 1), (216, 1), (300, 1), (10, 4)])
def test_a_draft_is_smaller_than_its_model_and_divides_into_groups(experts, groups):
    with pytest.raises(SettingsError):
        must_be(experts, {"n_routed_experts": 216, "n_group": groups}, "here")


def test_a_pack_must_say_how_many_experts_it_has():
    with pytest.raises(Refused, match=r"config\.json does not say how many experts there are"):
        must_be(64, {}, "here")


def pack(experts: int = 4, gate: bool = True):
    content = tensors(embed__weight=("F16", 2), mtp__0__norm__weight=("F16", 3))
    for number in range(experts):
        content |= tensors(**{f"mtp__0__ffn__experts__{number}__w1__rank0__suh": ("F16", 2)})
    if gate:
        content |= tensors(mtp__0__ffn__gate__weight=("F16", experts, 3), mtp__0__ffn__gate__bias=("F32", experts))
    return read_header(shard_bytes(content), "s")


def test_experts_are_renumbered_and_the_gate_gathered():
    header = pack()
    order = draft([("/p", header)], (1, 3), 4, "here")
    assert [(one.name, one.shape) for one in read_header(order.header, "s").tensors] == [
        ("mtp.0.norm.weight", (3,)),
        ("mtp.0.ffn.experts.0.w1.rank0.suh", (2,)),
        ("mtp.0.ffn.experts.1.w1.rank0.suh", (2,)),
        ("mtp.0.ffn.gate.weight", (2, 3)),
        ("mtp.0.ffn.gate.bias", (2,)),
    ]
    gate, data = header.tensor("mtp.0.ffn.gate.weight"), len(order.header)
    assert gate is not None
    rows = [one for one in order.pieces if isinstance(one, Copy) and one.at >= data + 14]
    assert rows[:2] == [Copy(0, gate.start + 6, data + 14, 6), Copy(0, gate.start + 18, data + 20, 6)]


@pytest.mark.parametrize(
    ("header", "experts", "told"),
    [
        (pack(gate=False), 4, "stage 0 of the drafting part is not whole"),
        (pack(3), 3, "stage 0 of the drafting part is not whole"),
        (pack(), 8, "mtp.0.ffn.gate.weight has the shape [4, 3], config.json says 8 experts"),
        (read_header(shard_bytes(tensors(a=("F16", 1))), "s"), 4, "the pack has no drafting part"),
    ],
)
def test_a_drafting_part_that_is_not_whole_is_refused(header, experts, told):
    with pytest.raises(Refused) as error:
        draft([("/p", header)], (1, 3), experts, "here")
    assert error.value.what == told


def test_the_draft_s_own_texts():
    assert draft_config({"n_routed_experts": 4, "a": 1}, 2) == {"n_routed_experts": 2, "a": 1}
    assert draft_index(["b", "a"], 7)["weight_map"] == {
        "a": "dspark-draft.safetensors",
        "b": "dspark-draft.safetensors",
    }
    assert draft_plan("/p", (1, 3), 32, 9, "ab")["file"] == {
        "name": "dspark-draft.safetensors",
        "bytes": 9,
        "sha256": "ab",
    }
