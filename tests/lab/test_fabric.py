"""The fabric between two real nodes: what preflight names when it is broken, and what `fabric test` measures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.cli import WORK, Cli
from tests.lab.faults import STAND_IN, install_stand_in
from tests.lab.node import FABRIC, SMALL_DISK
from tests.lab.nodes import Lab
from tests.lab.portrait import changes, portrait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.node import Node

pytestmark = pytest.mark.lab
# What sparkctl keeps on the machine it runs on.
OWN_LOG = (f"{SMALL_DISK}/sparkctl", f"{SMALL_DISK}/sparkctl/sparkctl.log")


@pytest.fixture(scope="module")
def standing(lab_ground: None) -> Iterator[Lab]:
    with Lab.up() as nodes:
        for node in nodes.nodes:
            install_stand_in(node)
        yield nodes


@pytest.fixture
def sparkctl(standing: Lab) -> Cli:
    return Cli(standing.a, STAND_IN)


def preflight(sparkctl: Cli, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code, and what was refused or warned of."""
    said = sparkctl("preflight", *words)
    (report,) = said.of("preflight")
    findings = [one["finding"] for one in report["results"]]
    return said.code, [one for one in findings if one["severity"] in ("refusal", "warning")]


def set_mtu(node: Node, mtu: int) -> None:
    node.run(("ip", "link", "set", "dev", FABRIC, "mtu", str(mtu)), check=True)


def test_a_healthy_pair_passes_and_without_rdma_that_is_no_failure(sparkctl: Cli) -> None:
    code, found = preflight(sparkctl, "--only", "FABRIC")
    assert (code, found) == (0, [])


def test_preflight_changes_nothing(sparkctl: Cli, standing: Lab) -> None:
    before = [portrait(node, *OWN_LOG) for node in standing.nodes]
    preflight(sparkctl)
    after = [portrait(node, *OWN_LOG) for node in standing.nodes]
    assert [changes(then, now) for then, now in zip(before, after, strict=True)] == [[], []]


def test_unequal_mtu_is_named_with_both_ends(sparkctl: Cli, standing: Lab) -> None:
    set_mtu(standing.a, 9000)
    try:
        code, found = preflight(sparkctl, "--only", "FABRIC")
    finally:
        set_mtu(standing.a, 1500)
    told = {one["id"]: one["observed"] for one in found}
    assert (code, told["FABRIC.MTU"]) == (4, "eth9 on head has 9000, eth9 on worker has 1500")
    assert told["FABRIC.JUMBO"] == "small packets reach 10.77.0.2, but 8972 bytes do not (MTU 9000 on eth9)"


def test_a_firewall_on_the_rail_is_named(sparkctl: Cli, standing: Lab) -> None:
    rule = ("INPUT", "-i", FABRIC, "-p", "tcp", "--syn", "!", "--dport", "22", "-j", "DROP")
    if standing.b.run(("iptables", "-A", *rule)).returncode:
        pytest.skip("not run: no iptables in a namespace here")
    try:
        code, found = preflight(sparkctl, "--only", "FABRIC")
    finally:
        standing.b.run(("iptables", "-D", *rule), check=True)
    assert (code, [(one["node"], one["id"], one["observed"]) for one in found]) == (
        4,
        [
            (
                "head",
                "FABRIC.REACH",
                "worker (10.77.0.2) answers ping, but port 45678 filtered: a firewall drops packets",
            )
        ],
    )


def test_a_wrong_interface_in_the_settings_is_named(standing: Lab) -> None:
    code, found = preflight(Cli(standing.a, STAND_IN | {"WORKER_CX7_IF": "lan0"}), "--only", "FABRIC.ADDRESS")
    assert (code, [(one["node"], one["observed"]) for one in found]) == (
        4,
        [("worker", "10.77.0.2 is on eth9, not on lan0")],
    )


def test_a_port_that_is_down_is_named_and_does_not_hang(sparkctl: Cli, standing: Lab) -> None:
    standing.cut_link()
    try:
        code, found = preflight(sparkctl, "--only", "FABRIC")
    finally:
        standing.restore_link()
    assert code == 4
    assert ("head", "FABRIC.ADDRESS", "eth9 has no carrier") in [
        (one["node"], one["id"], one["observed"]) for one in found
    ]


def test_one_subnet_on_two_interfaces_is_told(sparkctl: Cli, standing: Lab) -> None:
    standing.b.run(("ip", "addr", "add", "10.77.0.9/24", "dev", "lan0"), check=True)
    try:
        code, found = preflight(sparkctl, "--only", "FABRIC.SUBNET")
    finally:
        standing.b.run(("ip", "addr", "del", "10.77.0.9/24", "dev", "lan0"), check=True)
    assert (code, [(one["node"], one["observed"]) for one in found]) == (
        0,
        [("worker", "10.77.0.0/24 is on eth9 and lan0")],
    )


def test_every_way_is_measured_alone_and_all_at_once(sparkctl: Cli) -> None:
    said = sparkctl("fabric", "test")
    (report,) = said.of("fabric")
    ways = [(one["way"]["source"], one["way"]["target"], one["how"], one["together"]) for one in report["measured"]]
    assert ways == [
        ("head", "worker", "sockets", False),
        ("worker", "head", "sockets", False),
        ("head", "worker", "sockets", True),
        ("worker", "head", "sockets", True),
    ]
    assert [one["covered"] for one in report["coverage"]] == [True, True]
    assert all(one["gbps"] > 0.1 and one["latency_us"] > 0 for one in report["measured"])
    assert report["seconds"] < 12


def test_a_way_that_cannot_be_measured_is_told_apart_from_a_slow_one(sparkctl: Cli, standing: Lab) -> None:
    standing.cut_link()
    try:
        said = sparkctl("fabric", "test")
    finally:
        standing.restore_link()
    (report,) = said.of("fabric")
    assert (said.code, report["ok"], [one["covered"] for one in report["coverage"]]) == (5, False, [False, False])
    assert all(one["grade"] == "failed" for one in report["measured"])


def test_fabric_test_leaves_no_process_behind(sparkctl: Cli, standing: Lab) -> None:
    sparkctl("fabric", "test")
    assert [one.title for node in standing.nodes for one in node.processes() if "serve" in one.title] == []


@pytest.mark.parametrize(
    ("where", "refused"),
    [
        ("laptop", [{"WORKER_CX7_IF": "lan0"}, {"MODEL_DIR": "/opt/nothing"}, {"PORT": "22"}]),
        ("head", [{"VENV": "/opt/nothing"}]),
    ],
)
def test_a_refused_start_changes_nothing_on_either_node(
    standing: Lab, where: str, refused: list[dict[str, str]]
) -> None:
    """From a third machine nothing at all is another than before; on the head there is the log of sparkctl itself."""
    on, more = (standing.a, {}) if where == "head" else (standing.laptop, {"HEAD_SSH": "spark-a"})
    refusals = [Cli(on, STAND_IN | more | setting, WORK / str(number)) for number, setting in enumerate(refused)]
    own_log = OWN_LOG if where == "head" else ()
    before = [portrait(node, *own_log) for node in standing.nodes]
    for sparkctl in refusals:
        said = sparkctl("start")
        assert (said.code, said.failed["error"]) == (4, "Refused"), said.result
        assert (said.of("step-started"), said.of("served")) == ((), ())
        assert said.seconds < 10
    after = [portrait(node, *own_log) for node in standing.nodes]
    assert [changes(then, now) for then, now in zip(before, after, strict=True)] == [[], []]


def test_a_portrait_shows_what_a_start_would_change(standing: Lab, sparkctl: Cli) -> None:
    """The comparison above proves something only if it sees files and processes."""
    before = portrait(standing.b)
    standing.b.path("/root/.local/state/one").touch()
    standing.b.path("/srv/two").touch()
    with standing.b.popen(("sleep", "60")):
        seen = changes(before, portrait(standing.b))
    standing.b.path("/root/.local/state/one").unlink()
    standing.b.path("/srv/two").unlink()
    told = [line.split()[1:3] for line in seen]
    there = ["/root/.local/state/one", "/srv", "/srv/two"]
    assert told == [*(["file:", path] for path in there), ["process:", told[-1][1]]], seen


def test_an_address_that_comes_back_while_we_look_is_taken(standing: Lab, sparkctl: Cli) -> None:
    """NET-15: as after `netplan apply`."""
    standing.b.run(("ip", "addr", "del", "10.77.0.2/24", "dev", FABRIC), check=True)
    back = ("sh", "-c", f"sleep 2.5; ip addr add 10.77.0.2/24 dev {FABRIC}")
    running = standing.b.popen(back)
    try:
        code, found = preflight(sparkctl, "--only", "FABRIC")
    finally:
        running.wait(20)
        running.end()
    assert (code, found) == (0, [])
