"""The fabric with real RDMA devices (soft RoCE): the right GID after every change, faults named, writes measured."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.vm import cli
from tests.vm.machine import until
from tests.vm.recipe import DEVICE, FABRIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.lab.cli import Said
    from tests.vm.machine import Machine
    from tests.vm.pair import Pair

SETTINGS = cli.SHARED | {"VENV": "/opt/vllm", "MODEL_DIR": "/opt/model"}
GIDS = f"/sys/class/infiniband/{DEVICE}/ports/1/gids"
LINK_LOCAL = "fe80::b1c2:93ab:5d0e:7a19"
READ_GIDS = f"cd {GIDS} && grep -H . * | grep -v ':0000:0000:0000:0000:0000:0000:0000:0000$'"


def ask(pair: Pair, folder: Path, only: str, settings: Mapping[str, str] = SETTINGS) -> Said:
    return cli.on_host(pair, folder, settings, "preflight", "--only", only)


def found(said: Said) -> list[tuple[str, str, str, str]]:
    """What was looked at: severity, id, node and what was seen."""
    reports = said.of("preflight")
    assert reports, said.events
    findings: list[dict[str, Any]] = [one["finding"] for one in reports[0]["results"]]
    return [(one["severity"], one["id"], one["node"], one["observed"]) for one in findings]


def wrong(said: Said) -> list[tuple[str, str, str]]:
    """What was refused or warned of: id, node and what was seen."""
    return [tuple(rest) for severity, *rest in found(said) if severity in ("refusal", "warning")]  # type: ignore[misc]


def right_index(machine: Machine) -> int:
    """Where the table of its device holds the fabric address, as the kernel writes it."""
    last = "".join(f"{int(byte):02x}" for byte in machine.fabric_address.split("."))
    wanted = f"0000:0000:0000:0000:0000:ffff:{last[:4]}:{last[4:]}"
    lines = machine.run(READ_GIDS).stdout.splitlines()
    (index,) = [int(line.partition(":")[0]) for line in lines if line.endswith(wanted)]
    return index


def told_index(said: Said) -> list[int]:
    """The index that preflight found for each node."""
    observed = [one for severity, check, _, one in found(said) if (severity, check) == ("ok", "FABRIC.GID")]
    return [int(one.split()[1]) for one in observed]


def test_preflight_finds_the_right_gid_on_both(pair: Pair, tmp_path: Path) -> None:
    said = ask(pair, tmp_path, "FABRIC")
    slow = f"{DEVICE} at 2.5 Gb/s"  # what soft RoCE says of itself
    assert (said.code, wrong(said)) == (0, [("FABRIC.SPEED", "head", slow), ("FABRIC.SPEED", "worker", slow)])
    assert told_index(said) == [right_index(machine) for machine in pair.machines]


def test_the_right_gid_is_found_after_every_change_of_the_addresses(pair: Pair, tmp_path: Path) -> None:
    """NET-01 and NET-02: a new address fills the first hole, and one that comes back is somewhere else."""
    changes = (
        ("another address", f"ip addr add 10.79.0.1/24 dev {FABRIC}"),
        ("removed", f"ip addr del 10.77.0.1/24 dev {FABRIC}"),
        ("another link-local address", f"ip addr add {LINK_LOCAL}/64 dev {FABRIC} nodad"),
        ("added again", f"ip addr add 10.77.0.1/24 dev {FABRIC}"),
    )
    pair.a.run("systemctl restart vm-lab-rxe.service; sleep 1")  # a table without the holes that other tests left
    before, seen, gone = right_index(pair.a), {}, []
    try:
        for name, command in changes:
            pair.a.run(f"{command}; sleep 1")
            if name != "removed" and name != "another link-local address":
                seen[name] = told_index(ask(pair, tmp_path, "FABRIC.GID"))[0], right_index(pair.a)
            if name == "removed":
                gone = wrong(ask(pair, tmp_path, "FABRIC.ADDRESS"))
        after = right_index(pair.a)
    finally:
        pair.a.run(f"ip addr del 10.79.0.1/24 dev {FABRIC}; ip addr del {LINK_LOCAL}/64 dev {FABRIC}", check=False)
        # Not by hand: networkd would let an address that is not its own stay when the carrier goes.
        pair.a.run(f"networkctl reconfigure {FABRIC}")
    assert [told == right for told, right in seen.values()] == [True, True], seen
    assert after != before
    assert [(check, node) for check, node, _ in gone] == [("FABRIC.ADDRESS", "head")]


def test_a_pinned_index_that_went_stale_is_refused_with_the_right_one(pair: Pair, tmp_path: Path) -> None:
    right = right_index(pair.b)
    said = ask(pair, tmp_path, "FABRIC.GID", SETTINGS | {"WORKER_GID": str(right + 7)})
    ((check, node, observed),) = wrong(said)
    assert (said.code, check, node) == (4, "FABRIC.GID", "worker")
    assert f"GID index {right + 7} of {DEVICE} is empty" in observed


def dark(machine: Machine) -> str:
    """What is seen of it, once networkd has taken the address away with the carrier."""
    shown = f"ip -4 -o addr show dev {FABRIC}"
    until(lambda: machine.run(shown).stdout == "", f"{machine.name} has no address on {FABRIC}", 60)
    return f"{machine.fabric_address} is on no interface of this node, and no carrier is on {FABRIC}"


def test_a_pulled_cable_is_named(pair: Pair, tmp_path: Path) -> None:
    pair.cut()
    try:
        expected = [("FABRIC.ADDRESS", "head", dark(pair.a)), ("FABRIC.ADDRESS", "worker", dark(pair.b))]
        said = ask(pair, tmp_path, "FABRIC.ADDRESS")
    finally:
        pair.mend()
    assert (said.code, wrong(said)) == (4, expected)


def test_a_port_that_was_switched_off_is_named(pair: Pair, tmp_path: Path) -> None:
    with changed(pair.b, f"ip link set {FABRIC} down", f"ip link set {FABRIC} up"):
        expected = [("FABRIC.ADDRESS", "worker", dark(pair.b))]
        said = ask(pair, tmp_path, "FABRIC.ADDRESS")
    assert (said.code, [one for one in wrong(said) if one[1] == "worker"]) == (4, expected)


def test_unequal_mtu_is_named_with_both_ends(pair: Pair, tmp_path: Path) -> None:
    with changed(pair.b, f"ip link set {FABRIC} mtu 1500", f"ip link set {FABRIC} mtu 9000"):
        said = ask(pair, tmp_path, "FABRIC")
    told = {check: observed for check, _, observed in wrong(said)}
    assert (said.code, told["FABRIC.MTU"]) == (
        4,
        f"{FABRIC} on head has 9000 (RoCE 4096), {FABRIC} on worker has 1500 (RoCE 1024)",
    )


def test_a_firewall_on_the_rail_is_named(pair: Pair, tmp_path: Path) -> None:
    table = (
        "nft 'add table inet rail; add chain inet rail in { type filter hook input priority 0; };"
        f" add rule inet rail in iifname {FABRIC} tcp dport != 22 tcp flags & (syn|ack) == syn drop'"
    )
    with changed(pair.b, table, "nft delete table inet rail"):
        said = ask(pair, tmp_path, "FABRIC.REACH")
    ((check, node, observed),) = wrong(said)
    assert (said.code, check, node) == (4, "FABRIC.REACH", "head")
    assert "filtered: a firewall drops packets" in observed


def test_a_wrong_interface_in_the_settings_is_named(pair: Pair, tmp_path: Path) -> None:
    said = ask(pair, tmp_path, "FABRIC.ADDRESS", SETTINGS | {"WORKER_CX7_IF": "lan0"})
    assert (said.code, wrong(said)) == (4, [("FABRIC.ADDRESS", "worker", f"10.77.0.2 is on {FABRIC}, not on lan0")])


def test_a_device_that_is_not_there_is_named(pair: Pair, tmp_path: Path) -> None:
    said = ask(pair, tmp_path, "FABRIC.HCA", SETTINGS | {"WORKER_CX7_IB": "rocep9s0f9"})
    named = [(check, node) for check, node, observed in wrong(said) if "rocep9s0f9" in observed]
    assert (said.code, named) == (4, [("FABRIC.HCA", "worker")])


def test_rdma_writes_are_measured_over_every_way(pair: Pair, tmp_path: Path) -> None:
    said = cli.on_host(pair, tmp_path, SETTINGS, "fabric", "test", timeout=600)
    (report,) = said.of("fabric")
    alone = [one for one in report["measured"] if not one["together"]]
    assert [(one["way"]["source_device"], one["way"]["target_device"], one["how"]) for one in alone] == [
        (DEVICE, DEVICE, "rdma"),
        (DEVICE, DEVICE, "rdma"),
    ]
    # An emulated processor moves little; that it was moved by RDMA, both ways, is what this shows.
    assert [one["gbps"] is not None for one in alone] == [True, True], report
    assert [one["covered"] for one in report["coverage"]] == [True, True]


def test_without_a_device_on_one_node_the_two_transports_are_named(pair: Pair, tmp_path: Path) -> None:
    with changed(pair.b, "systemctl stop vm-lab-rxe.service", "systemctl start vm-lab-rxe.service"):
        said = ask(pair, tmp_path, "FABRIC.RAILS")
    assert (said.code, wrong(said)) == (
        4,
        [("FABRIC.RAILS", "", "head would use RDMA, worker plain sockets")],
    )


@contextmanager
def changed(machine: Machine, change: str, undo: str) -> Iterator[None]:
    machine.run(change)
    try:
        yield
    finally:
        machine.run(undo)


@pytest.fixture(autouse=True)
def whole(pair: Pair) -> None:
    """Every test begins on a fabric that carries packets; after a change RDMA needs a moment to follow."""
    pair.a.run(f"for n in $(seq 30); do ping -c 1 -W 2 {pair.b.fabric_address} && exit; sleep 1; done; exit 1")
