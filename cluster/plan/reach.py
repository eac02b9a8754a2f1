"""What other nodes answer over the fabric: open, no listener, filtered, rejected; and whether big packets pass."""

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import IPv4Address, ip_network

from cluster.model.events import Finding, Severity
from cluster.model.facts import NodeFacts
from cluster.model.host import Reached
from cluster.model.settings import Settings
from cluster.plan.link import HOST_ROUTE
from cluster.plan.rates import df_payload

HOST_UNREACHABLE, NET_UNREACHABLE, PROHIBITED = 113, 101, 13
FREE_PORT = 45678  # nobody listens there, and NCCL's own ports are as high
BLINK_SECONDS = 5  # an address is gone for about a second after `netplan apply`, its GID a little longer


class Door(StrEnum):
    """What a TCP connection met."""

    OPEN = "open"
    NO_LISTENER = "no_listener"
    FILTERED = "filtered"
    REJECTED = "rejected"
    UNREACHABLE = "unreachable"


def door(told: str, ping: bool | None) -> Door:
    """A refusal proves the way there; silence does not; “no route” from a node that answers ping is a firewall's."""
    match told:
        case "open":
            return Door.OPEN
        case "refused":
            return Door.NO_LISTENER
        case "timeout":
            return Door.FILTERED
        case _:
            number = told.removeprefix("errno ")
            is_firewall = ping and number in map(str, (HOST_UNREACHABLE, NET_UNREACHABLE, PROHIBITED))
            return Door.REJECTED if is_firewall else Door.UNREACHABLE


def ports_wanted(settings: Settings, to: str) -> tuple[int, ...]:
    """What one node must reach of another: ssh, a port like NCCL's own, and on the head the rendezvous."""
    ports = (22, FREE_PORT)
    return (*ports, settings.serve.master_port) if to == settings.head.name else ports


def check_reach(settings: Settings, node: str, reached: tuple[Reached, ...]) -> tuple[Finding, ...]:
    """From one node to every other, as it was seen on it."""
    names = {one.address: one.name for one in settings.nodes}
    return tuple(
        finding for one in reached for finding in (_reach(node, names, one), _jumbo(node, names, one), _ssh(node, one))
    )


def _reach(node: str, names: Mapping[str, str], one: Reached) -> Finding:
    doors = {port: door(told, one.ping) for port, told in one.ports if port != 22}
    to = f"{names.get(one.address, '')} ({one.address})"
    closed = [f"port {port} {kind}" for port, kind in doors.items() if kind in (Door.FILTERED, Door.UNREACHABLE)]
    if closed and not one.ping and all(kind in (Door.FILTERED, Door.UNREACHABLE) for kind in doors.values()):
        observed = f"{to} does not answer over {one.interface or 'any interface'}"
        fix = f"ping -I {one.interface or 'IFACE'} {one.address}; ip route get {one.address}; check cable and addresses"
        return Finding("FABRIC.REACH", Severity.REFUSAL, node, observed, "an answer over the fabric", fix)
    fix = f"on {names.get(one.address, one.address)}: sudo ufw allow from {_own(names, node)}"
    if closed:
        observed = f"{to} answers ping, but {', '.join(closed)}: a firewall drops packets"
        return Finding("FABRIC.REACH", Severity.REFUSAL, node, observed, "every port open between the nodes", fix)
    rejected = [str(port) for port, kind in doors.items() if kind is Door.REJECTED]
    if rejected:
        observed = f"{to} rejects port {', '.join(rejected)}: a firewall"
        return Finding("FABRIC.REACH", Severity.WARNING, node, observed, "every port open between the nodes", fix)
    return Finding("FABRIC.REACH", Severity.OK, node, f"{to} answers over {one.interface}")


def _own(names: Mapping[str, str], node: str) -> str:
    return next((address for address, name in names.items() if name == node), "the other node")


def _jumbo(node: str, names: Mapping[str, str], one: Reached) -> Finding:
    """A packet that fills the interface's MTU and may not be fragmented."""
    if one.full is None or one.mtu is None or (not one.full and not one.ping):
        return Finding("FABRIC.JUMBO", Severity.NOT_CHECKED, node, f"no ping to {one.address}")
    size = df_payload(one.mtu)
    if one.full:
        return Finding("FABRIC.JUMBO", Severity.OK, node, f"{size} bytes pass whole to {one.address}")
    observed = f"small packets reach {one.address}, but {size} bytes do not (MTU {one.mtu} on {one.interface})"
    fix = f"ping -M do -s {size} {one.address}; set one MTU on both ends and on a switch between them"
    other = names.get(one.address, one.address)
    return Finding("FABRIC.JUMBO", Severity.REFUSAL, node, observed, f"packets of {one.mtu} to {other}", fix)


def _ssh(node: str, one: Reached) -> Finding:
    told = dict(one.ports).get(22, "")
    if told == "open":
        return Finding("FABRIC.SSH", Severity.OK, node, f"{one.address} takes ssh over the fabric")
    fix = "only needed to copy or share weights over the fabric: let sshd listen there"
    return Finding("FABRIC.SSH", Severity.NOTE, node, f"{one.address} takes no ssh over the fabric ({told})", "", fix)


def may_blink(settings: Settings, facts: Mapping[str, NodeFacts], findings: tuple[Finding, ...]) -> bool:
    """Whether what is missing may be back in a moment: an address or its GID, and nothing that was set wrong."""
    wanted = {node.name: node.address for node in settings.nodes}
    return any(
        one.severity is Severity.REFUSAL
        and (
            (
                one.id == "FABRIC.ADDRESS"
                and "on no interface" in one.observed
                and not _has_neighbour(wanted[one.node], facts[one.node])
            )
            or (one.id == "FABRIC.GID" and "has no RoCE v2 entry" in one.observed)
            or (one.id == "FABRIC.HCA" and "no IPv4 address on" in one.observed)
        )
        for one in findings
    )


def _has_neighbour(address: str, facts: NodeFacts) -> bool:
    """The node has another address of that subnet: its interface is set up, only not with what the settings say."""
    return any(
        IPv4Address(address) in ip_network(f"{one.address}/{one.prefix}", strict=False)
        for one in facts.addresses
        if not one.is_loopback and one.prefix < HOST_ROUTE
    )
