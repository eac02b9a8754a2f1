"""Whether an address survives a reboot, and whether two nodes are two machines."""

from dataclasses import replace

import pytest

from cluster.model.events import Severity
from cluster.model.host import Host, Owner
from cluster.plan.host_checks import check_machines, check_owner
from cluster.plan.launch import Wiring
from tests.build import facts, identity

WIRED = Wiring("10.40.0.1", "eth1")
NETPLAN = Owner("eth1", "networkd", "/run/systemd/network/10-netplan-eth1.network")


def seen(managers=("networkd",), owners=(), dhcp=False):
    one = facts("spark-a", "10.40.0.1@eth1")
    return replace(
        one,
        addresses=tuple(replace(address, by_dhcp=dhcp) for address in one.addresses),
        host=Host(kernel="6", managers=managers, owners=owners),
    )


@pytest.mark.parametrize(
    ("facts_seen", "severity", "says"),
    [
        (seen(owners=(NETPLAN,)), Severity.OK, "10.40.0.1 on eth1 belongs to networkd (/run/systemd/network/10-net"),
        (
            seen(owners=(Owner("eth1", "NetworkManager", "cx7"),)),
            Severity.OK,
            "10.40.0.1 on eth1 belongs to NetworkManager (cx7)",
        ),
        (
            seen(owners=(Owner("eth1", "networkd", "/run/systemd/network/50-mine.network"),)),
            Severity.WARNING,
            "10.40.0.1 on eth1 is set by /run/systemd/network/50-mine.network, which a reboot removes",
        ),
        (
            seen(owners=(Owner("eth1", "NetworkManager", "cx7", "it does not connect by itself"),)),
            Severity.WARNING,
            "10.40.0.1 on eth1 belongs to NetworkManager's connection cx7: it does not connect by itself",
        ),
        (seen(), Severity.WARNING, "10.40.0.1 on eth1 was set by hand: networkd does not know it"),
        (seen(owners=(NETPLAN,), dhcp=True), Severity.WARNING, "10.40.0.1 on eth1 comes from DHCP"),
        (seen(managers=()), Severity.NOT_CHECKED, "no network manager was seen"),
    ],
)
def test_the_owner_of_the_fabric_address_is_told(facts_seen, severity, says):
    found = check_owner(facts_seen, WIRED)
    assert (found.severity, found.observed[: len(says)]) == (severity, says)


def test_an_address_that_is_not_there_is_not_judged():
    assert check_owner(facts("spark-a", ""), WIRED).severity is Severity.NOT_CHECKED


def both(a, b, key_a="ssh-ed25519 A", key_b="ssh-ed25519 B"):
    nodes = {
        name: replace(facts(name), host=Host(kernel="6", host_keys=(key,)))
        for name, key in (("spark-a", key_a), ("spark-b", key_b))
    }
    return [(one.id, one.severity, one.observed) for one in check_machines(nodes, {"spark-a": a, "spark-b": b})]


A, B = identity(machine_id="a1", boot_id="b1"), identity(machine_id="a2", boot_id="b2")


def test_two_machines_are_two():
    assert [severity for _, severity, _ in both(A, B)] == [Severity.OK, Severity.OK]


def test_machines_from_one_copied_disk_are_told():
    assert both(A, replace(B, machine_id="a1"), key_b="ssh-ed25519 A") == [
        ("HOST.MACHINE_ID", Severity.WARNING, "spark-a and spark-b have the same machine id"),
        ("HOST.SSH_KEY", Severity.WARNING, "spark-a and spark-b have the same ssh host key"),
    ]


def test_two_names_of_one_machine_are_told():
    assert both(A, replace(B, boot_id="b1")) == [
        ("HOST.ONE_MACHINE", Severity.WARNING, "spark-a and spark-b are one machine: they have the same boot")
    ]


def test_what_only_one_node_told_is_not_judged():
    assert next(severity for _, severity, _ in both(A, replace(B, machine_id=""))) is Severity.NOT_CHECKED
