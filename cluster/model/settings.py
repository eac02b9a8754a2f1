"""The settings tree. Its fields are also the one table of names, types, defaults, environment names and help."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

from cluster.model.exl3 import Exl3
from cluster.model.kit import Container, Engram, Guard, Image, Sync, Weights
from cluster.model.nodes import HEAD_ENV, WORKER_ENV, NodeSettings
from cluster.model.serve import Serve, Speculation
from cluster.model.table import Gid, Meta, Row, rows_of, setting
from cluster.model.tuning import Nccl, Tuning
from cluster.model.units import Seconds

__all__ = [
    "SECTIONS",
    "Launch",
    "Meta",
    "NodeSettings",
    "Row",
    "RuntimeKind",
    "Serve",
    "Settings",
    "Speculation",
    "Sync",
    "Watch",
    "is_alone",
    "node_key",
    "rows",
    "setting",
    "table",
]


class RuntimeKind(StrEnum):
    NATIVE = "native"
    CONTAINER = "container"


_CONTAINER = "the container runtime"


@dataclass(frozen=True, slots=True)
class Launch:
    """How the ranks are run."""

    runtime: RuntimeKind = setting(
        RuntimeKind.NATIVE,
        "How ranks are run: `native` or `container`",
        env="RUNTIME",
    )
    command: tuple[str, ...] = setting(
        (),
        "Command line of a server other than vLLM, on one node; {model}, {name}, {host}, {port}, {venv} and limits "
        "such as {max_model_len} are filled in, in its variables too",
        env="SERVER_COMMAND",
    )
    venv: str = setting("", "Virtual environment with vLLM on every node (native)", env="VENV", is_path=True)
    environment: tuple[tuple[str, str], ...] = setting((), "Further environment variables of every rank, by name")
    distributed_timeout: Seconds = setting(
        Seconds(600), "How much slower one rank may load than the other", env="DISTRIBUTED_TIMEOUT", low=10, high=86400
    )
    execute_timeout: Seconds = setting(
        Seconds(300),
        "Longest step of the model before vLLM gives up",
        env="VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
        low=5,
        high=86400,
    )
    nccl_debug: str = setting(
        "INFO",
        "NCCL's log level; WARN hides which transport it took",
        env="NCCL_DEBUG",
        variable="NCCL_DEBUG",
        pattern="WARN|INFO|TRACE|ABORT",
        allowed="WARN, INFO, TRACE or ABORT",
    )
    gid: Gid | None = setting(
        None,
        "RoCE GID index of every node that has none of its own; found before every boot if empty",
        env="NCCL_IB_GID_INDEX",
        aliases=("GID",),
        low=0,
        high=255,
    )
    nnodes: int | None = setting(
        None,
        "Number of nodes: with 1 there is no worker; else only compared with the nodes that are set",
        env="NNODES",
        low=1,
        high=1024,
    )


@dataclass(frozen=True, slots=True)
class Watch:
    """When a boot or a deployment counts as ready, hung or out of time."""

    ready_timeout: Seconds = setting(
        Seconds(1500),
        "Overall limit of a boot",
        env="READY_TIMEOUT",
        low=1,
        high=86400,
        variable="VLLM_ENGINE_READY_TIMEOUT_S",
    )
    hang_seconds: Seconds = setting(
        Seconds(420), "Quiet time of a rank that counts as a hang", env="DSV41_HANG_SECONDS", low=5, high=86400
    )
    stall_seconds: Seconds = setting(
        Seconds(60), "Frozen tokens that count as a hang when serving", env="STALL_SECONDS", low=1, high=86400
    )
    completion_timeout: Seconds = setting(
        Seconds(60), "Limit of the one-token proof", env="COMPLETION_TIMEOUT", low=1, high=86400
    )
    ready_path: str = setting(
        "/health",
        "Path that answers 200 once the server takes requests",
        env="READY_PATH",
        pattern=r"/[A-Za-z0-9_./-]*",
        allowed="a path such as /health or /ready",
    )
    stop_grace: Seconds = setting(Seconds(20), "Time a rank has to end by itself", env="STOP_GRACE", low=0, high=86400)
    shape_warmup: bool = setting(
        False,
        "Send requests that warm every shape after a boot",
        env="DSV41_BOOT_SHAPE_WARMUP",
        aliases=("GLM53_BOOT_SHAPE_WARMUP",),
        not_yet="the warm-up after a boot",
    )
    warmup_timeout: Seconds = setting(
        Seconds(240),
        "Limit of one warm-up request",
        env="DSV41_WARMUP_REQ_TIMEOUT",
        aliases=("GLM53_WARMUP_REQ_TIMEOUT",),
        low=1,
        high=86400,
        not_yet="the warm-up after a boot",
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the user asked for, resolved once."""

    deployment: str
    recipe: str
    nodes: tuple[NodeSettings, ...]
    serve: Serve
    launch: Launch
    watch: Watch
    nccl: Nccl = field(default_factory=Nccl)
    tuning: Tuning = field(default_factory=Tuning)
    weights: Weights = field(default_factory=Weights)
    image: Image = field(default_factory=Image)
    container: Container = field(default_factory=Container)
    engram: Engram = field(default_factory=Engram)
    guard: Guard = field(default_factory=Guard)
    exl3: Exl3 = field(default_factory=Exl3)

    @property
    def head(self) -> NodeSettings:
        return self.nodes[0]

    @property
    def workers(self) -> tuple[NodeSettings, ...]:
        return self.nodes[1:]


def is_alone(settings: Settings) -> bool:
    """Whether there is one rank, which has nobody to meet."""
    return len(settings.nodes) == 1


SECTIONS: dict[str, type] = {
    "serve": Serve,
    "launch": Launch,
    "watch": Watch,
    "nccl": Nccl,
    "tuning": Tuning,
    "weights": Weights,
    "image": Image,
    "container": Container,
    "engram": Engram,
    "guard": Guard,
    "exl3": Exl3,
}

TOP = (
    Row(
        "deployment",
        str,
        "",
        Meta(
            "Name of this deployment on its nodes; the recipe's name if empty",
            env="DEPLOYMENT",
            pattern="[a-z0-9-]{1,40}",
            allowed="1 to 40 of a-z, 0-9 and -",
        ),
    ),
    Row("recipe", str, "", Meta("Recipe: a name, or the path of a file", env="RECIPE")),
)


@cache
def table() -> tuple[Row, ...]:
    """The whole table: name and recipe, head and worker, then the sections."""
    return (
        *TOP,
        *rows_of("head", NodeSettings, HEAD_ENV),
        *rows_of("worker", NodeSettings, WORKER_ENV),
        *(row for section, cls in SECTIONS.items() for row in rows_of(section, cls)),
    )


def rows() -> Iterator[Row]:
    yield from table()


def node_key(index: int) -> str:
    """The section that holds a node's settings: `head`, `worker`, then `nodes.2` …"""
    return ("head", "worker")[index] if index < 2 else f"nodes.{index}"
