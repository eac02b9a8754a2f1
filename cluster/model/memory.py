"""What is known about a node's memory, and the sizes of a model's tensors; values only."""

from dataclasses import dataclass

from cluster.model.units import Bytes

GIB = 2**30


@dataclass(frozen=True, slots=True)
class MemInfo:
    """/proc/meminfo, as far as a decision rests on it. Lines that a kernel does not have are 0."""

    total: Bytes
    free: Bytes
    available: Bytes
    cached: Bytes = Bytes(0)
    anonymous: Bytes = Bytes(0)
    shared: Bytes = Bytes(0)
    unreclaimable: Bytes = Bytes(0)
    swap_total: Bytes = Bytes(0)
    swap_free: Bytes = Bytes(0)
    huge_total: int = 0
    huge_free: int = 0
    huge_size: Bytes = Bytes(0)
    contiguous_total: Bytes = Bytes(0)
    contiguous_free: Bytes = Bytes(0)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds memory: a container, a service, or the processes of one session. GPU memory is in nobody's RSS."""

    name: str
    size: Bytes
    pid: int
    gpu: Bytes = Bytes(0)

    @property
    def whole(self) -> Bytes:
        return Bytes(self.size + self.gpu)


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """A node's /dev/shm."""

    size: Bytes
    free: Bytes


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """A node's memory at one moment.

    machine  the kernel's boot id: two nodes that share it are one machine
    killers  state of the services that end processes when memory is short, as systemd says it
    """

    node: str
    info: MemInfo
    holders: tuple[Holder, ...] = ()
    has_gpu: bool = False
    shm: SharedMemory | None = None
    killers: tuple[tuple[str, str], ...] = ()
    machine: str = ""


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """Tensors that differ in nothing but a number: `name` has `#` for the layer, `*` for any further number."""

    name: str
    layer: int | None
    count: int
    size: Bytes


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model as the headers of its files and its config.json say it; 0 and "" where config.json is silent."""

    groups: tuple[TensorGroup, ...]
    files: int = 0
    problems: tuple[str, ...] = ()
    kind: str = ""
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_size: int = 0
    latent: int = 0
    longest: int = 0

    @property
    def size(self) -> Bytes:
        return Bytes(sum(group.size for group in self.groups))

    @property
    def tensors(self) -> int:
        return sum(group.count for group in self.groups)
