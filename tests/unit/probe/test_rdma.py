"""Sysfs lines become RDMA ports, GID tables and interfaces."""

from ipaddress import IPv6Address
from pathlib import Path

import pytest

from cluster.errors import Unreadable
from cluster.model.fabric import Fabric, GidEntry, NetLink, RdmaPort, RoCE
from cluster.probe.rdma import parse_fabric

CAPTURED = Path(__file__).parents[2] / "captured" / "fabric"


def test_a_node_is_read_with_its_ports_tables_and_sockets():
    seen = parse_fabric((CAPTURED / "sysfs-head.txt").read_text())
    assert [(one.device, one.state, one.gbps, one.interfaces, one.slots) for one in seen.ports] == [
        ("roceP2p1s0f1", "ACTIVE", 200.0, ("enP2p1s0f1np1",), 12),
        ("rocep1s0f0", "DOWN", 40.0, ("enp1s0f0np0",), 12),
        ("rocep1s0f1", "ACTIVE", 200.0, ("enp1s0f1np1",), 12),
    ]
    assert seen.ports[2] == RdmaPort(
        device="rocep1s0f1",
        port=1,
        state="ACTIVE",
        gbps=200.0,
        interfaces=("enp1s0f1np1",),
        gids=(
            GidEntry(0, IPv6Address("fe80::4cbb:47ff:fe10:2031"), RoCE.V1, "enp1s0f1np1"),
            GidEntry(1, IPv6Address("fe80::4cbb:47ff:fe10:2031"), RoCE.V2, "enp1s0f1np1"),
            GidEntry(2, IPv6Address("::ffff:10.40.0.1"), RoCE.V1, "enp1s0f1np1"),
            GidEntry(3, IPv6Address("::ffff:10.40.0.1"), RoCE.V2, "enp1s0f1np1"),
        ),
        slots=12,
        pci="0000:01:00.1",
        pcie_width=4,
        pcie_width_max=16,
        firmware="28.45.4028",
    )
    assert seen.ports[1].nonfatal == 2
    assert seen.link("enp1s0f1np1") == NetLink("enp1s0f1np1", 9000, 200000, "7c8d9c0003e4f2a8/p1")
    # NET-11: -1 is unknown, and so is what could not be read
    assert [one.mbps for one in seen.links if one.name in ("enp1s0f0np0", "lo")] == [None, None]


def test_a_node_without_rdma_has_only_interfaces():
    assert parse_fabric("net/lo/mtu:65536\n") == Fabric((), (NetLink("lo", 65536),))
    assert parse_fabric("") == Fabric()


def test_soft_roce_is_named_by_its_parent_and_has_no_pci_function():
    text = """rdma/rxe0/ports/1/slots:1024
rdma/rxe0/ports/1/state:4: ACTIVE
rdma/rxe0/ports/1/rate:2.5 Gb/sec (1X SDR)
rdma/rxe0/parent:eth1
rdma/rxe0/ports/1/gids/1:0000:0000:0000:0000:0000:ffff:0a28:0001
rdma/rxe0/ports/1/gid_attrs/types/1:RoCE v2
rdma/rxe0/ports/1/gid_attrs/ndevs/1:eth1
"""
    (one,) = parse_fabric(text).ports
    assert (one.interfaces, one.pci, one.gbps, [gid.index for gid in one.gids]) == (("eth1",), "", 2.5, [1])


def test_gids_are_in_the_order_of_their_numbers_and_one_without_a_type_is_kept_as_unknown():
    rows = "".join(f"rdma/d/ports/1/gids/{index}:fe80:0000:0000:0000:0000:0000:0000:0001\n" for index in (10, 100, 2))
    (one,) = parse_fabric(rows).ports
    assert [(gid.index, gid.kind) for gid in one.gids] == [(index, RoCE.UNKNOWN) for index in (2, 10, 100)]


@pytest.mark.parametrize("line", ["what is this", "rdma/d/ports/1/gids/3:nonsense"])
def test_what_cannot_be_read_is_shown(line):
    with pytest.raises(Unreadable):
        parse_fabric(line)
