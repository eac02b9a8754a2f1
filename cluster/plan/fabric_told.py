"""What a look at each end of the fabric says: its state for `status`, and what is wrong with it as a first cause."""

from collections.abc import Iterable

from cluster.model.fabric import FabricLook, PortLook
from cluster.model.settings import NodeSettings
from cluster.model.status import FabricStatus
from cluster.plan.hca import parse_selector


def fabric_status(node: NodeSettings, seen: FabricLook) -> FabricStatus:
    """Of the RDMA ports, those that the settings name, or that belong to the interface."""
    ports = _mine(node, seen)
    return FabricStatus(
        address=node.address,
        interface=seen.interface or "",
        up=seen.interface is not None and seen.carrier,
        mbps=seen.mbps,
        mtu=seen.mtu,
        rdma=tuple(f"{one.device}:{one.port}" for one in ports),
        rdma_active=sum(one.state == "ACTIVE" for one in ports),
        received=seen.received,
        sent=seen.sent,
        problem=_problem(node, seen, ports),
    )


def cut(nodes: Iterable[tuple[str, FabricStatus | None]]) -> tuple[str, ...]:
    """Why ranks that need each other cannot talk, by node."""
    return tuple(f"the fabric is cut: {one.problem} (on {name})" for name, one in nodes if one and one.problem)


def _problem(node: NodeSettings, seen: FabricLook, ports: tuple[PortLook, ...]) -> str:
    if seen.interface is None:
        return f"no interface has the address {node.address} any more"
    if not seen.carrier:
        return f"{seen.interface} has no carrier: the cable is out, or the other end is down"
    down = [f"{one.device} is {one.state}" for one in ports if one.state != "ACTIVE"]
    return ", ".join(down)


def _mine(node: NodeSettings, seen: FabricLook) -> tuple[PortLook, ...]:
    if not node.hca:
        return tuple(one for one in seen.ports if seen.interface in one.interfaces)
    wanted = parse_selector(node.hca)
    named = {name for name, _ in wanted.names} if not wanted.excludes else set()
    chosen = (one for one in seen.ports if wanted.takes(one.device, one.port))
    return tuple(one for one in chosen if one.state == "ACTIVE" or one.device in named)
