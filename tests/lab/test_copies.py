"""`share --backend rsync` and `auto` through the real command between two nodes, with a cable to pull."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.lab.cli import Cli
from tests.lab.nodes import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.cli import Event, Said
    from tests.lab.node import Node

pytestmark = pytest.mark.lab
MODEL = "/root/model"
MIB = 1 << 20
SIZE = 96 * MIB
SETTINGS = {
    "RECIPE": "demo",
    "HEAD_IP": "10.77.0.1",
    "WORKER_IP": "10.77.0.2",
    "WORKER_SSH": "spark-b",
    "MODEL_DIR": MODEL,
    "NFS_SHARE": "0",
}
STEP_FAILED, REFUSED = 5, 4


@pytest.fixture(scope="module")
def standing(lab_ground: None) -> Iterator[Lab]:
    with Lab.up() as nodes:
        folder = nodes.a.path(MODEL)
        folder.mkdir()
        (folder / "model-1.safetensors").write_bytes(shard(SIZE))
        (folder / "model-2.safetensors").write_bytes(shard(MIB))
        yield nodes


def shard(size: int) -> bytes:
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + os.urandom(size)


def sums(node: Node) -> str:
    return node.run(("sh", "-c", f"cd {MODEL} && sha256sum *.safetensors"), check=True).stdout


def report(said: Said) -> Event:
    assert said.code == 0, (said.code, said.events[-1:], said.err)
    (found,) = said.of("share")
    return found


def received(node: Node) -> int:
    return int(node.path("/sys/class/net/eth9/statistics/rx_bytes").read_text())


def test_a_copy_survives_a_pulled_cable_and_goes_as_it_came(standing: Lab) -> None:
    slow = Cli(standing.a, SETTINGS | {"COPY_LIMIT": "20"})
    before = received(standing.b)
    with slow.begin("share", "--backend", "rsync") as begun:
        begun.wait_for(
            lambda event: event["event"] == "progress" and event["current"] > 30 * MIB, "a third has come", 60
        )
        standing.cut_link()
        cut = begun.end(120)
    assert cut.code == STEP_FAILED
    assert "the same command goes on from it" in " ".join(cut.failed["evidence"])
    standing.restore_link()
    fast = Cli(standing.a, SETTINGS)
    assert report(fast("share", "--backend", "rsync"))["steps"] > 0
    assert sums(standing.b) == sums(standing.a)
    assert received(standing.b) - before < 1.05 * SIZE + 64 * MIB
    assert report(fast("share", "--backend", "rsync"))["steps"] == 0


def test_a_swapped_shard_is_named_by_verify_and_put_right(standing: Lab) -> None:
    sparkctl = Cli(standing.a, SETTINGS)
    sparkctl("share", "--backend", "rsync")
    standing.b.path(f"{MODEL}/model-2.safetensors").write_bytes(shard(MIB))
    found = sparkctl("verify")
    assert found.code == REFUSED
    (told,) = found.of("verify")
    wrong = {one["node"]: [file["name"] for file in one["wrong"]] for one in told["folders"]}
    assert wrong == {"head": [], "worker": ["model-2.safetensors"]}
    assert report(sparkctl("share", "--backend", "rsync"))["steps"] > 0
    assert sums(standing.b) == sums(standing.a)


def test_auto_says_what_each_way_costs_and_takes_its_own_back(standing: Lab) -> None:
    sparkctl = Cli(standing.a, SETTINGS)
    sparkctl("share", "--backend", "rsync", "--detach")
    said = sparkctl("share", "--backend", "auto")
    (costs,) = said.of("share-costs")
    offers = {one["kind"]: one for one in costs["offers"]}
    assert costs["chosen"] == report(said)["backend"] == "rsync"
    moves = sum(one.stat().st_size for one in standing.a.path(MODEL).glob("*.safetensors"))
    assert offers["rsync"]["moves"] == moves
    assert offers["rsync"]["seconds"] == pytest.approx(moves / costs["rate"])
    assert all(offers[kind]["impossible"] for kind in ("inplace", "nfs", "zfs"))
    again = sparkctl("share", "--backend", "auto")
    assert again.of("share-costs")[0]["why"] == "it is attached so already"
    assert report(again)["steps"] == 0
    report(sparkctl("share", "--backend", "auto", "--detach"))
    assert not standing.b.path(MODEL).exists()
