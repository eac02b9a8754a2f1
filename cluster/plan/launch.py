"""One flag list and one environment for all ranks, then the few differences between ranks."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath

from cluster.model.containers import Box
from cluster.model.deployment import DeploymentId, deployment_root
from cluster.model.flags import serve_flags, variables
from cluster.model.settings import NodeSettings, Settings, is_alone
from cluster.model.steps import Write
from cluster.model.values import show
from cluster.plan.engram import common_variables, rank_variables
from cluster.runtime.base import LaunchSpec, RankSpec

# What may differ between ranks; everything else is compared before a boot, for vLLM boots unequal ranks and answers
# wrong text with status 200.
RANK_FLAGS = ("--node-rank", "--headless")
RANK_VARIABLES = frozenset(
    {
        "DSV41_PACKED_DIR",
        "DSV41_SOURCE",
        "GLOO_SOCKET_IFNAME",
        "NCCL_IB_GID_INDEX",
        "NCCL_IB_HCA",
        "NCCL_SOCKET_IFNAME",
        "SPARKCTL_RANK_DIR",
        "SPARK_OVERLAY_ENGRAM_PACKED",
        "SPARK_OVERLAY_ENGRAM_SOURCE",
        "TP_SOCKET_IFNAME",
        "VLLM_HOST_IP",
    }
)

BOOT_LIMIT = "VLLM_ENGINE_READY_TIMEOUT_S"

# No telemetry, no hub, no colour in files. Tokens that a rank never needs stay out.
ALWAYS = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "NO_COLOR": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_LOGGING_COLOR": "0",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True, slots=True)
class Wiring:
    """How one rank reaches the others: `interface` has been read on its node, or named by the user."""

    address: str
    interface: str
    hca: str = ""
    gid: int | None = None


def listen_address(settings: Settings) -> str:
    """The address the API listens on; never all addresses unless the user wrote them."""
    match settings.serve.host:
        case "fabric" | "":
            return settings.head.address
        case "loopback":
            return "127.0.0.1"
        case other:
            return other


def ask_address(settings: Settings) -> str:
    """Where the head itself reaches the API."""
    address = listen_address(settings)
    return "127.0.0.1" if address == "0.0.0.0" else address  # compared, not bound


def key_file(settings: Settings) -> str:
    """The file on the head that holds the API key: the user's, or ours when the key itself was given."""
    if settings.serve.api_key_file or settings.serve.api_key is None:
        return settings.serve.api_key_file
    return str(deployment_root(settings.head.state_dir, settings.deployment) / "api-key")


def key_step(settings: Settings) -> tuple[Write, ...]:
    """A key that stands in the settings goes into a file of the head that only its owner reads."""
    key = settings.serve.api_key
    if key is None or settings.serve.api_key_file:
        return ()
    path = PurePosixPath(key_file(settings))
    return (Write(settings.head.name, "put the API key there", path, key.reveal().encode(), 0o600),)


def api_url(settings: Settings) -> str:
    return f"http://{ask_address(settings)}:{settings.serve.port}"


def launch_spec(
    settings: Settings, which: DeploymentId, wiring: tuple[Wiring, ...], boxes: tuple[Box, ...] = ()
) -> LaunchSpec:
    """Every rank as it will be run, rank 0 first. `wiring`, and `boxes` of containers, have one entry per node."""
    common = common_argv(settings)
    environment = common_environment(settings)
    secrets = (("VLLM_API_KEY", key_file(settings)),) if key_file(settings) else ()
    return LaunchSpec(
        which,
        tuple(
            RankSpec(
                rank=rank,
                node=node.name,
                argv=common if is_alone(settings) else rank_argv(common, rank),
                environment=tuple(
                    sorted((environment | rank_environment(settings, wired) | rank_variables(settings, node)).items())
                ),
                secrets=secrets if rank == 0 else (),
                state_dir=node.state_dir,
                box=boxes[rank] if boxes else None,
            )
            for rank, (node, wired) in enumerate(zip(settings.nodes, wiring, strict=True))
        ),
    )


def common_argv(settings: Settings) -> tuple[str, ...]:
    """The command line that all ranks share. Sources of the flags: `vllm serve --help=all` of 0.32 and 0.33."""
    serve = settings.serve
    if settings.launch.command:
        return (*filled_words(settings), *serve.extra_args)
    return (
        f"{settings.launch.venv}/bin/vllm" if settings.launch.venv else "vllm",
        "serve",
        serve.model,
        "--host",
        listen_address(settings),
        "--port",
        str(serve.port),
        *serve_flags(settings),
        *(() if is_alone(settings) else _rendezvous(settings)),
        "--disable-access-log-for-endpoints",
        "/health,/metrics",  # asked every second while we watch
        *serve.extra_args,
    )


def _rendezvous(settings: Settings) -> tuple[str, ...]:
    timeout = f"{settings.launch.distributed_timeout:.0f}"
    return (
        "--distributed-executor-backend",
        "mp",
        "--nnodes",
        str(len(settings.nodes)),
        "--master-addr",
        settings.head.address,
        "--master-port",
        str(settings.serve.master_port),
        "--distributed-timeout-seconds",
        timeout,
        "--cpu-distributed-timeout-seconds",
        timeout,
    )


def common_environment(settings: Settings) -> dict[str, str]:
    """The variables that all ranks share: ours, those of settings, then the user's own, and the overlay's."""
    ours = ALWAYS | {"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": f"{settings.launch.execute_timeout:.0f}"}
    if not settings.launch.command:
        return ours | dict(variables(settings)) | common_variables(settings)
    filled = {name: fill(value, settings) for name, value in variables(settings)}
    return {name: value for name, value in ours.items() if not name.startswith("VLLM_")} | filled


def filled_words(settings: Settings) -> tuple[str, ...]:
    """The words of another server's command line: each stays one word whatever is filled in, for no shell reads it."""
    return tuple(fill(word, settings) for word in settings.launch.command)


def fill(text: str, settings: Settings) -> str:
    """`{model}`, `{port}` and so on as the settings say them, nothing for one that is not set; other braces stay."""
    limits = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization")
    known = {
        **{one: show(getattr(settings.serve, one)) for one in limits},
        "model": settings.serve.model,
        "name": settings.serve.served_model_name or settings.serve.model,
        "host": listen_address(settings),
        "port": str(settings.serve.port),
        "venv": settings.launch.venv,
    }
    return re.sub(r"\{(" + "|".join(known) + r")\}", lambda found: known[found[1]], text)


def environment_digest(settings: Settings) -> str:
    """Of what all ranks share, less the limit of a boot: to wait longer for one is no other way to run it."""
    shared = {name: value for name, value in common_environment(settings).items() if name != BOOT_LIMIT}
    return sha256(repr(sorted(shared.items())).encode()).hexdigest()[:16]


def rank_argv(common: tuple[str, ...], rank: int) -> tuple[str, ...]:
    return (*common, "--node-rank", str(rank), *(("--headless",) if rank else ()))


def rank_environment(settings: Settings, wired: Wiring) -> dict[str, str]:
    """The variables of one rank. Gloo and TP take one plain interface name; NCCL's value may be the user's pattern.

    A rank alone talks to nobody, and needs only an address that vLLM need not look for.
    """
    if is_alone(settings):
        return {} if settings.launch.command else {"VLLM_HOST_IP": wired.address}
    environment = {
        "VLLM_HOST_IP": wired.address,
        "GLOO_SOCKET_IFNAME": wired.interface,
        "TP_SOCKET_IFNAME": wired.interface,
    }
    if "NCCL_SOCKET_IFNAME" not in dict(settings.launch.environment):
        environment["NCCL_SOCKET_IFNAME"] = wired.interface
    if wired.hca:
        environment["NCCL_IB_HCA"] = wired.hca
    if wired.gid is not None:
        environment["NCCL_IB_GID_INDEX"] = str(wired.gid)
    return environment


def common_part(rank: RankSpec) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """argv and environment without what may differ; equal for all ranks of a sound launch."""
    return common_words(rank.argv), tuple(pair for pair in rank.environment if pair[0] not in RANK_VARIABLES)


def common_words(argv: Sequence[str]) -> tuple[str, ...]:
    kept, words = [], iter(argv)
    for word in words:
        if word == "--node-rank":
            next(words)
        elif word != "--headless":
            kept.append(word)
    return tuple(kept)


def written_digest(spec: bytes) -> str:
    """Of the command line in a spec.json as it lies on a node, without what may differ between ranks."""
    return sha256(json.dumps(common_words(json.loads(spec)["argv"])).encode()).hexdigest()


def node_settings(settings: Settings, name: str) -> NodeSettings:
    return next(node for node in settings.nodes if node.name == name)
