"""Both ends of each rail: MTU, speed, PCIe lanes and errors; a rail is one port of every rank in one subnet."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_network

from cluster.model.events import Finding, Severity
from cluster.model.facts import NodeFacts
from cluster.plan.gid import Member
from cluster.plan.launch import Wiring
from cluster.plan.rates import PORT_GBPS, roce_mtu

End = tuple[str, NodeFacts, Wiring, tuple[Member, ...]]  # node, what was seen there, its wiring, its RDMA ports
JUMBO = 9000
LANES = 4


def check_rails(ends: Sequence[End]) -> list[Finding]:
    """What can be compared or read without sending anything."""
    found = list(_mtus(ends))
    for node, _, _, members in ends:
        for one in members:
            found += [_speed(node, one), *_lanes(node, one), *_errors(node, one)]
    return found


def _mtus(ends: Sequence[End]) -> list[Finding]:
    """Unequal ends pass every small message and break at the first large collective."""
    rails: dict[str, dict[str, tuple[str, int]]] = {}
    for node, facts, wired, members in ends:
        named = {one.interface for one in members} or {wired.interface}
        for address in facts.addresses:
            if address.interface in named and not address.is_loopback:
                net = str(ip_network(f"{address.address}/{address.prefix}", strict=False))
                link = facts.fabric.link(address.interface)
                rails.setdefault(net, {})[node] = (address.interface, link.mtu if link else address.mtu)
    by_rdma = any(members for _, _, _, members in ends)
    return [_mtu(net, seen, by_rdma) for net, seen in rails.items() if len(seen) == len(ends)]


def _mtu(net: str, seen: Mapping[str, tuple[str, int]], by_rdma: bool) -> Finding:
    told = ", ".join(
        f"{interface} on {node} has {mtu}" + (f" (RoCE {roce_mtu(mtu)})" if by_rdma else "")
        for node, (interface, mtu) in seen.items()
    )
    sizes = {mtu for _, mtu in seen.values()}
    if len(sizes) > 1:
        node, (interface, _) = min(seen.items(), key=lambda one: one[1][1])
        severity = Severity.REFUSAL if by_rdma else Severity.WARNING
        fix = f"sudo ip link set dev {interface} mtu {max(sizes)}   (on {node}; then in its netplan file)"
        return Finding("FABRIC.MTU", severity, "", told, f"one MTU on both ends of {net}", fix)
    mtu = sizes.pop()
    if by_rdma and mtu < JUMBO:
        fix = "set mtu 9000 on both ends in netplan: prefill gains about 2 %"
        return Finding("FABRIC.MTU", Severity.NOTE, "", f"{mtu} on {net}: RoCE uses {roce_mtu(mtu)}", "9000", fix)
    return Finding("FABRIC.MTU", Severity.OK, "", f"{mtu} on both ends of {net}")


def _speed(node: str, one: Member) -> Finding:
    """Only of a port that is up: one that is down reports a stale rate."""
    gbps = one.port.gbps
    if gbps is None:
        return Finding("FABRIC.SPEED", Severity.NOT_CHECKED, node, f"{one.port.device} does not say its rate")
    observed = f"{one.port.device} at {gbps:g} Gb/s"
    if gbps < PORT_GBPS:
        fix = f"reseat the cable, then: sudo ip link set {one.interface} down; sudo ip link set {one.interface} up"
        return Finding("FABRIC.SPEED", Severity.WARNING, node, observed, f"{PORT_GBPS:g} Gb/s", fix)
    return Finding("FABRIC.SPEED", Severity.OK, node, observed)


def _lanes(node: str, one: Member) -> list[Finding]:
    width = one.port.pcie_width
    if width is None:
        return []
    observed = f"{one.port.device} has {width} PCIe lanes"
    if width < LANES:
        fix = "update the firmware (fwupdmgr update): before April 2026 it wired the second half with 2 lanes"
        return [Finding("FABRIC.PCIE", Severity.WARNING, node, observed, f"{LANES} lanes", fix)]
    return [Finding("FABRIC.PCIE", Severity.OK, node, observed)]


def _errors(node: str, one: Member) -> list[Finding]:
    if not one.port.fatal:
        return []
    observed = f"{one.port.device} counted {one.port.fatal} fatal PCIe error(s) since the last boot"
    fix = f"journalctl -k -g AER on {node}; such boxes lock up under load: power it off and on, ask its vendor"
    return [Finding("FABRIC.PCIE", Severity.WARNING, node, observed, "none", fix)]
