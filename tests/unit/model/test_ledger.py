"""The memory ledger: what is kept, what the next boot may use, what is refused."""

from dataclasses import replace

import pytest

from cluster.errors import Unreadable
from cluster.model.ledger import KEPT, Ledger, Measured, Shape, from_json, to_json

SHAPE = Shape(10**11, 2, 1, 600000, 2, 1536, 2684354560, "0.88", "dspark", False)
ENTRY = Measured("b1", "big", "spark-a", 0, SHAPE, 110, before=120, lowest=5, serving=6, loaded=100, tokens=774400)


def test_it_comes_back_as_it_was_written():
    ledger = Ledger((ENTRY, replace(ENTRY, boot="b2", node="spark-b", loaded=None)))
    assert from_json(to_json(ledger).decode(), "here") == ledger


def test_a_boot_took_what_went_from_before_to_the_lowest():
    assert (ENTRY.taken, replace(ENTRY, lowest=130).taken) == (115, 0)


def test_the_newest_boot_of_the_same_shape_on_the_same_node_counts():
    newer = replace(ENTRY, boot="b2")
    others = (replace(ENTRY, boot="b3", node="spark-b"), replace(ENTRY, boot="b4", recipe="small"))
    longer = replace(ENTRY, boot="b5", shape=replace(SHAPE, max_model_len=100))
    ledger = Ledger().add((ENTRY,)).add((newer, *others, longer))
    assert ledger.last("big", "spark-a", SHAPE) == newer
    assert ledger.last("big", "spark-c", SHAPE) is None


def test_a_boot_is_entered_once_and_old_ones_go():
    ledger = Ledger()
    for number in range(KEPT + 5):
        ledger = ledger.add((replace(ENTRY, boot=f"b{number}"),))
    again = ledger.add((replace(ENTRY, boot=f"b{KEPT + 4}", lowest=1),))
    assert (len(again.entries), again.entries[0].boot, again.entries[-1].lowest) == (KEPT, "b5", 1)


@pytest.mark.parametrize(
    "text", ["", "{", '{"version": 2, "entries": []}', '{"version": 1}', '{"version": 1, "entries": [{}]}']
)
def test_what_is_no_ledger_is_refused_with_its_place(text):
    with pytest.raises(Unreadable) as caught:
        from_json(text, "spark-a:ledger.json")
    assert caught.value.where == "spark-a:ledger.json"
