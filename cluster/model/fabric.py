"""What can be seen of a node's RDMA devices and network interfaces."""

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address


class RoCE(StrEnum):
    """The type of a GID entry, as sysfs writes it."""

    V1 = "IB/RoCE v1"
    V2 = "RoCE v2"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class GidEntry:
    """One filled slot of a port's GID table. An empty slot is no entry."""

    index: int
    gid: IPv6Address
    kind: RoCE
    interface: str

    @property
    def ipv4(self) -> IPv4Address | None:
        return self.gid.ipv4_mapped


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """One port of an RDMA device.

    gbps        the rate it reports; a port that is down reports a stale one
    interfaces  its network interfaces
    slots       how many slots its GID table has, empty ones included
    pci         address of its PCI function; pcie_width is the number of lanes in use, and the number it could use
    fatal       fatal and non-fatal PCIe errors counted since the last boot
    """

    device: str
    port: int
    state: str
    gbps: float | None = None
    interfaces: tuple[str, ...] = ()
    gids: tuple[GidEntry, ...] = ()
    slots: int = 0
    link_layer: str = "Ethernet"
    pci: str = ""
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    firmware: str = ""
    fatal: int = 0
    nonfatal: int = 0

    @property
    def is_active(self) -> bool:
        return self.state == "ACTIVE"


@dataclass(frozen=True, slots=True)
class NetLink:
    """A network interface; `socket` names the physical port behind it and is empty when the driver does not say."""

    name: str
    mtu: int
    mbps: int | None = None
    socket: str = ""


@dataclass(frozen=True, slots=True)
class Fabric:
    """RDMA ports and network interfaces of one node."""

    ports: tuple[RdmaPort, ...] = ()
    links: tuple[NetLink, ...] = ()

    def link(self, name: str) -> NetLink | None:
        return next((one for one in self.links if one.name == name), None)


NO_FABRIC = Fabric()


@dataclass(frozen=True, slots=True)
class PortLook:
    """An RDMA port as a look in passing sees it."""

    device: str
    port: int
    state: str
    gbps: float | None
    interfaces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FabricLook:
    """One end of the fabric now; `interface` is None when no interface has the fabric address.

    received, sent  bytes since the interface is there, through the kernel and past it
    """

    interface: str | None
    carrier: bool
    mbps: int | None
    mtu: int | None
    received: int
    sent: int
    ports: tuple[PortLook, ...] = ()


@dataclass(frozen=True, slots=True)
class Transport:
    """What NCCL said in a rank's log of how it talks to the other ranks; empty while it has said nothing.

    kind        `IB` for RDMA, `Socket`, or the name of another plugin
    devices     RDMA ports as NAME:PORT, or interfaces
    gpu_direct  whether the network card reads the GPU's memory itself; None when nothing was said
    gids        indices of the GIDs that connections were made with
    """

    kind: str = ""
    devices: tuple[str, ...] = ()
    gpu_direct: bool | None = None
    gids: tuple[int, ...] = ()


NOTHING_SAID = Transport()
