"""A receipt comes back as it was written, and is never guessed at."""

import pytest

from cluster.errors import Unreadable
from cluster.model.events import StageTime
from cluster.model.receipt import RankReceipt, Receipt, from_json, to_json

RANK = RankReceipt(
    rank=1,
    node="spark-b",
    control="op@spark-b",
    state_dir="~/s",
    argv=("vllm", "serve", "/m"),
    variables=("GLOO_SOCKET_IFNAME",),
    hostname="b",
    machine_id="ab",
    host_key="SHA256:x",
    packages=(("vllm", "0.32.0"),),
    model_digest="d1",
    model_how="contents",
    memory_before=7,
    identity=("811", "4242", "boot"),
)
RECEIPT = Receipt(
    deployment="demo",
    boot="b1",
    recipe="demo",
    created="2026-11-30T12:00:00Z",
    url="http://10.40.0.1:8888",
    model="demo",
    ranks=(RANK,),
    stages=(StageTime("launch", 1.5, "", (StageTime("rank 1", 0.5),)),),
)


def test_a_receipt_comes_back_as_it_was_written():
    assert from_json(to_json(RECEIPT).decode(), "here") == RECEIPT


@pytest.mark.parametrize("text", ["", "{}", '{"version": 99}', to_json(RECEIPT).decode()[:-40]])
def test_a_damaged_receipt_is_refused_naming_its_place(text):
    with pytest.raises(Unreadable) as caught:
        from_json(text, "spark-a:receipt.json")
    assert caught.value.where == "spark-a:receipt.json"
