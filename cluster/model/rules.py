"""Rules across settings, as functions from the whole tree to what is wrong with it; none of them stops at the first."""

import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Address

from cluster.model.flags import value_of
from cluster.model.need import Need
from cluster.model.rules_server import image_name, kept_pages, mounts, own_server, sparkinfer
from cluster.model.settings import NodeSettings, RuntimeKind, Settings, node_key, table
from cluster.model.table import Caution, Problem
from cluster.model.values import show

Origins = Mapping[str, str]

# Given to every rank by us; a second value in further arguments would win silently or differ between ranks.
OWNED_FLAGS = (
    "--api-key",
    "--config",
    "--cpu-distributed-timeout-seconds",
    "--distributed-executor-backend",
    "--distributed-timeout-seconds",
    "--headless",
    "--host",
    "--master-addr",
    "--master-port",
    "--model",
    "--nnodes",
    "--node-rank",
    "--pipeline-parallel-size",
    "--port",
    "--tensor-parallel-size",
)
_SHORT = {"-n": "--nnodes", "-r": "--node-rank", "-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size"}
_INSTEAD = {
    "--api-key": "put the key in a file of mode 0600 on the head and set API_KEY_FILE",
    "--host": "set HOST",
    "--master-addr": "set HEAD_IP",
    "--master-port": "set MASTER_PORT",
    "--model": "set MODEL_DIR",
    "--pipeline-parallel-size": "set PP",
    "--port": "set PORT",
    "--tensor-parallel-size": "set TP",
    "--distributed-timeout-seconds": "set DISTRIBUTED_TIMEOUT",
    "--cpu-distributed-timeout-seconds": "set DISTRIBUTED_TIMEOUT",
    "--config": "write its flags out: a file could differ between nodes",
}
OWNED_VARIABLES = frozenset(
    {
        "GLOO_SOCKET_IFNAME",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "NCCL_IB_GID_INDEX",
        "NCCL_IB_HCA",
        "RANK",
        "SPARKCTL_RANK_DIR",
        "TP_SOCKET_IFNAME",
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
        "VLLM_HOST_IP",
        "WORLD_SIZE",
    }
)
_SECRET_NAME = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|PASSWD)$", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is likely to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def problems(settings: Settings, origins: Origins, need: Need) -> tuple[Problem, ...]:
    """Everything that is wrong for what the verb needs, in the order a person would fix it."""
    return tuple(problem for rule in _rules(need) for problem in rule(settings, origins))


def _rules(need: Need) -> tuple[Callable[[Settings, Origins], Iterator[Problem]], ...]:
    match need:
        case Need.NOTHING:
            return ()
        case Need.NODES:
            return (_nodes, _names, image_name)
        case Need.SERVE:
            return (_nodes, _names, image_name, _served, _ranks, _listening, _vision, _batches, _arguments, _variables,
                    own_server, kept_pages, sparkinfer, mounts)  # fmt: skip


def is_local(node: NodeSettings) -> bool:
    """Written as local, or a loopback address with nothing else said."""
    return node.control == "local" or (not node.control and _loopback(node.address))


def _nodes(settings: Settings, origins: Origins) -> Iterator[Problem]:
    alone = all(is_local(node) for node in settings.nodes)
    for index, node in enumerate(settings.nodes):
        yield from _address(node, node_key(index), origins, alone)
        yield from _control(node, node_key(index), origins)
    if alone:
        return
    seen: dict[str, str] = {}
    for index, node in enumerate(settings.nodes):
        key = f"{node_key(index)}.address"
        if node.address and node.address in seen:
            what = f"{_name(key)} is {node.address}, and so is {_name(seen[node.address])}"
            yield Problem(_at(key, origins), what, "give every node its own fabric address")
        seen.setdefault(node.address, key)


def _address(node: NodeSettings, section: str, origins: Origins, alone: bool) -> Iterator[Problem]:
    key = f"{section}.address"
    name, at = _name(key), _at(key, origins)
    if not node.address:
        yield Problem(at, f"{name} is not set: the node's IPv4 address on the fabric", "sparkctl init proposes one")
        return
    try:
        address = IPv4Address(node.address)
    except ValueError:
        yield Problem(at, f"{name}={node.address} is no IPv4 address", "write four numbers, e.g. 10.40.0.1")
        return
    if address.is_loopback and not alone:
        what = f"{name}={node.address} is a loopback address, and not all nodes are local"
        yield Problem(at, what, "write the address of the fabric interface")
    elif address.is_unspecified or address.is_multicast or address.is_reserved:
        yield Problem(at, f"{name}={node.address} is no address of a node", "write that of the fabric interface")


def _control(node: NodeSettings, section: str, origins: Origins) -> Iterator[Problem]:
    key = f"{section}.control"
    if node.control and not re.fullmatch(r"([A-Za-z0-9_][^\s@:]*@)?[A-Za-z0-9_\[][^\s@]*", node.control):
        what = f"{_name(key)}={node.control} is not a way to reach a node"
        yield Problem(_at(key, origins), what, "write local, [user@]host[:port], or a name from ssh_config")


def _names(settings: Settings, origins: Origins) -> Iterator[Problem]:
    names = [node.name for node in settings.nodes]
    for index, name in enumerate(names):
        if name in names[:index]:
            at = _at(f"{node_key(index)}.name", origins)
            yield Problem(at, f"two nodes have the name {name}", "give each node its own name")


def _served(settings: Settings, origins: Origins) -> Iterator[Problem]:
    if not settings.serve.model:
        yield Problem("", "MODEL_DIR is not set: the model's folder on every node", "set it, or choose a RECIPE")
    needs_venv = not settings.launch.command or any("{venv}" in word for word in settings.launch.command)
    if settings.launch.runtime is RuntimeKind.NATIVE and needs_venv and not settings.launch.venv:
        what = "VENV is not set: the virtual environment with vLLM on every node"
        yield Problem("", what, "set it, e.g. VENV=~/vllm")
    if settings.launch.runtime is RuntimeKind.CONTAINER and not settings.image.name:
        yield Problem(
            "", "IMAGE is not set: the image that containers run", "set it, e.g. IMAGE=vllm/vllm-openai:v0.33.0"
        )


def _ranks(settings: Settings, origins: Origins) -> Iterator[Problem]:
    serve, nodes = settings.serve, len(settings.nodes)
    ranks = serve.tensor_parallel * serve.pipeline_parallel
    if ranks != nodes:
        what = f"TP={serve.tensor_parallel} times PP={serve.pipeline_parallel} makes {ranks} ranks, for {nodes} node(s)"
        yield Problem(_at("serve.tensor_parallel", origins), what, "one rank runs on each node: make them equal")
    if settings.launch.nnodes not in (None, nodes):
        what = f"NNODES={settings.launch.nnodes}, and {nodes} node(s) are set"
        yield Problem(_at("launch.nnodes", origins), what, "remove NNODES, or list the nodes in cluster.yaml")


def _listening(settings: Settings, origins: Origins) -> Iterator[Problem]:
    serve = settings.serve
    if serve.port == serve.master_port:
        what = f"PORT and MASTER_PORT are both {serve.port}"
        yield Problem(_at("serve.master_port", origins), what, "give each its own port")
    if serve.api_key is not None and serve.api_key_file:
        what = "VLLM_API_KEY and API_KEY_FILE are both set"
        yield Problem(_at("serve.api_key", origins), what, "keep one of them")
    if serve.host not in ("fabric", "loopback", ""):
        try:
            IPv4Address(serve.host)
        except ValueError:
            what = f"HOST={serve.host} is none of fabric, loopback, an IPv4 address"
            yield Problem(_at("serve.host", origins), what, "write one of them")


def has_vision(settings: Settings) -> bool:
    """Whether the settings say that the vision part of the model is loaded; a text model says nothing."""
    serve = settings.serve
    return not serve.language_model_only and (serve.language_model_only is False or bool(serve.limit_mm))


def _vision(settings: Settings, origins: Origins) -> Iterator[Problem]:
    tokens = settings.serve.max_num_batched_tokens
    if has_vision(settings) and tokens is not None and tokens < 1025:
        what = f"MAX_NUM_BATCHED_TOKENS={tokens} is too small for one image, which takes 1025 with vision on"
        yield Problem(_at("serve.max_num_batched_tokens", origins), what, "set 1536, or LANGUAGE_MODEL_ONLY=1")


def _batches(settings: Settings, origins: Origins) -> Iterator[Problem]:
    tokens, threshold = settings.serve.max_num_batched_tokens, settings.serve.long_prefill_token_threshold
    if tokens and threshold and tokens - threshold < 256:
        what = (
            f"MAX_NUM_BATCHED_TOKENS={tokens} leaves {tokens - threshold} beside "
            f"LONG_PREFILL_TOKEN_THRESHOLD={threshold}; 256 are needed for running requests"
        )
        fix = f"set LONG_PREFILL_TOKEN_THRESHOLD={max(tokens - 256, 0)} or less, or leave it empty"
        yield Problem(_at("serve.long_prefill_token_threshold", origins), what, fix)


def _arguments(settings: Settings, origins: Origins) -> Iterator[Problem]:
    serve = settings.serve
    for word in serve.extra_args:
        if word.startswith("-") and not re.fullmatch(r"-[0-9.]+", word):
            yield from _argument(settings, word, "EXTRA_ARGS", _at("serve.extra_args", origins))
        if "enable_adaptive_verification" in word:
            what = "EXTRA_ARGS has enable_adaptive_verification, which the engine rejects after minutes of loading"
            yield Problem(_at("serve.extra_args", origins), what, "remove it")
    for name, _ in serve.flags:
        yield from _argument(settings, f"--{name}", "serve.flags", _at(f"serve.flags.{name}", origins))


def _argument(settings: Settings, word: str, inside: str, at: str) -> Iterator[Problem]:
    flag = word.partition("=")[0]
    flag = _SHORT.get(flag, flag.replace("_", "-"))
    # vLLM's parser takes a clear beginning of a flag for the whole.
    owned = next((one for one in OWNED_FLAGS if one == flag or (len(flag) > 3 and one.startswith(flag))), "")
    if owned:
        fix = _INSTEAD.get(owned, "remove it: it follows from the nodes")
        yield Problem(at, f"{inside} has {word.partition('=')[0]}, which sparkctl gives to every rank itself", fix)
        return
    for row in table():
        if row.meta.flag == flag and value_of(settings, row.key) not in (None, False, "", ()):
            what = f"{inside} has {flag}, and {row.meta.env} is set as well"
            yield Problem(at, what, f"keep {row.meta.env} alone")


def _variables(settings: Settings, origins: Origins) -> Iterator[Problem]:
    named = {row.meta.variable: row for row in table() if row.meta.variable}
    for name, _ in settings.launch.environment:
        at = _at(f"launch.environment.{name}", origins)
        if name in OWNED_VARIABLES:
            yield Problem(at, f"{name} differs by rank or comes from another setting", "remove it from the environment")
        elif is_secret_name(name):
            what = f"{name} looks like a secret, and variables of a process are logged and shown"
            yield Problem(at, what, "put it in a file on the node; for the API's key set API_KEY_FILE")
        elif name in named and value_of(settings, named[name].key) not in (None, ""):
            what = f"{name} among the variables is also the setting {named[name].key}"
            yield Problem(at, what, "keep one of them")


def cautions(settings: Settings, origins: Origins) -> tuple[Caution, ...]:
    """What may be meant, and should be said once."""
    serve, watch = settings.serve, settings.watch
    found = []
    if serve.host == "0.0.0.0":  # compared, not bound
        text = "HOST=0.0.0.0 listens on every network of the head; the API key does not cover all of vLLM's routes"
        found.append(Caution("listens-everywhere", _at("serve.host", origins), text))
    if watch.hang_seconds >= watch.ready_timeout:
        text = (
            f"DSV41_HANG_SECONDS={show(watch.hang_seconds)} is not below "
            f"READY_TIMEOUT={show(watch.ready_timeout)}: no hang of a boot will be seen"
        )
        found.append(Caution("hang-never", _at("watch.hang_seconds", origins), text))
    rows, needed = settings.tuning.temp_rows_fused, (serve.max_num_seqs or 0) * (serve.speculative_tokens + 1)
    if rows is not None and rows < needed:
        text = f"EXL3_TEMP_ROWS_FUSED={rows} is below the {needed} rows that MAX_NUM_SEQS and DSPARK_TOKENS make"
        found.append(Caution("few-rows", _at("tuning.temp_rows_fused", origins), text))
    return tuple(found)


def unsupported(settings: Settings, origins: Origins) -> tuple[Problem, ...]:
    """Settings that were given and that nothing would act on yet, by the part that is missing.

    `start` refuses them instead of ignoring them.
    """
    idle: dict[str, list[tuple[str, str]]] = {}
    for row in table():
        value = value_of(settings, row.key)
        if row.meta.not_yet and value is not None and value != row.default:
            said = f"{row.meta.env or row.key}={show(value)}"
            idle.setdefault(row.meta.not_yet, []).append((said, _at(row.key, origins)))
    return tuple(
        Problem(
            ", ".join(dict.fromkeys(at for _, at in found)),
            f"{', '.join(said for said, _ in found)} would be ignored: {part} is not there yet",
        )
        for part, found in idle.items()
    )


def _name(key: str) -> str:
    return next((row.meta.env for row in table() if row.key == key and row.meta.env), key)


def _at(key: str, origins: Origins) -> str:
    origin = origins.get(key, "default")
    return "" if origin == "default" else origin


def _loopback(address: str) -> bool:
    return address.startswith("127.")
