"""What would make a boot fail, seen beforehand. Pure: facts in, findings out; none of them changes anything."""

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from cluster.model.events import Finding, Severity
from cluster.model.facts import Identity, Listener, NodeFacts
from cluster.model.settings import RuntimeKind, Settings, is_alone
from cluster.model.units import format_bytes
from cluster.plan.launch import filled_words, key_file, listen_address
from cluster.plan.plugin import check_plugin

STATE_NEEDED = 256 * 2**20  # logs of one boot, twice rotated, plus receipts
OTHERS = ("torch", "transformers", "triton", "flashinfer-python", "nvidia-nccl-cu13", "compressed-tensors", "xgrammar")


def check_ports(settings: Settings, facts: NodeFacts) -> tuple[Finding, ...]:
    """The head's socket table against the two ports it will listen on (PORT.FREE); never by connecting."""
    wanted = (
        ("API", listen_address(settings), settings.serve.port, "PORT"),
        ("rendezvous", "*", settings.serve.master_port, "MASTER_PORT"),  # torch's TCPStore listens on all addresses
    )
    return tuple(_port(facts, *each) for each in (wanted[:1] if is_alone(settings) else wanted))


def _port(facts: NodeFacts, what: str, address: str, port: int, setting: str) -> Finding:
    holder = next((one for one in facts.listeners if one.port == port and _overlap(one, address)), None)
    if holder is None:
        return Finding("PORT.FREE", Severity.OK, facts.node, f"{what} port {port} is free")
    by = f" by {holder.holder}" if holder.holder else ""
    return Finding(
        "PORT.FREE",
        Severity.REFUSAL,
        facts.node,
        f"{what} port {port} is taken{by} on {'all addresses' if holder.address == '*' else holder.address}",
        "a free port",
        f"end that program, or set {setting} to another port",
    )


def _overlap(one: Listener, address: str) -> bool:
    return "*" in (one.address, address) or address == "0.0.0.0" or one.address == address  # compared


def check_node(settings: Settings, node: str, seen: Identity) -> tuple[Finding, ...]:
    """What one node alone must have: the server, the model, room for logs."""
    server = () if _in_image(settings) else (_server(settings, node, seen),)
    return (*server, *check_plugin(settings, node, seen), _model(settings, node, seen), _state(node, seen))


def _in_image(settings: Settings) -> bool:
    """The server and its packages come with the image, which is compared as a whole."""
    return settings.launch.runtime is RuntimeKind.CONTAINER


def _server(settings: Settings, node: str, seen: Identity) -> Finding:
    if settings.launch.command:
        return _own_server(filled_words(settings)[0], node, seen)
    version = dict(seen.packages).get("vllm", "")
    where = f"{settings.launch.venv}/bin/vllm"
    if not seen.has_server:
        fix = f"install vLLM there, or set VENV to the virtual environment that has it (now {settings.launch.venv})"
        return Finding("SERVER.PRESENT", Severity.REFUSAL, node, f"no program {where}", "vLLM on every node", fix)
    return Finding("SERVER.PRESENT", Severity.OK, node, f"vLLM {version or 'of unknown version'}")


def _own_server(program: str, node: str, seen: Identity) -> Finding:
    if not seen.has_server:
        fix = f"install it there, or set SERVER_COMMAND (now {program} ...)"
        return Finding("SERVER.PRESENT", Severity.REFUSAL, node, f"no program {program}", "the server's program", fix)
    return Finding("SERVER.PRESENT", Severity.OK, node, program)


def _model(settings: Settings, node: str, seen: Identity) -> Finding:
    path, model = settings.serve.model, seen.model
    if model is None or not model.present:
        observed = f"no config.json in {path}" if path else "nothing says where the model is"
        fix = f"put the model at {path} on {node}, or set MODEL_DIR" if path else "set MODEL_DIR"
        return Finding("MODEL.PRESENT", Severity.REFUSAL, node, observed, "the model on every node", fix)
    if model.unreadable:
        observed = f"{len(model.unreadable)} unreadable: {', '.join(model.unreadable[:3])}"
        return Finding("MODEL.PRESENT", Severity.REFUSAL, node, observed, "readable files", f"ls -lL {path}")
    hidden = [one for one in model.outside if _in_image(settings) and not _is_mounted(settings, one)]
    if hidden:
        fix = "copy the files into the folder, or " + ", ".join(f"MOUNTS={one}:{one}" for one in hidden)
        observed = f"links lead to {', '.join(hidden)}, which a container does not see"
        return Finding("MODEL.PRESENT", Severity.REFUSAL, node, observed, "files inside the folder", fix)
    return Finding("MODEL.PRESENT", Severity.OK, node, f"{model.files} files, {format_bytes(model.size)}")


def _is_mounted(settings: Settings, folder: str) -> bool:
    """Whether containers have a folder at the path that it has on the node."""
    pairs = (one.split(":")[:2] for one in settings.container.mounts)
    return any(source == target and PurePosixPath(folder).is_relative_to(source) for source, target in pairs)


def _state(node: str, seen: Identity) -> Finding:
    observed = f"{format_bytes(seen.state_free)} free at {seen.state_path}"
    if not seen.state_writable:
        return Finding("DISK.STATE", Severity.REFUSAL, node, f"cannot write to {seen.state_path}", "our state folder")
    if seen.state_free < STATE_NEEDED:
        fix = "free some space there, or set its HEAD_STATE_DIR or WORKER_STATE_DIR to another disk"
        return Finding("DISK.STATE", Severity.REFUSAL, node, observed, f"{format_bytes(STATE_NEEDED)} for logs", fix)
    return Finding("DISK.STATE", Severity.OK, node, observed)


def check_key(settings: Settings, seen: Identity) -> tuple[Finding, ...]:
    """The API key file, and what stays open with or without it (API.OPEN; seen on vLLM 0.32)."""
    head, path = settings.head.name, key_file(settings)
    address = listen_address(settings)
    if settings.serve.api_key_file and seen.key_problem:
        fix = f"umask 077; openssl rand -hex 32 > {path}   (on {head})"
        return (Finding("API.KEY", Severity.REFUSAL, head, f"{path} {seen.key_problem}", "mode 0600", fix),)
    if address.startswith("127."):
        return (Finding("API.OPEN", Severity.OK, head, f"listens on {address} only"),)
    if path:
        observed = f"listens on {address}; the key guards /v1, but /invocations and /tokenize answer without it"
        fix = "set HOST=loopback and put a proxy in front if others can reach that address"
        return (Finding("API.OPEN", Severity.NOTE, head, observed, "a private network", fix),)
    observed = f"listens on {address} without a key: whoever reaches it can use it"
    fix = "set API_KEY_FILE to a file (mode 0600), or HOST=loopback"
    return (Finding("API.OPEN", Severity.NOTE, head, observed, "a private network", fix),)


def check_equal(settings: Settings, seen: Mapping[str, Identity]) -> tuple[Finding, ...]:
    """Whether all ranks would run the same thing; vLLM itself does not check and answers wrong text with status 200."""
    versions = () if _in_image(settings) else (_versions(settings, seen),)
    return (*versions, _models(settings, seen), _argv(settings, seen))


def _versions(settings: Settings, seen: Mapping[str, Identity]) -> Finding:
    packages = {node: dict(one.packages) for node, one in seen.items()}
    names = sorted({name for each in packages.values() for name in each})
    differing = [name for name in names if len({each.get(name, "") for each in packages.values()}) > 1]
    if not differing:
        return Finding("RANKS.VERSIONS", Severity.OK, "", f"{len(names)} packages equal on {_all(seen)}")
    weighty = [name for name in ("vllm", *OTHERS) if name in differing]
    told = ", ".join(_each(name, packages) for name in (weighty or differing)[:4])
    severity = Severity.REFUSAL if weighty else Severity.WARNING
    fix = f"install the same versions into {settings.launch.venv} on all nodes"
    return Finding("RANKS.VERSIONS", severity, "", told, "the same packages on all ranks", fix)


def _each(name: str, packages: Mapping[str, Mapping[str, str]]) -> str:
    return f"{name} " + ", ".join(f"{each.get(name, 'absent')} on {node}" for node, each in packages.items())


def _models(settings: Settings, seen: Mapping[str, Identity]) -> Finding:
    models = {node: one.model for node, one in seen.items() if one.model}
    digests = {node: one.digest for node, one in models.items()}
    if len(set(digests.values())) > 1:
        told = ", ".join(f"{node} {models[node].files} files {digest[:12]}" for node, digest in digests.items())
        fix = f"make {settings.serve.model} the same on all nodes"
        return Finding("RANKS.MODEL", Severity.REFUSAL, "", told, "the same model on all ranks", fix)
    how = {one.how for one in models.values()}
    covered = "contents" if how == {"contents"} else "headers and sizes, not the contents of large files,"
    digest = next(iter(digests.values()), "")[:12]
    return Finding("RANKS.MODEL", Severity.OK, "", f"{covered} equal on {_all(seen)} ({digest})")


def _argv(settings: Settings, seen: Mapping[str, Identity]) -> Finding:
    digests = {node: one.argv_digest for node, one in seen.items()}
    if None in digests.values():
        return Finding("RANKS.ARGV", Severity.NOT_CHECKED, "", "command lines are not on the nodes yet")
    if len(set(digests.values())) > 1:
        told = ", ".join(f"{node} {(digest or '')[:12]}" for node, digest in digests.items())
        return Finding(
            "RANKS.ARGV", Severity.REFUSAL, "", told, "one command line for all ranks", "sparkctl start again"
        )
    return Finding("RANKS.ARGV", Severity.OK, "", f"one command line on {_all(seen)}, read back from each node")


def _all(seen: Mapping[str, Identity]) -> str:
    return "the one node" if len(seen) == 1 else f"all {len(seen)} ranks"


def refusals(findings: Iterable[Finding], forced: frozenset[str] = frozenset()) -> tuple[Finding, ...]:
    return tuple(one for one in findings if one.severity is Severity.REFUSAL and one.id not in forced)
