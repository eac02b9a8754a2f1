"""Which interface carries a rank's fabric address, and whether that address can be reached by the other ranks."""

from ipaddress import ip_network

from cluster.model.events import Finding, Severity
from cluster.model.facts import Address, NodeFacts
from cluster.model.settings import NodeSettings
from cluster.plan.launch import Wiring

HOST_ROUTE = 31  # prefixes from here on hold no second interface


def wire(node: NodeSettings, facts: NodeFacts, alone: bool) -> tuple[Wiring, tuple[Finding, ...]]:
    """The wiring of one rank and what there is to say about it. `alone`: all ranks are on this very machine."""
    carrying = [one for one in facts.addresses if one.address == node.address]
    fitting = [one for one in carrying if not node.interface or one.interface == node.interface]
    wired = Wiring(node.address, fitting[0].interface if fitting else node.interface, node.hca, node.gid)
    match carrying, fitting:
        case [], _:
            return wired, (_absent(node, facts),)
        case _, []:
            return wired, (_elsewhere(node, carrying[0]),)
        case _, [one, *_] if one.is_loopback and not alone:
            return wired, (_loopback(node, facts, one),)
        case _, [one, *_] if not one.is_up:
            fix = f"plug the cable in, at both ends; then `ip -br link show {one.interface}` says LOWER_UP"
            return wired, (_finding(node, Severity.REFUSAL, f"{one.interface} has no carrier", "a link", fix),)
        case _:
            observed = f"{node.address} on {wired.interface}"
            return wired, (_finding(node, Severity.OK, observed),)


def subnets(facts: NodeFacts, wired: Wiring) -> Finding:
    """One subnet on two interfaces, one of the fabric: the kernel answers on either, and a rail takes the wrong way."""
    rails = {wired.interface} | {name for port in facts.fabric.ports for name in port.interfaces}
    nets: dict[str, set[str]] = {}
    for one in facts.addresses:
        if not one.is_loopback and one.is_up and one.prefix < HOST_ROUTE:
            nets.setdefault(str(ip_network(f"{one.address}/{one.prefix}", strict=False)), set()).add(one.interface)
    doubled = {net: names for net, names in nets.items() if len(names) > 1 and names & rails}
    if not doubled:
        return Finding("FABRIC.SUBNET", Severity.OK, facts.node, "every fabric interface has a subnet of its own")
    told = "; ".join(f"{net} is on {' and '.join(sorted(names))}" for net, names in doubled.items())
    fix = "give each interface a subnet of its own, the same on all nodes: e.g. 10.40.0.0/24 and 10.41.0.0/24"
    return Finding("FABRIC.SUBNET", Severity.WARNING, facts.node, told, "one subnet per interface", fix)


def _absent(node: NodeSettings, facts: NodeFacts) -> Finding:
    if dark := _without_carrier(node, facts):
        return _finding(
            node,
            Severity.REFUSAL,
            f"{node.address} is on no interface of this node, and no carrier is on {', '.join(dark)}",
            "a link: without one networkd takes the addresses of an interface away",
            f"plug the cable in, at both ends; then `ip -br addr show {dark[0]}` has {node.address}",
        )
    there = ", ".join(f"{one.address} ({one.interface})" for one in facts.addresses if not one.is_loopback)
    return _finding(
        node,
        Severity.REFUSAL,
        f"{node.address} is on no interface of this node; it has {there or 'no IPv4 address'}",
        "the fabric address of this node",
        f"set {_variable(node, 'IP')} to one of them, or give the interface its address back",
    )


def _without_carrier(node: NodeSettings, facts: NodeFacts) -> tuple[str, ...]:
    """The interface the settings name, or all of RDMA, when none of them is up: a second port may well be dark."""
    ports = [one for one in facts.fabric.ports if not node.interface or node.interface in one.interfaces]
    if any(one.is_active for one in ports):
        return ()
    return tuple(dict.fromkeys(name for one in ports for name in one.interfaces))


def _elsewhere(node: NodeSettings, found: Address) -> Finding:
    return _finding(
        node,
        Severity.REFUSAL,
        f"{node.address} is on {found.interface}, not on {node.interface}",
        f"{node.address} on {node.interface}",
        f"leave {_variable(node, 'CX7_IF')} empty: it is read on the node",
    )


def _loopback(node: NodeSettings, facts: NodeFacts, found: Address) -> Finding:
    better = next((one.address for one in facts.addresses if not one.is_loopback and one.is_up), "")
    return _finding(
        node,
        Severity.REFUSAL,
        f"{node.address} is an alias on the loopback interface {found.interface}: no other rank can connect to it",
        "an address on the fabric interface",
        f"set {_variable(node, 'IP')}={better}" if better else "give the fabric interface an address",
    )


def _finding(node: NodeSettings, severity: Severity, observed: str, expected: str = "", fix: str = "") -> Finding:
    return Finding("FABRIC.ADDRESS", severity, node.name, observed, expected, fix)


def _variable(node: NodeSettings, suffix: str) -> str:
    return f"the `{suffix}` setting of {node.name}"
