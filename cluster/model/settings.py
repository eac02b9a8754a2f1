"""The settings tree. Its fields are also the one table of names, types, defaults, environment names and help."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, get_type_hints

from cluster.model.units import Bytes, Seconds


class Share(StrEnum):
    """How the workers come to have the weights."""

    INPLACE = "inplace"
    NFS = "nfs"
    ZFS = "zfs"
    RSYNC = "rsync"
    AUTO = "auto"


class RuntimeKind(StrEnum):
    NATIVE = "native"
    CONTAINER = "container"


@dataclass(frozen=True, slots=True)
class Meta:
    """What the table says about one field besides its type and default.

    env       bare name in `.env`; with the prefix SPARKCTL_ in the process environment
    flag      the `vllm serve` flag it becomes, when set
    variable  the environment variable of every rank it becomes, when set
    low, high inclusive bounds for numbers
    """

    help: str
    env: str = ""
    flag: str = ""
    variable: str = ""
    low: float | None = None
    high: float | None = None
    secret: bool = False
    is_path: bool = False


def setting(default: Any, help: str, **more: Any) -> Any:  # noqa: A002  # reads as the table it is
    return field(default=default, metadata={"setting": Meta(help=help, **more)})


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One node. `head` is the first, `worker` the second; further ones stand in the list `nodes` of cluster.yaml."""

    name: str = setting("", "What messages call this node; its control address if empty")
    control: str = setting("", "Where to reach it: `local`, or [user@]host[:port], or a name from ssh_config")
    address: str = setting("", "Its IPv4 address on the fabric between the nodes")
    interface: str = setting("", "Its network interface on the fabric; the one that carries `address` if empty")
    hca: str = setting("", "Its RDMA device(s), as NCCL_IB_HCA takes them")
    gid: int | None = setting(None, "RoCE GID index of its HCA; resolved before every boot if empty", low=0, high=255)
    state_dir: str = setting("~/.local/state/sparkctl", "Folder for logs, receipts and locks on it", is_path=True)


HEAD_ENV = {
    "control": "HEAD_SSH",
    "address": "HEAD_IP",
    "interface": "HEAD_CX7_IF",
    "hca": "HEAD_CX7_IB",
    "gid": "HEAD_GID",
    "name": "HEAD_NAME",
    "state_dir": "HEAD_STATE_DIR",
}
WORKER_ENV = {key: env.replace("HEAD", "WORKER") for key, env in HEAD_ENV.items()}


@dataclass(frozen=True, slots=True)
class Serve:
    """What is served, and the `vllm serve` flags that all ranks share."""

    model: str = setting("", "Folder of the model on every node", env="MODEL_DIR", is_path=True)
    served_model_name: str = setting("", "Model id of the API", env="SERVED_MODEL_NAME", flag="--served-model-name")
    host: str = setting("fabric", "Listening address: `fabric`, `loopback` or an IPv4 address of the head", env="HOST")
    port: int = setting(8888, "Port of the API", env="PORT", low=1, high=65535)
    master_port: int = setting(29521, "Port of the ranks' rendezvous", env="MASTER_PORT", low=1, high=65535)
    api_key_file: str = setting("", "File on the head (mode 0600) with the API key", env="API_KEY_FILE", is_path=True)
    tensor_parallel: int = setting(2, "Tensor-parallel size", env="TP", flag="--tensor-parallel-size", low=1)
    pipeline_parallel: int = setting(1, "Pipeline-parallel size", env="PP", flag="--pipeline-parallel-size", low=1)
    max_model_len: int | None = setting(
        None, "Longest context in tokens", env="MAX_MODEL_LEN", flag="--max-model-len", low=1, high=1048576
    )
    max_num_seqs: int | None = setting(
        None, "Most requests at once", env="MAX_NUM_SEQS", flag="--max-num-seqs", low=1, high=4096
    )
    kv_cache_memory_bytes: Bytes | None = setting(
        None, "KV pool of each rank", env="KV_CACHE_MEMORY_BYTES", flag="--kv-cache-memory-bytes"
    )
    enforce_eager: bool = setting(False, "No CUDA graphs", env="ENFORCE_EAGER", flag="--enforce-eager")
    extra_args: tuple[str, ...] = setting((), "Further `vllm serve` arguments", env="EXTRA_ARGS")


@dataclass(frozen=True, slots=True)
class Launch:
    """How the ranks are run."""

    runtime: RuntimeKind = setting(RuntimeKind.NATIVE, "`native` or `container`", env="RUNTIME")
    venv: str = setting("", "Virtual environment with vLLM on every node (native)", env="VENV", is_path=True)
    environment: tuple[tuple[str, str], ...] = setting((), "Further environment variables of every rank")
    distributed_timeout: Seconds = setting(
        Seconds(600), "How much slower one rank may load than the other", env="DISTRIBUTED_TIMEOUT", low=10
    )
    execute_timeout: Seconds = setting(
        Seconds(300), "Longest step of the model before vLLM gives up", env="VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", low=5
    )
    nccl_debug: str = setting("WARN", "NCCL's log level", env="NCCL_DEBUG", variable="NCCL_DEBUG")


@dataclass(frozen=True, slots=True)
class Watch:
    """When a boot or a deployment counts as ready, hung or out of time."""

    ready_timeout: Seconds = setting(Seconds(1500), "Overall limit of a boot", env="READY_TIMEOUT", low=1)
    hang_seconds: Seconds = setting(
        Seconds(420), "Quiet time of a rank that counts as a hang", env="DSV41_HANG_SECONDS", low=5
    )
    stall_seconds: Seconds = setting(
        Seconds(60), "Frozen tokens that count as a hang when serving", env="STALL_SECONDS"
    )
    completion_timeout: Seconds = setting(Seconds(60), "Limit of the one-token proof", env="COMPLETION_TIMEOUT", low=1)
    stop_grace: Seconds = setting(Seconds(20), "Time a rank has to end by itself", env="STOP_GRACE", low=0)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the user asked for, resolved once."""

    deployment: str
    recipe: str
    nodes: tuple[NodeSettings, ...]
    serve: Serve
    launch: Launch
    watch: Watch

    @property
    def head(self) -> NodeSettings:
        return self.nodes[0]

    @property
    def workers(self) -> tuple[NodeSettings, ...]:
        return self.nodes[1:]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the settings table: `key` is dotted, `kind` the field's type."""

    key: str
    kind: Any
    default: Any
    meta: Meta


SECTIONS: dict[str, type] = {"serve": Serve, "launch": Launch, "watch": Watch}


def rows() -> Iterator[Row]:
    """The whole table: sections, then head and worker."""
    for section, cls in SECTIONS.items():
        yield from _rows_of(section, cls, {})
    yield from _rows_of("head", NodeSettings, HEAD_ENV)
    yield from _rows_of("worker", NodeSettings, WORKER_ENV)


def _rows_of(section: str, cls: type, env: dict[str, str]) -> Iterator[Row]:
    hints = get_type_hints(cls)
    for one in fields(cls):
        meta: Meta = one.metadata["setting"]
        if one.name in env:
            meta = Meta(help=meta.help, env=env[one.name], low=meta.low, high=meta.high, is_path=meta.is_path)
        yield Row(f"{section}.{one.name}", hints[one.name], one.default, meta)
