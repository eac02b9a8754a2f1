"""What can be seen on a node: addresses, listening ports, memory, what a rank would run."""

from dataclasses import dataclass

from cluster.model.fabric import NO_FABRIC, Fabric
from cluster.model.host import NO_HOST, Gpu, Host, Reached
from cluster.model.units import Bytes


@dataclass(frozen=True, slots=True)
class Address:
    """One IPv4 address; `is_loopback` is the interface's flag, for an alias on `lo` looks like any other address."""

    interface: str
    address: str
    prefix: int
    is_loopback: bool
    mtu: int
    is_up: bool
    by_dhcp: bool = False


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening TCP socket; `address` is `*` for all of them. `holder` is empty when we may not see it."""

    address: str
    port: int
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """`cached` comes back when it is needed; `swapped` is out. Both are 0 where nobody asked."""

    total: Bytes
    free: Bytes
    available: Bytes
    cached: Bytes = Bytes(0)
    swapped: Bytes = Bytes(0)


@dataclass(frozen=True, slots=True)
class ModelSeen:
    """`how` says what the digest covers: contents, headers or sizes.

    outside  folders that links lead to, and that a container with this folder alone does not see
    """

    present: bool
    files: int
    size: Bytes
    digest: str
    how: str
    unreadable: tuple[str, ...]
    outside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """What a rank on this node would run, and which machine this is. `tools` build kernels: where each is, or ""."""

    python: str
    packages: tuple[tuple[str, str], ...]
    has_server: bool
    model: ModelSeen | None
    argv_digest: str | None
    key_mode: int | None
    key_problem: str
    state_free: Bytes
    state_writable: bool
    state_path: str
    hostname: str
    machine: str
    machine_id: str
    boot_id: str
    tools: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Hca:
    """An RDMA device port with its network interface, as sysfs shows it."""

    device: str
    port: int
    interface: str
    state: str
    rate: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node at one moment.

    addressing  the GPU's mode, "" when it does not say, None when nobody asked
    servers     native ExLlamaV3 servers as `PID command line`, None when nobody asked
    """

    node: str
    addresses: tuple[Address, ...]
    listeners: tuple[Listener, ...]
    memory: Memory
    hcas: tuple[Hca, ...] = ()
    fabric: Fabric = NO_FABRIC
    host: Host = NO_HOST
    gpus: tuple[Gpu, ...] = ()
    reached: tuple[Reached, ...] = ()
    addressing: str | None = None
    servers: tuple[str, ...] | None = None
