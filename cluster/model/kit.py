"""Sections of the settings tree for parts that come later: sharing, images, containers, Engram tables, the guard."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from cluster.model.table import Secret, setting


class Sync(StrEnum):
    """How the workers come to have the weights."""

    INPLACE = "inplace"
    NFS = "nfs"
    ZFS = "zfs"
    RSYNC = "rsync"
    AUTO = "auto"

    @classmethod
    def _missing_(cls, value: object) -> "Sync | None":
        return cls.NFS if value == "share" else None  # the kits' older name


class OnConflict(StrEnum):
    """What is done when a worker's dataset has what the head does not know."""

    STOP = "stop"
    ROLLBACK = "rollback"


class PageCache(StrEnum):
    """What a start does with pages of the weights that lie in memory; `auto` is what the runtime bears."""

    AUTO = "auto"
    KEEP = "keep"
    EVICT_CHECKPOINT = "evict-checkpoint"
    EVICT_ALL = "evict-all"


class Transport(StrEnum):
    """What carries NFS."""

    AUTO = "auto"
    TCP = "tcp"
    RDMA = "rdma"


class MountBy(StrEnum):
    """Who mounts an export on a worker."""

    AUTO = "auto"
    HOST = "host"
    VOLUME = "volume"


class Ship(StrEnum):
    """How the worker comes to have the image."""

    RSYNC = "rsync"
    STREAM = "stream"
    REGISTRY = "registry"
    AUTO = "auto"


class GuardMode(StrEnum):
    """What the memory guard does on a node."""

    OFF = "off"
    WATCH = "watch"
    ACT = "act"

    @classmethod
    def _missing_(cls, value: object) -> "GuardMode | None":
        return {"0": cls.OFF, "no": cls.OFF, "false": cls.OFF, "1": cls.ACT, "yes": cls.ACT, "true": cls.ACT}.get(
            str(value).lower()
        )


class EngramLayout(StrEnum):
    """How rows lie in packed Engram files."""

    DENSE = "dense"
    PAGED = "paged"


class EngramBackend(StrEnum):
    """Who reads Engram rows from files inside a rank."""

    OVERLAY = "overlay"
    OWN = "own"


class Foreign(StrEnum):
    """What the guard may do with a process that is not ours."""

    LEAVE = "leave"
    FREEZE = "freeze"
    STOP = "stop"


_CONTAINER = "the container runtime"


@dataclass(frozen=True, slots=True)
class Weights:
    """Where weights come from and how the workers come to have them."""

    sync: Sync = setting(
        Sync.INPLACE,
        "How workers get the weights: `inplace`, `nfs`, `zfs`, `rsync` or `auto`; `start` sees to it first",
        env="WEIGHT_SYNC",
    )
    force: bool = setting(
        False, "Overwrite files on a worker that differ and were not brought by sparkctl (rsync)", env="FORCE_SYNC"
    )
    skip: bool = setting(False, "`start` leaves sharing alone, and takes what is there", env="SKIP_SYNC")
    auto_download: bool = setting(
        False, "`start` fetches what is missing on the head first; needs HF_MODEL_REPO", env="AUTO_DOWNLOAD"
    )
    page_cache: PageCache = setting(
        PageCache.AUTO,
        "Pages of the weights in memory: `keep`, `evict-checkpoint` of their files, `evict-all` everybody's; `auto`: "
        "evicted with DSV41_DROP_PAGE_CACHE, kept otherwise",
        env="PAGE_CACHE",
    )
    repo: str = setting("", "Repository of the model", env="HF_MODEL_REPO")
    revision: str = setting("main", "Its branch, tag or commit", env="HF_MODEL_REVISION")
    engram_repo: str = setting("", "Repository of the Engram tables", env="HF_ENGRAM_REPO")
    engram_revision: str = setting("main", "Its branch, tag or commit", env="HF_ENGRAM_REVISION")
    hf_token: Secret | None = setting(
        None, "Token for downloads, from the environment or a file of mode 0600", env="HF_TOKEN"
    )
    hf_workers: int = setting(8, "Downloads at once", env="HF_MAX_WORKERS", low=1, high=64)
    expected_shards: int | None = setting(None, "Shards a whole model has", env="EXPECTED_SHARDS", low=1, high=100000)
    copy_streams: int = setting(4, "Streams of a copy at once (rsync)", env="COPY_STREAMS", low=1, high=16)
    copy_limit: int = setting(
        0,
        "Most megabytes a second that a copy takes, 0 for all (rsync)",
        env="COPY_LIMIT",
        low=0,
        high=10**5,
    )
    nfs_share: bool = setting(True, "May `auto` choose NFS", env="NFS_SHARE")
    nfs_transport: Transport = setting(
        Transport.AUTO,
        "What carries NFS: `rdma`, `tcp`, or `auto`, which is RDMA where every node has a device for it",
        env="NFS_TRANSPORT",
    )
    nfs_mount_by: MountBy = setting(
        MountBy.AUTO,
        "Who mounts it on a worker: the `host`, which needs root, or a `volume` of its engine, for containers; `auto`: "
        "the host, unless NFS_VOLUME_MODEL names a volume",
        env="NFS_MOUNT_BY",
    )
    nfs_image: str = setting("", "Image of an exporter, for a head without an NFS server (images/nfs)", env="NFS_IMAGE")
    nfs_container: str = setting(
        "", "Container that exports already: exports are added to it, and none is changed", env="NFS_CONTAINER"
    )
    nfs_volume_model: str = setting(
        "", "Volume with the model; named by the deployment if empty", env="NFS_VOLUME_MODEL"
    )
    nfs_volume_engram: str = setting("", "Volume with the Engram tables", env="NFS_VOLUME_ENGRAM")
    nfs_export_model: str = setting(
        "", "What the published folder of the model is called; a digest of its files follows", env="NFS_EXPORT_MODEL"
    )
    nfs_export_engram: str = setting("", "The same of the Engram tables", env="NFS_EXPORT_ENGRAM")
    nfs_export_root: str = setting(
        "",
        "Folder that is exported, on the file system of the weights; one within each folder of weights if empty",
        env="NFS_EXPORT_ROOT",
        aliases=("HF_EXPORT_ROOT",),
        is_path=True,
    )
    nfs_server: str = setting("", "Address of the exporter; HEAD_IP if empty", env="NFS_SERVER_IP")
    nfs_clients: str = setting(
        "", "Who may mount, with commas between them; exactly the workers' fabric addresses if empty", env="NFS_CLIENTS"
    )
    nfs_options: str = setting("", "Export options instead of ro,sync,no_subtree_check,root_squash", env="NFS_OPTS")
    nfs_client_options: str = setting("", "Mount options instead of those in docs/share.md", env="NFS_OPTS_CLIENT")
    zfs_pool: str = setting(
        "", "Workers' ZFS pool, or dataset, below which copies are received; the head's pool if empty", env="ZFS_POOL"
    )
    zfs_worker: str = setting("", "Worker's address for ZFS streams; WORKER_IP if empty", env="ZFS_WORKER_IP")
    zfs_ssh: str = setting("", "Worker's login for ZFS streams, [user@]host as the head knows it", env="ZFS_SSH")
    zfs_head_model: str = setting(
        "", "Head's dataset with the model; the one that its folder is mounted from if empty", env="ZFS_HEAD_MODEL_DS"
    )
    zfs_head_engram: str = setting("", "Head's dataset with the Engram tables", env="ZFS_HEAD_ENGRAM_DS")
    zfs_worker_model: str = setting(
        "", "Workers' dataset for the model; ZFS_POOL and a name of its own if empty", env="ZFS_WORKER_MODEL_DS"
    )
    zfs_worker_engram: str = setting("", "Workers' dataset for the Engram tables", env="ZFS_WORKER_ENGRAM_DS")
    zfs_conflict: OnConflict = setting(
        OnConflict.STOP,
        "When a worker's dataset went its own way: `stop`, or `rollback` to what both have; that destroys the rest",
        env="ZFS_CONFLICT",
    )
    zfs_keep: int = setting(2, "Checkpoints that are kept on each node (zfs)", env="ZFS_KEEP", low=1, high=100)


@dataclass(frozen=True, slots=True)
class Image:
    """The image of the container runtime."""

    name: str = setting("", "Image that is run in containers", env="IMAGE")
    folder: str = setting(
        "", "Folder on the head with the image's Dockerfile, to build it from", env="IMAGE_FOLDER", is_path=True
    )
    build: bool = setting(False, "Build it, whatever is there", env="BUILD")
    pull: bool = setting(False, "Pull it, whatever is there", env="PULL")
    skip_build: bool = setting(False, "Never build it", env="SKIP_BUILD")
    skip_pull: bool = setting(False, "Never pull it", env="SKIP_PULL")
    skip_ship: bool = setting(False, "Never send it to a worker", env="SKIP_SHIP")
    file: str = setting(
        "Dockerfile",
        "The Dockerfile in that folder, e.g. images/tp2/Dockerfile of sparkctl's sources",
        env="IMAGE_FILE",
    )
    arguments: tuple[str, ...] = setting(
        (), "Build arguments, each `NAME=value`; everybody who has the image can read them", env="IMAGE_ARGS"
    )
    build_network: str = setting(
        "",
        "Network of the steps of a build: `none`, `host`, or the engine's own if empty",
        env="IMAGE_BUILD_NETWORK",
        pattern="none|host|default",
        allowed="none, host or default",
    )
    skip_verify: bool = setting(
        False, "Do not run the image's own self-test on every node's GPU before a start", env="SKIP_OVERLAY_VERIFY"
    )
    ship: Ship = setting(
        Ship.AUTO,
        "How missing layers are sent: `rsync` stages them on the worker and goes on where it was cut, `stream` stages "
        "nothing, `auto` stages where there is room, `registry` keeps a registry on the head for frequent rebuilds",
        env="IMAGE_SHIP",
    )
    registry_port: int = setting(
        5055,
        "Port of the registry on the head's loopback for IMAGE_SHIP=registry; one is started where none answers",
        env="IMAGE_REGISTRY_PORT",
        low=1024,
        high=65535,
    )
    worker_ship_dir: str = setting(
        "",
        "Worker's folder to stage layers in; ~/.cache/sparkctl/blobs if empty",
        env="WORKER_IMAGE_SHIP_DIR",
        is_path=True,
    )
    ship_keep: bool = setting(False, "Keep staged layers after they were loaded", env="IMAGE_SHIP_KEEP")
    platform: str = setting("", "Platform to build for, e.g. linux/arm64", env="IMAGE_PLATFORM")
    ghcr_user: str = setting("", "User of the registry", env="GHCR_USER")
    ghcr_token: Secret | None = setting(None, "Token of the registry", env="GHCR_TOKEN")


@dataclass(frozen=True, slots=True)
class Container:
    """Names and paths of the containers."""

    engine: str = setting(
        "/var/run/docker.sock", "Socket of the container engine on every node", env="ENGINE_SOCKET", is_path=True
    )
    head: str = setting("", "Name of the head's container", env="CONTAINER_HEAD", not_yet=_CONTAINER)
    worker: str = setting("", "Name of the worker's container", env="CONTAINER_WORKER", not_yet=_CONTAINER)
    chat_template: str = setting(
        "", "Chat template on the head", env="CHAT_TEMPLATE_HOST", is_path=True, not_yet=_CONTAINER
    )
    engram: str = setting("", "Engram tables inside", env="ENGRAM_MOUNT", is_path=True)
    packed: str = setting("", "Packed Engram files inside", env="PACKED_MOUNT", is_path=True)
    mounts: tuple[str, ...] = setting(
        (), "Further folders and files of the node inside, each `source:target` or `source:target:rw`", env="MOUNTS"
    )
    cache_stamp: tuple[str, ...] = setting(
        (),
        "Variables that compiled graphs depend on: when one changes, or the image or a mounted file, "
        "torch_compile_cache in folders that the container may write is emptied",
        env="CACHE_STAMP",
    )
    tail: bool = setting(False, "Follow the logs after a start", env="TAIL", not_yet=_CONTAINER)


@dataclass(frozen=True, slots=True)
class Engram:
    """The Engram tables and the row store that reads them inside the ranks."""

    source: str = setting(
        "", "Folder that `pack` fills with links to the tables alone, on every node", env="ENGRAM_SRC", is_path=True
    )
    layout: EngramLayout = setting(
        EngramLayout.DENSE,
        "Layout of packed files: `dense` as published, `paged` with a checksum in every page",
        env="ENGRAM_LAYOUT",
    )
    backend: EngramBackend = setting(
        EngramBackend.OVERLAY,
        "Who reads rows from files: `overlay`, the plugin that comes with sparkctl, or the server's `own` code",
        env="ENGRAM_BACKEND",
    )
    disable: bool | None = setting(
        None, "Boot without them (debugging)", env="DSV41_ENGRAM_DISABLE", variable="DSV41_ENGRAM_DISABLE"
    )
    cache_gib: Decimal | None = setting(
        None, "GiB of rows kept in memory", env="DSV41_CACHE_GIB", variable="DSV41_CACHE_GIB", low=0, high=1024
    )
    resident_scales: bool | None = setting(
        None, "Keep all scales in memory", env="DSV41_RESIDENT_SCALES", variable="DSV41_RESIDENT_SCALES"
    )
    io_threads: int | None = setting(
        None, "Reads at once", env="DSV41_IO_THREADS", variable="DSV41_IO_THREADS", low=1, high=1024
    )
    cache_ways: int | None = setting(
        None, "Ways of the cache", env="DSV41_CACHE_WAYS", variable="DSV41_CACHE_WAYS", low=1, high=64
    )
    stats_seconds: int | None = setting(
        None, "Seconds between statistics", env="DSV41_STATS_SECONDS", variable="DSV41_STATS_SECONDS", low=0, high=86400
    )


@dataclass(frozen=True, slots=True)
class Guard:
    """What protects a node's memory."""

    mode: GuardMode = setting(
        GuardMode.OFF,
        "The memory guard on every node: `off`, `watch` tells only, `act` also ends what takes the rest",
        env="DSV41_MEM_GUARD",
    )
    floor_gib: Decimal = setting(
        Decimal("1.5"),
        "GiB that must stay available: below it the guard acts",
        env="DSV41_MEM_GUARD_GIB",
        low=0,
        high=1024,
    )
    foreign: Foreign = setting(
        Foreign.LEAVE,
        "What the guard may do with a foreign process that took the rest: `leave`, `freeze` or `stop`",
        env="DSV41_MEM_GUARD_FOREIGN",
    )
    boot_margin_gib: Decimal | None = setting(
        None,
        "GiB that must be available beside the weights before a boot; the prediction decides if empty",
        env="DSV41_BOOT_MARGIN_GIB",
        low=0,
        high=1024,
    )


# Known names of the kits that stand for nothing here, and why.
RETIRED = {
    "NFS_DOCKERFILE_DIR": "NFS_IMAGE names the exporter's image; images/nfs of the sources builds it",
    "IMAGE_SHIP_DIR": "the head sends layers out of its engine's own store and stages nothing",
    "WORKER_HOME": "`~` is expanded on the node itself",
    "GLOO_SOCKET_IFNAME": "it differs by node and comes from HEAD_CX7_IF and WORKER_CX7_IF, or from the addresses",
    "TP_SOCKET_IFNAME": "it differs by node and comes from HEAD_CX7_IF and WORKER_CX7_IF, or from the addresses",
    "NCCL_IB_HCA": "it differs by node and comes from HEAD_CX7_IB and WORKER_CX7_IB",
    "VLLM_HOST_IP": "it differs by node and comes from HEAD_IP and WORKER_IP",
    "EXL3_OVERLAY_HOST": "no file of a kit is mounted over the engine",
    "KMAP_HOST": "no file of a kit is mounted over the engine",
    "MEMGUARD_HOST": "no script of a kit is run",
    "WEIGHT_BUDGET_HOST": "no script of a kit is run",
}
RETIRED_ENDING = ("_PATCH_HOST", "no file of a kit is mounted over the engine")
