import json
from pathlib import Path

import pytest

from cluster.errors import Unreadable
from cluster.model.fabric import FabricLook, PortLook
from cluster.model.facts import Memory
from cluster.model.units import Bytes, Seconds
from cluster.probe.ranks import (
    CompletionSeen,
    ExitSeen,
    HeadSeen,
    LoggedLine,
    LogSeen,
    RankLife,
    parse_log_line,
    parse_look,
)
from cluster.probe.ras import RasReport, RasVerdict
from cluster.probe.vllm_metrics import Counters

CAPTURED = Path(__file__).parents[2] / "captured" / "agent"
BOOT = "20261130T173000Z-3f9a"


def captured(name: str) -> str:
    return (CAPTURED / f"{name}.json").read_text()


def test_a_serving_head_is_read_whole():
    node = parse_look(captured("look-serving"))
    (rank,) = node.ranks
    assert (node.host, node.ras, node.gpus) == ("spark-a", RasReport(RasVerdict.ABSENT), None)
    assert node.memory == Memory(Bytes(25276059648), Bytes(20443938816), Bytes(24443658240), Bytes(4831838208))
    assert node.head == HeadSeen(
        at=1796060874.9432983,
        health=200,
        counters=Counters(0.0, 0.0, 0.0, 0.0),
        later=None,
        completion=CompletionSeen(1796060874.9433093, 200, Seconds(0.002), ""),
        asking_since=None,
    )
    assert (rank.boot, rank.rank, rank.state, rank.exit) == (BOOT, 0, RankLife.ALIVE, None)
    assert rank.log == LogSeen((LoggedLine("2026-11-30T17:47:51.629Z", "ready"),), (2327543, 31), Bytes(0), False)
    assert [(process.name, process.state) for process in rank.processes] == [
        ("sparkctl-shim", "S"),
        ("python", "S"),
        ("VLLM::EngineCore", "S"),
        ("VLLM::Worker_TP0", "S"),
    ]


def test_an_end_of_the_fabric_is_read_with_its_ports():
    port = {"device": "rocep1s0f1", "port": 1, "state": "ACTIVE", "gbps": 200.0, "interfaces": ["enp1s0f1np1"]}
    wired = {"interface": "enp1s0f1np1", "carrier": True, "mbps": 200000, "mtu": 9000, "received": 7, "sent": 8}
    seen = json.loads(captured("look-serving"))
    seen["fabric"] = {**wired, "rdma": [{**port, "received": 3, "sent": 4}]}
    ports = (PortLook("rocep1s0f1", 1, "ACTIVE", 200.0, ("enp1s0f1np1",)),)
    assert parse_look(json.dumps(seen)).fabric == FabricLook("enp1s0f1np1", True, 200000, 9000, 7, 8, ports)


def test_orphans_of_a_killed_shim_are_named():
    (rank,) = parse_look(captured("look-orphaned")).ranks
    assert rank.state is RankLife.ORPHANED
    assert [process.name for process in rank.processes] == ["python", "VLLM::EngineCore", "VLLM::Worker_TP0"]


def test_an_ended_rank_tells_how():
    (rank,) = parse_look(captured("look-ended")).ranks
    assert (rank.state, rank.processes, rank.stop_asked) == (RankLife.EXITED, (), True)
    assert rank.exit is not None
    assert rank.exit == ExitSeen(None, 15, rank.exit.at, True, 0, 0, "")


def test_a_line_keeps_its_spaces():
    assert parse_log_line("2026-11-30T17:30:00.123Z   10% |##  |") == LoggedLine(
        "2026-11-30T17:30:00.123Z", "  10% |##  |"
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"ranks": 1}', "null"])
def test_what_is_no_look_is_unreadable(text):
    with pytest.raises(Unreadable):
        parse_look(text)
