"""RDMA devices for tests, in few words: the GID tables of the cases, ports, addresses."""

from dataclasses import replace
from ipaddress import IPv6Address
from typing import Any

from cluster.model.fabric import Fabric, GidEntry, NetLink, RdmaPort, RoCE
from cluster.model.facts import Address

HEAD = """
rocep1s0f1 | 1 | 0 | fe80:0000:0000:0000:4cbb:47ff:fe10:2031 | IB/RoCE v1 | enp1s0f1np1
rocep1s0f1 | 1 | 1 | fe80:0000:0000:0000:4cbb:47ff:fe10:2031 | RoCE v2 | enp1s0f1np1
rocep1s0f1 | 1 | 2 | 0000:0000:0000:0000:0000:ffff:0a28:0001 | IB/RoCE v1 | enp1s0f1np1
rocep1s0f1 | 1 | 3 | 0000:0000:0000:0000:0000:ffff:0a28:0001 | RoCE v2 | enp1s0f1np1
"""
HEAD_HOLE = """
rocep1s0f1 | 1 | 0 | fe80:0000:0000:0000:4cbb:47ff:fe10:2031 | IB/RoCE v1 | enp1s0f1np1
rocep1s0f1 | 1 | 1 | fe80:0000:0000:0000:4cbb:47ff:fe10:2031 | RoCE v2 | enp1s0f1np1
rocep1s0f1 | 1 | 2 | 0000:0000:0000:0000:0000:ffff:0a28:0001 | IB/RoCE v1 | enp1s0f1np1
rocep1s0f1 | 1 | 4 | 0000:0000:0000:0000:0000:ffff:0a28:0001 | RoCE v2 | enp1s0f1np1
"""
HEAD_SECOND_LINK_LOCAL = """
rocep1s0f1 | 1 | 0 | fe80:0000:0000:0000:4cbb:47ff:fe10:2031 | IB/RoCE v1 | enp1s0f1np1
rocep1s0f1 | 1 | 1 | fe80:0000:0000:0000:4cbb:47ff:fe10:2031 | RoCE v2 | enp1s0f1np1
rocep1s0f1 | 1 | 2 | fe80:0000:0000:0000:b1c2:93ab:5d0e:7a19 | IB/RoCE v1 | enp1s0f1np1
rocep1s0f1 | 1 | 3 | fe80:0000:0000:0000:b1c2:93ab:5d0e:7a19 | RoCE v2 | enp1s0f1np1
rocep1s0f1 | 1 | 4 | 0000:0000:0000:0000:0000:ffff:0a28:0001 | IB/RoCE v1 | enp1s0f1np1
rocep1s0f1 | 1 | 5 | 0000:0000:0000:0000:0000:ffff:0a28:0001 | RoCE v2 | enp1s0f1np1
"""
HEAD_TWIN = """
roceP2p1s0f1 | 1 | 0 | fe80:0000:0000:0000:4cbb:47ff:fe10:2035 | IB/RoCE v1 | enP2p1s0f1np1
roceP2p1s0f1 | 1 | 1 | fe80:0000:0000:0000:4cbb:47ff:fe10:2035 | RoCE v2 | enP2p1s0f1np1
roceP2p1s0f1 | 1 | 2 | 0000:0000:0000:0000:0000:ffff:0a29:0001 | IB/RoCE v1 | enP2p1s0f1np1
roceP2p1s0f1 | 1 | 3 | 0000:0000:0000:0000:0000:ffff:0a29:0001 | RoCE v2 | enP2p1s0f1np1
"""
HEAD_TWIN_TWO_ADDRESSES = (
    HEAD_TWIN
    + """
roceP2p1s0f1 | 1 | 4 | 0000:0000:0000:0000:0000:ffff:0a2b:0001 | IB/RoCE v1 | enP2p1s0f1np1
roceP2p1s0f1 | 1 | 5 | 0000:0000:0000:0000:0000:ffff:0a2b:0001 | RoCE v2 | enP2p1s0f1np1
"""
)
HEAD_TWIN_LINK_LOCAL = """
roceP2p1s0f1 | 1 | 0 | fe80:0000:0000:0000:4cbb:47ff:fe10:2035 | IB/RoCE v1 | enP2p1s0f1np1
roceP2p1s0f1 | 1 | 1 | fe80:0000:0000:0000:4cbb:47ff:fe10:2035 | RoCE v2 | enP2p1s0f1np1
"""
WORKER = """
rocep1s0f0 | 1 | 0 | fe80:0000:0000:0000:4cbb:47ff:fe10:3040 | IB/RoCE v1 | enp1s0f0np0
rocep1s0f0 | 1 | 1 | fe80:0000:0000:0000:4cbb:47ff:fe10:3040 | RoCE v2 | enp1s0f0np0
rocep1s0f0 | 1 | 2 | 0000:0000:0000:0000:0000:ffff:0a28:0002 | IB/RoCE v1 | enp1s0f0np0
rocep1s0f0 | 1 | 3 | 0000:0000:0000:0000:0000:ffff:0a28:0002 | RoCE v2 | enp1s0f0np0
"""
WORKER_AT_5 = """
rocep1s0f0 | 1 | 0 | fe80:0000:0000:0000:4cbb:47ff:fe10:3040 | IB/RoCE v1 | enp1s0f0np0
rocep1s0f0 | 1 | 1 | fe80:0000:0000:0000:4cbb:47ff:fe10:3040 | RoCE v2 | enp1s0f0np0
rocep1s0f0 | 1 | 4 | 0000:0000:0000:0000:0000:ffff:0a28:0002 | IB/RoCE v1 | enp1s0f0np0
rocep1s0f0 | 1 | 5 | 0000:0000:0000:0000:0000:ffff:0a28:0002 | RoCE v2 | enp1s0f0np0
"""
WORKER_TWIN = """
roceP2p1s0f0 | 1 | 0 | fe80:0000:0000:0000:4cbb:47ff:fe10:3044 | IB/RoCE v1 | enP2p1s0f0np0
roceP2p1s0f0 | 1 | 1 | fe80:0000:0000:0000:4cbb:47ff:fe10:3044 | RoCE v2 | enP2p1s0f0np0
roceP2p1s0f0 | 1 | 2 | 0000:0000:0000:0000:0000:ffff:0a29:0002 | IB/RoCE v1 | enP2p1s0f0np0
roceP2p1s0f0 | 1 | 3 | 0000:0000:0000:0000:0000:ffff:0a29:0002 | RoCE v2 | enP2p1s0f0np0
"""


def port(device: str, table: str = "", **more: Any) -> RdmaPort:
    """The rows of `device` in a table of the cases; an index without a row is an empty slot."""
    rows = [[word.strip() for word in line.split("|")] for line in table.splitlines() if line.strip()]
    gids = tuple(
        GidEntry(int(index), IPv6Address(gid), RoCE(kind), interface)
        for name, _, index, gid, kind, interface in rows
        if name == device
    )
    interfaces = tuple(dict.fromkeys(one.interface for one in gids))
    plain = RdmaPort(device, 1, "ACTIVE", gbps=200.0, interfaces=interfaces, gids=gids, slots=255)
    return replace(plain, **more)


def fabric(table: str, mtu: int = 9000, socket: str = "7e/p1", **changed: int) -> Fabric:
    """Every device of the table as an active port; `mtu` and `socket` for all interfaces; `eth0_mtu=1500` for one."""
    devices = dict.fromkeys(line.split("|")[0].strip() for line in table.splitlines() if line.strip())
    ports = tuple(port(device, table) for device in devices)
    names = sorted({name for one in ports for name in one.interfaces})
    return Fabric(ports, tuple(NetLink(name, changed.get(f"{name}_mtu", mtu), 200000, socket) for name in names))


def addresses(text: str) -> tuple[Address, ...]:
    """`10.40.0.1@enp1s0f1np1, 10.41.0.1@enP2p1s0f1np1`"""
    pairs = [one.split("@") for one in text.split(", ")]
    return tuple(Address(interface, address, 24, interface == "lo", 9000, True) for address, interface in pairs)
