"""How a node is set up: kernel, limits, services, swap, caches, driver; and what it can reach of the others."""

from dataclasses import dataclass

from cluster.model.units import Bytes


@dataclass(frozen=True, slots=True)
class Owner:
    """What configures an interface; `by` is networkd, NetworkManager or ifupdown; `lost` is why a reboot ends it."""

    interface: str
    by: str
    file: str = ""
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder with compiled kernels; `oldest` is the time of its oldest entry, None when it has none."""

    path: str
    filesystem: str
    oldest: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """As nvidia-smi tells it; `limits` are the reasons that hold its clock down now."""

    name: str
    driver: str
    state: str
    watts: float | None
    limits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """None is absent; a text that is empty could not be read.

    cma_total, cma_free  contiguous memory of the kernel; free above total is the mark of kexec handover
    memlock              what `ulimit -l` says: KiB, or unlimited
    lingers              whether the user's processes survive the last logout
    services             those of the ones asked about that are active
    managers             network managers that run, or have run, here
    devices              container device files (CDI) with the driver version in them
    driver_since         when the driver's library was installed
    """

    kernel: str = ""
    command_line: str = ""
    cma_total: Bytes = Bytes(0)
    cma_free: Bytes = Bytes(0)
    swap_total: Bytes = Bytes(0)
    swap_free: Bytes = Bytes(0)
    min_free: Bytes | None = None
    watermark_scale: int | None = None
    memlock: str = ""
    uid: int | None = None
    user: str = ""
    removes_ipc: bool | None = None
    lingers: bool | None = None
    services: tuple[str, ...] = ()
    firewall_on: bool | None = None
    managers: tuple[str, ...] = ()
    owners: tuple[Owner, ...] = ()
    host_keys: tuple[str, ...] = ()
    driver: str = ""
    driver_since: int | None = None
    devices: tuple[tuple[str, str], ...] = ()
    caches: tuple[Cache, ...] = ()
    product: str = ""
    firmware: str = ""
    nccl_files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Reached:
    """One other node as reached over its fabric address.

    ping, full  whether a small packet, and one that fills `mtu` unfragmented, came back; None: could not be tried
    ports       port -> open, refused, timeout, or errno and a number
    """

    address: str
    interface: str
    mtu: int | None
    ping: bool | None
    full: bool | None
    ports: tuple[tuple[int, str], ...] = ()


NO_HOST = Host()
