from pathlib import Path

import pytest

from cluster.model.units import Bytes, Seconds
from cluster.probe.rank_acts import (
    Launched,
    NodeStopped,
    RankStopped,
    parse_failure,
    parse_launch,
    parse_stacks,
    parse_stop,
)

CAPTURED = Path(__file__).parents[2] / "captured" / "agent"
BOOT = "20261130T173000Z-3f9a"


def captured(name: str) -> str:
    return (CAPTURED / f"{name}.json").read_text()


def test_a_stop_tells_what_it_ended():
    names = ("VLLM::EngineCore", "VLLM::Worker_TP0", "python")
    stopped = RankStopped(BOOT, 0, "graceful", names, (), Seconds(0.12))
    assert parse_stop(captured("stop")) == NodeStopped((stopped,), Bytes(24425807872), Bytes(24434188288))


def test_a_launch_tells_who_runs():
    assert parse_launch(captured("launch")) == Launched(
        13203, 13204, "", "2026-11-30T17:47:51.549Z", Bytes(24497172480)
    )


def test_stacks_without_py_spy_still_tell_what_the_kernel_knows():
    stacks = parse_stacks(captured("stacks"))
    (rank,) = stacks.ranks
    assert rank.missing == "py-spy is neither beside the rank's program nor in PATH: no Python stacks"
    assert [process.name for process in rank.processes if not process.wchan] == []
    assert stacks.meminfo.startswith("MemTotal:")


@pytest.mark.parametrize(("text", "sentence"), [('{"error": "no"}', "no"), ("{}", ""), ("Traceback", ""), ("[]", "")])
def test_a_failure_is_a_sentence(text, sentence):
    assert parse_failure(text) == sentence
