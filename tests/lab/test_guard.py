"""Memory on two nodes with a stand-in server: refused early, guarded while it serves, stopped on both nodes."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.lab.cli import Cli
from tests.lab.faults import STAND_IN, clear, install_stand_in, nothing_is_left
from tests.lab.memory import has_available, meminfo_of_ours
from tests.lab.node import until
from tests.lab.nodes import Lab
from tests.lab.specification import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.lab
GUARDED = STAND_IN | {"DSV41_MEM_GUARD": "act"}
GUARD = "guard-"


@pytest.fixture(scope="module")
def standing(lab_ground: None) -> Iterator[Lab]:
    with Lab.up(small_disk_size="320m") as nodes, meminfo_of_ours(*nodes.nodes):
        for node in nodes.nodes:
            install_stand_in(node)
        yield nodes


@pytest.fixture
def lab(standing: Lab) -> Iterator[Lab]:
    for node in standing.nodes:
        has_available(node, 6.0)
    yield standing
    clear(standing)


def test_memory_that_only_the_driver_can_have_taken_stops_both_ranks(lab: Lab) -> None:
    sparkctl = Cli(lab.a, GUARDED)
    started = sparkctl("start")
    assert started.code == 0, started.result
    looked = sparkctl("status")
    assert [node["detail"] for node in looked.result["nodes"]] == [
        "the memory guard acts, 6.0 GiB was the least available"
    ] * 2
    has_available(lab.b, 1.2)
    until(lambda: not lab.a.processes() and not lab.b.processes(), "both ranks and their guards are gone", 40)
    gone = sparkctl("status")
    assert gone.code == 9
    first, second, *_ = gone.result["reasons"]
    assert first.startswith("the memory guard on worker stopped the ranks: 1.20 GiB available, our ranks are to blame")
    assert second == "the memory guard on head stopped the ranks: another node of this deployment is out of memory"


def test_a_stranger_is_named_and_the_server_lives(lab: Lab) -> None:
    sparkctl = Cli(lab.a, GUARDED)
    assert sparkctl("start").code == 0
    argv = (sys.executable, str(REPOSITORY / "tests" / "contract" / "balloon.py"), "900", "0", "0", "0")
    with lab.b.popen(("setsid", *argv), stdout=subprocess.PIPE) as balloon:
        assert balloon.entry.stdout is not None
        assert balloon.entry.stdout.readline() == "ready\n"
        has_available(lab.b, 1.3)
        until(lambda: "others are to blame" in str(sparkctl("status").result["nodes"]), "the guard says so", 30)
        looked = sparkctl("status")
        assert looked.code == 0
        assert "python" in looked.result["nodes"][1]["detail"]
    has_available(lab.b, 6.0)
    assert sparkctl("stop").code == 0
    until(lambda: not any(GUARD in one.title for one in (*lab.a.processes(), *lab.b.processes())), "no guard is left")


def test_a_guard_that_was_killed_is_told_though_it_serves(lab: Lab) -> None:
    sparkctl = Cli(lab.a, GUARDED)
    assert sparkctl("start").code == 0
    (guard,) = [one for one in lab.b.processes() if GUARD in one.title]
    lab.b.kill(guard.pid, signal.SIGKILL)
    until(lambda: not any(GUARD in one.title for one in lab.b.processes()), "it is dead")
    looked = sparkctl("status")
    assert (looked.code, looked.result["state"]) == (0, "serving")
    assert looked.result["nodes"][1]["detail"].startswith("the memory guard was killed")
    assert sparkctl("stop").code == 0
    nothing_is_left(lab)


def test_a_node_without_the_margin_is_refused_and_nothing_is_left(lab: Lab) -> None:
    model = lab.a.path("/opt/model/model.safetensors")
    header = b'{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
    for node in lab.nodes:
        node.path("/opt/model/model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    has_available(lab.b, 7.0)
    has_available(lab.a, 8.0)
    said = Cli(lab.a, GUARDED | {"DSV41_BOOT_MARGIN_GIB": "3.999"})("start")
    assert (said.code, said.failed["error"]) == (4, "Refused")
    assert said.seconds < 10
    # both nodes are one kernel, so that they count as one machine with two ranks
    (short,) = said.failed["evidence"]
    assert short.startswith("worker: 7.0 GiB available, 8.0 GiB needed (0.0 weights + 8.0 margin)")
    nothing_is_left(lab)
    model.unlink()
    lab.b.path("/opt/model/model.safetensors").unlink()
