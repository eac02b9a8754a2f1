"""A first `.env` (cluster.yaml for more than two nodes) from what was seen on the nodes. Asks and writes nothing."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network
from itertools import product

from cluster.config.dotenv import quote
from cluster.model.facts import Address, Hca

_VIRTUAL = re.compile(r"(docker|br-|veth|virbr|cni|flannel|cali|tailscale|wg|tun|tap|zt|podman|lxc|vnet)")
_TWIN = re.compile(r"(?:enP\d+p|enp)(.+)")


@dataclass(frozen=True, slots=True)
class Seen:
    """What init saw of one node. `control` is how it was reached: `local`, or [user@]host[:port]."""

    control: str
    addresses: tuple[Address, ...]
    hcas: tuple[Hca, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """The text of the file `name`, and what a person should decide or know before it is written."""

    name: str
    text: str
    questions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wire:
    """One subnet that all nodes are on, with each node's address there; `devices` are empty without RDMA."""

    network: IPv4Network
    addresses: tuple[Address, ...]
    devices: tuple[str, ...]
    rates: tuple[str, ...]

    @property
    def is_fast(self) -> bool:
        return all(self.devices)

    @property
    def is_second_rail(self) -> bool:
        """Whether this is the twin of a port: the same socket on the other PCIe domain, whose names have `enP`."""
        return all(one.interface.startswith("enP") for one in self.addresses)

    @property
    def sort_key(self) -> tuple[bool, bool, int, str]:
        return (not self.is_fast, self.is_second_rail, -min(one.mtu for one in self.addresses), str(self.network))


def propose(seen: Sequence[Seen]) -> Proposal:
    """The head first. One machine gets the demo; two get a `.env`, more a cluster.yaml."""
    if len(seen) < 2:
        return _alone()
    wires = sorted(_shared(seen), key=lambda wire: wire.sort_key)
    questions = _questions(seen, wires)
    if len(seen) == 2:
        return Proposal(".env", _env_text(seen, wires), questions)
    return Proposal("cluster.yaml", _cluster_text(seen, wires), questions)


def _alone() -> Proposal:
    text = (
        "# One machine: the demo runs both ranks here, without a GPU.\n"
        "# With a second machine: sparkctl init again, and give it the worker.\n"
        "RECIPE=demo\n"
    )
    return Proposal(".env", text)


def usable(node: Seen) -> tuple[Address, ...]:
    """Addresses another node could reach: no loopback, also no alias on it, nothing virtual, nothing that is down."""
    return tuple(
        one for one in node.addresses if not one.is_loopback and one.is_up and not _VIRTUAL.match(one.interface)
    )


def _shared(seen: Sequence[Seen]) -> Iterable[Wire]:
    """Every way to take one address of each node, all on one subnet and all different."""
    networks = set.intersection(*({_network(one) for one in usable(node)} for node in seen))
    for network in networks:
        there = [[one for one in usable(node) if _network(one) == network] for node in seen]
        for chosen in product(*there):
            if len({one.address for one in chosen}) == len(chosen):
                devices = [_device(node, one.interface) for node, one in zip(seen, chosen, strict=True)]
                names = tuple(device.device if device else "" for device in devices)
                rates = tuple(device.rate if device else "" for device in devices)
                yield Wire(network, chosen, names, rates)


def _network(one: Address) -> IPv4Network:
    return IPv4Interface(f"{one.address}/{one.prefix}").network


def _device(node: Seen, interface: str) -> Hca | None:
    return next((one for one in node.hcas if one.interface == interface and one.state == "ACTIVE"), None)


def _questions(seen: Sequence[Seen], wires: Sequence[Wire]) -> tuple[str, ...]:
    asked = []
    if not wires:
        asked.append(
            f"No subnet is on all nodes: {'; '.join(_told(node) for node in seen)}. Which addresses are right?"
        )
    elif not wires[0].is_fast:
        text = f"No RDMA device is behind {wires[0].network} on every node: collectives will go over plain TCP."
        asked.append(text)
    rivals = [wire for wire in wires[1:] if wire.is_fast and not _are_twins(wire, wires[0])]
    if rivals:
        others = ", ".join(str(wire.network) for wire in rivals)
        asked.append(f"More than one fast subnet is on all nodes: {wires[0].network} is proposed; also {others}.")
    if wires and wires[0].network.is_link_local:
        asked.append(f"{wires[0].network} is link-local: such addresses may change at a reboot; fixed ones are safer.")
    asked += [text for node in seen for text in _aliases(node)]
    return tuple(asked)


def _aliases(node: Seen) -> Iterable[str]:
    for one in node.addresses:
        if one.is_loopback and not one.address.startswith("127."):
            where = "this machine" if node.control == "local" else node.control
            yield f"{one.address} on {where} is an alias on {one.interface}: no other node can reach it."


def _told(node: Seen) -> str:
    found = ", ".join(f"{one.address}/{one.prefix} ({one.interface})" for one in usable(node))
    return f"{node.control} has {found or 'no usable address'}"


def _are_twins(one: Wire, other: Wire) -> bool:
    """Whether both use the same sockets of every node, each over its own PCIe domain."""
    return all(
        _socket(left.interface) == _socket(right.interface)
        for left, right in zip(one.addresses, other.addresses, strict=True)
    )


def _socket(interface: str) -> str:
    found = _TWIN.fullmatch(interface)
    return found[1] if found else interface


def _env_text(seen: Sequence[Seen], wires: Sequence[Wire]) -> str:
    lines = [
        "# Written by sparkctl init from what it saw on the nodes. `sparkctl config` shows every other setting.",
        "",
    ]
    for index, prefix in enumerate(("HEAD", "WORKER")):
        lines += [f"{prefix}_SSH={quote(seen[index].control)}", *_node_lines(prefix, index, wires), ""]
    lines += [*_twin_lines(wires), "# The GID index of each RDMA device is found before every boot.", ""]
    lines += ["# What to serve: a recipe, or a model and the environment that has vLLM, each the same on both nodes."]
    lines += ["#RECIPE=", "#MODEL_DIR=~/models/NAME", "#VENV=~/vllm", ""]
    return "\n".join(lines)


def _node_lines(prefix: str, index: int, wires: Sequence[Wire]) -> list[str]:
    if not wires:
        return [f"#{prefix}_IP="]
    best = wires[0]
    address, device = best.addresses[index], best.devices[index]
    lines = [f"{prefix}_IP={address.address} # on {best.network}", f"{prefix}_CX7_IF={quote(address.interface)}"]
    if device:
        lines.append(f"{prefix}_CX7_IB={quote(device)} # {best.rates[index] or 'rate unknown'}")
    return lines


def _twin_lines(wires: Sequence[Wire]) -> list[str]:
    twins = [wire for wire in wires[1:] if wire.is_fast and _are_twins(wire, wires[0])]
    return [
        f"# The same cable's other half: {' and '.join(one.interface for one in wire.addresses)} on {wire.network}."
        for wire in twins
    ]


def _cluster_text(seen: Sequence[Seen], wires: Sequence[Wire]) -> str:
    lines = ["# Written by sparkctl init from what it saw on the nodes; the head stands first.", "nodes:"]
    for index, node in enumerate(seen):
        lines.append(f'  - control: "{node.control}"')
        if wires:
            best = wires[0]
            lines += [f'    address: "{best.addresses[index].address}"']
            lines += [f'    interface: "{best.addresses[index].interface}"']
            lines += [f'    hca: "{best.devices[index]}"'] if best.devices[index] else []
    lines += ["", "serve:", f"  tensor_parallel: {len(seen)}", *_twin_lines(wires), ""]
    return "\n".join(lines)
