"""`start` with weights that only the head has: shared before the checks, proven, and only then launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.cli import Cli
from tests.lab.faults import MODEL, STAND_IN, install_stand_in, nothing_is_left
from tests.lab.nodes import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab(lab_ground: None) -> Iterator[Lab]:
    with Lab.up(small_disk_size="320m") as nodes:
        for node in nodes.nodes:
            install_stand_in(node)
        nodes.a.path(f"{MODEL}/model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
        nodes.b.path(f"{MODEL}/config.json").unlink()
        nodes.b.path(MODEL).rmdir()
        yield nodes


def findings(said, name):
    return [(one["node"], one["severity"]) for one in said.of("finding") if one["id"] == name]


def test_start_shares_what_only_the_head_has_and_serves(lab):
    sparkctl = Cli(lab.a, STAND_IN | {"WEIGHT_SYNC": "rsync"})
    seen = {one["finding"]["id"]: one["finding"] for one in sparkctl("preflight").of("preflight")[0]["results"]}
    assert seen["SHARE.PLAN"]["severity"] == "note"
    assert seen["SHARE.PLAN"]["observed"].endswith("will share the weights by rsync")
    started = sparkctl("start")
    assert started.code == 0, started.result
    stages = [one["stage"] for one in started.of("stage-ended")]
    assert stages[:4] == ["connect", "share", "prove", "check"]
    assert (
        lab.b.path(f"{MODEL}/model.safetensors").read_bytes() == lab.a.path(f"{MODEL}/model.safetensors").read_bytes()
    )
    assert findings(started, "MODEL.PRESENT") == [("head", "ok"), ("worker", "ok")]
    again = sparkctl("start")
    assert (again.code, again.result["already"], again.of("step-started")) == (0, True, ())
    assert sparkctl("stop").code == 0
    restarted = sparkctl("start")
    assert restarted.code == 0
    assert [one for one in restarted.of("step-started") if one["stage"] in ("copy", "share")] == []
    assert sparkctl("stop").code == 0
    assert sparkctl("share", "--detach").code == 0
    nothing_is_left(lab)


def test_without_sharing_a_worker_that_lacks_the_model_is_refused(lab):
    for settings in ({}, {"WEIGHT_SYNC": "rsync", "SKIP_SYNC": "1"}):
        refused = Cli(lab.a, STAND_IN | settings)("start")
        assert refused.code == 4
        assert ("worker", "refusal") in findings(refused, "MODEL.PRESENT")
    nothing_is_left(lab)
