"""Which interface carries a rank's fabric address, and whether that address can be reached by the other ranks."""

from cluster.model.events import Finding, Severity
from cluster.model.facts import Address, NodeFacts
from cluster.model.settings import NodeSettings
from cluster.plan.launch import Wiring


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
            return wired, (_finding(node, Severity.REFUSAL, f"{one.interface} has no carrier", "a link", "the cable"),)
        case _:
            observed = f"{node.address} on {wired.interface}"
            return wired, (_finding(node, Severity.OK, observed),)


def _absent(node: NodeSettings, facts: NodeFacts) -> Finding:
    there = ", ".join(f"{one.address} ({one.interface})" for one in facts.addresses if not one.is_loopback)
    return _finding(
        node,
        Severity.REFUSAL,
        f"{node.address} is on no interface of this node; it has {there or 'no IPv4 address'}",
        "the fabric address of this node",
        f"set {_variable(node, 'IP')} to one of them, or give the interface its address back",
    )


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
