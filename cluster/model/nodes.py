"""One node's settings, and the names the published kits have for those of head and worker."""

from dataclasses import dataclass

from cluster.model.table import Gid, setting

_CONTAINER = "the container runtime"
_INTERFACE = {"pattern": r"[A-Za-z0-9_.@-]{1,15}", "allowed": "one interface name: no list, no `^`, no prefix"}


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One node. `head` is the first, `worker` the second; further ones stand in the list `nodes` of cluster.yaml."""

    name: str = setting("", "What messages call this node; `head`, `worker`, `worker2` … if empty")
    control: str = setting("", "Where to reach it: `local`, [user@]host[:port], or a name from ssh_config")
    address: str = setting("", "Its IPv4 address on the fabric between the nodes")
    interface: str = setting(
        "", "Its network interface on the fabric; the one that carries the address if empty", **_INTERFACE
    )
    hca: str = setting(
        "",
        "Its RDMA device(s), as NCCL_IB_HCA takes them",
        pattern=r"\^?=?[A-Za-z0-9_]+(:\d+){0,3}(,[A-Za-z0-9_]+(:\d+){0,3})*",
        allowed="RDMA device names, separated by commas",
    )
    gid: Gid | None = setting(
        None, "RoCE GID index of its RDMA device; `auto` or empty: found before every boot", low=0, high=255
    )
    state_dir: str = setting("~/.local/state/sparkctl", "Folder for logs, receipts and locks on it", is_path=True)
    host: str = setting("", "Its host for SSH, when that is not the fabric address")
    user: str = setting("", "Its user for SSH")
    model: str = setting("", "Folder of the model on it, when not the common one", is_path=True)
    engram: str = setting("", "Folder of the Engram tables on it", is_path=True)
    packed: str = setting("", "Folder of the packed Engram files on it", is_path=True)
    cache: str = setting("", "Folder for vLLM's caches on it", is_path=True)
    triton_cache: str = setting("", "Folder for Triton's cache on it", is_path=True)
    tilelang_cache: str = setting("", "Folder for TileLang's cache on it", is_path=True)
    nccl_dir: str = setting("", "Folder with another NCCL on it", is_path=True, not_yet=_CONTAINER)


HEAD_ENV = {
    "name": "HEAD_NAME",
    "control": "HEAD_SSH",
    "address": "HEAD_IP",
    "interface": "HEAD_CX7_IF",
    "hca": "HEAD_CX7_IB",
    "gid": "HEAD_GID",
    "state_dir": "HEAD_STATE_DIR",
    "host": "HEAD_HOST",
    "user": "HEAD_USER",
    "model": "MODEL_HOST",
    "engram": "ENGRAM_DIR",
    "packed": "HEAD_PACKED_DIR",
    "cache": "CACHE_ROOT",
    "triton_cache": "TRITON_HOST_CACHE",
    "tilelang_cache": "TILELANG_HOST_CACHE",
    "nccl_dir": "NCCL_HOST_DIR",
}
WORKER_ENV = {key: env.replace("HEAD_", "WORKER_") for key, env in HEAD_ENV.items()} | {
    "model": "WORKER_MODEL_DIR",
    "engram": "WORKER_ENGRAM_DIR",
    "cache": "WORKER_VLLM_CACHE",
    "triton_cache": "WORKER_TRITON_HOST_CACHE",
    "tilelang_cache": "WORKER_TILELANG_HOST_CACHE",
    "nccl_dir": "WORKER_NCCL_HOST_DIR",
}
