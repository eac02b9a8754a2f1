"""A guard beside each rank: its steps, what it may do, and none when it is off."""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

from cluster.model.deployment import DeploymentId
from cluster.model.kit import Foreign, Guard, GuardMode
from cluster.model.ledger import Measured, Shape
from cluster.model.memory import GIB, MemInfo, MemoryFacts
from cluster.model.settings import NodeSettings, Serve, Settings
from cluster.model.tuning import Tuning
from cluster.model.units import Bytes
from cluster.plan.guard import GuardSteps, guard_steps, port
from cluster.plan.launch import Wiring, launch_spec
from cluster.plan.memory import Need, NodePlan, Part
from tests.build import pair

ON = Guard(mode=GuardMode.ACT, floor_gib=Decimal("1.5"), foreign=Foreign.FREEZE)
FOLDER = "~/.local/state/sparkctl/deployments/demo/boots/B1"


def steps(settings: Settings, plans: tuple[NodePlan, ...] = ()) -> GuardSteps:
    wiring = tuple(Wiring(node.address, "enp1s0f1np1") for node in settings.nodes)
    spec = launch_spec(settings, DeploymentId(settings.deployment, "B1"), wiring)
    return guard_steps(settings, spec, plans, b"program", "token")


def orders(given: GuardSteps) -> list[dict[str, Any]]:
    return [json.loads(one.data) for one in given.prepare if one.path.name == "guard-spec.json"]


def test_a_guard_that_is_off_has_no_steps():
    assert steps(pair()) == GuardSteps()


def test_the_program_is_put_on_each_node_and_started_before_anything_else():
    given = steps(pair(guard=ON))
    assert [(one.node, one.why, one.mode) for one in given.prepare] == [
        ("spark-a", "put the memory guard there", 0o644),
        ("spark-b", "put the memory guard there", 0o644),
        ("spark-a", "write what the guard of rank 0 may do", 0o600),
        ("spark-b", "write what the guard of rank 1 may do", 0o600),
    ]
    assert [(one.node, one.command.argv[:4], one.undo.argv[3] if one.undo else "") for one in given.launch] == [
        (node, ("python3", "-IS", "-", "launch"), "stop") for node in ("spark-a", "spark-b")
    ]
    assert json.loads(given.launch[1].command.argv[4]) == {
        "dir": f"{FOLDER}/rank1",
        "program": str(given.prepare[1].path),
        "unit": "sparkctl-demo-guard1-B1",
    }


def test_what_a_guard_may_do():
    head, worker = orders(steps(pair(guard=ON, tuning=Tuning(drop_page_cache=True))))
    floor = 3 * GIB // 2
    assert head == {
        "mode": "act",
        "warn": 2 * floor,
        "floor": floor,
        "last": GIB,
        "foreign": "freeze",
        "allowance": None,
        "drop": ["/models/demo"],
        "ranks": [f"{FOLDER}/rank0"],
        "grace": 20.0,
        "address": "10.40.0.1",
        "port": 29521,
        "peers": [["10.40.0.2", 29522]],
        "token": "token",
        "meminfo": None,
    }
    assert (worker["ranks"], worker["port"], worker["peers"]) == ([f"{FOLDER}/rank1"], 29522, [["10.40.0.1", 29521]])


def test_cache_is_dropped_only_where_the_settings_say_so():
    assert [order["drop"] for order in orders(steps(pair(guard=ON)))] == [[], []]


def test_ranks_on_one_machine_know_each_other():
    here = NodeSettings(name="a", control="local", address="127.0.0.1")
    first, second = orders(steps(pair(guard=ON, nodes=(here, replace(here, name="b")))))
    assert first["ranks"] == second["ranks"] == [f"{FOLDER}/rank0", f"{FOLDER}/rank1"]


def test_only_what_was_measured_convicts_a_rank_of_taking_too_much():
    info = MemInfo(Bytes(120 * GIB), Bytes(0), Bytes(115 * GIB))
    need = Need(0, (Part("longest prompt", Bytes(2 * GIB), "longest prompt"),), 1, Bytes(0))
    predicted = NodePlan(MemoryFacts("spark-a", info), (need,))
    shape = Shape(1, 2, 1, None, None, None, None, "", "none", False)
    entry = Measured("b0", "demo", "spark-a", 0, shape, 0, before=115 * GIB, lowest=5 * GIB, serving=0)
    measured = replace(predicted, measured=entry)
    assert [order["allowance"] for order in orders(steps(pair(guard=ON), (measured, predicted)))] == [112 * GIB, None]


def test_a_port_at_the_end_of_the_range_goes_down():
    assert [port(pair(serve=Serve(master_port=65535)), rank) for rank in (0, 1)] == [65535, 65534]
