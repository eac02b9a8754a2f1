"""Containers and images as we ask for them and as an engine shows them."""

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from cluster.model.units import Bytes, Seconds

LABEL = "sparkctl."


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the node or, when `source` has no slash, a volume."""

    source: str
    target: str
    read_only: bool = True


def with_targets(mount: Mount) -> tuple[Mount, ...]:
    """A snapshot of the hub's cache holds links to ../../blobs: a container needs those beside it, where they lead."""
    source = PurePosixPath(mount.source)
    if source.parent.name != "snapshots" or not source.parent.parent.name.startswith("models--"):
        return (mount,)
    repository, inner = source.parent.parent, PurePosixPath("snapshots") / source.name
    target = PurePosixPath(mount.target)
    if PurePosixPath(*target.parts[-2:]) == inner:
        return (replace(mount, source=str(repository), target=str(target.parent.parent)),)
    return (mount, replace(mount, source=str(repository / "blobs"), target=str(target.parent.parent / "blobs")))


@dataclass(frozen=True, slots=True)
class Seccomp:
    """Which system calls a container may make. A command line names the node's file, an engine is told its text."""

    path: str
    profile: str


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container as it is to be created. No secret stands in it: an engine shows all of this to its users.

    image        an immutable id where one is known: a tag may be moved between a check and a start
    devices      device nodes of the node, same path inside
    gpus         all GPUs, through the engine's own means
    memlock      -1 for no limit, which RDMA needs to register memory; None leaves the engine's own, as for `stack`
    shm          size of /dev/shm; with the node's own ipc namespace it does not matter
    """

    name: str
    image: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()
    gpus: bool = False
    capabilities: tuple[str, ...] = ()
    host_network: bool = True
    host_ipc: bool = True
    shm: Bytes | None = None
    memlock: int | None = None
    stack: Bytes | None = None
    oom_score: int = 1000
    stop_grace: Seconds = Seconds(60)
    security: tuple[str, ...] = ()
    seccomp: Seccomp | None = None
    log_bytes: Bytes = Bytes(64 * 2**20)
    keep_logs: int = 3


@dataclass(frozen=True, slots=True)
class Box:
    """What one node gives its rank's container: the image by its immutable id there, mounts, devices, its engine.

    stamped   variables that compiled graphs depend on, beside the image and mounted files; none: they are kept always
    io_uring  whether the rank reads by it, which an engine blocks unless it is told otherwise
    """

    image: str
    engine: str
    home: str = "/root"
    mounts: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()
    gpus: bool = False
    security: tuple[str, ...] = ()
    stamped: tuple[str, ...] = ()
    io_uring: bool = False


@dataclass(frozen=True, slots=True)
class ImageSeen:
    """`layers` are the diff ids in order: they are the same in every store, which an id is not."""

    id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    layers: tuple[str, ...]
    architecture: str
    system: str
    labels: tuple[tuple[str, str], ...]
    size: Bytes
    driver: str


def shipped_name(reference: str) -> str:
    """The name that an image is sent under: only a registry gives it a digest, so that one becomes a tag."""
    path, _, digest = reference.partition("@")
    folder, slash, last = path.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}:{digest.replace(':', '-')}" if digest else reference


@dataclass(frozen=True, slots=True)
class ContainerSeen:
    """A container of ours, found by its labels."""

    id: str
    name: str
    image: str
    state: str
    exit_code: int | None
    restarts: int
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """`store` is the image store's driver: overlay2 and the like, or overlayfs for containerd's.

    keeps    folders where a containerd store may keep its blobs, the likeliest first; none for an older kind of store
    """

    version: str
    api: str
    architecture: str
    store: str
    containerd_store: bool
    root: str
    runtimes: tuple[str, ...]
    keeps: tuple[str, ...] = ()
