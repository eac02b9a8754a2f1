"""What `status` says of one end of the fabric."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FabricStatus:
    """One node's end of the fabric as seen.

    address, interface   what its rank talks through; the interface is empty when none has the address
    up                   whether the interface has a carrier
    mbps, mtu            of the interface, null when it does not say
    rdma, rdma_active    the RDMA ports that belong to it, and how many of them are active
    received, sent       bytes since the interface is there, RDMA included
    in_rate, out_rate    bytes per second since the look before; null in the first look
    problem              what keeps the ranks from talking; empty when nothing does
    """

    address: str
    interface: str
    up: bool
    mbps: int | None = None
    mtu: int | None = None
    rdma: tuple[str, ...] = ()
    rdma_active: int = 0
    received: int = 0
    sent: int = 0
    in_rate: float | None = None
    out_rate: float | None = None
    problem: str = ""
