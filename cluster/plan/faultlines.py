"""The log lines that name a fault, what each means in plain words, and which rank each one blames.

The rank that complains is often the innocent one: a lost connection blames the other end. `certain` lines name their
own cause; the others are consequences, and the other ranks' words are awaited for a moment before anyone is named.
"""

import re
from dataclasses import dataclass
from enum import Enum


class Blame(Enum):
    """Whom a line accuses, seen from the rank that wrote it."""

    SELF = "the rank that wrote it"
    PEER = "another rank"
    HEAD = "rank 0"  # the rendezvous store lives in rank 0's worker


class Force(Enum):
    """How much a line explains."""

    REASON = "says what happened"
    SYMPTOM = "says that something broke"
    ENDING = "says that it ends"
    ORPHAN = "says that its parent ended"


@dataclass(frozen=True, slots=True)
class Fault:
    """This line ends the deployment; `certain` when no other line can explain more."""

    cause: str
    blame: Blame = Blame.SELF
    certain: bool = False
    force: Force = Force.REASON


@dataclass(frozen=True, slots=True)
class Detail:
    """The last line of a Python exception: harmless when caught, the cause when a symptom stands beside it."""

    text: str


@dataclass(frozen=True, slots=True)
class Hint:
    """Odd, and often the reason when the boot later hangs; told once."""

    text: str


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    cause: str
    blame: Blame = Blame.SELF
    certain: bool = True
    force: Force = Force.REASON


def find_fault(message: str) -> Fault | Detail | Hint | None:
    """The fault, exception detail or hint in a message (without its head), or None."""
    for rule in _RULES:
        match = rule.pattern.search(message)
        if match is not None:
            return Fault(_fill(rule.cause, match), rule.blame, rule.certain, rule.force)
    for pattern, text in _HINTS:
        if pattern.search(message):
            return Hint(text)
    match = _EXCEPTION.match(message)
    if match is not None:
        return Detail(f"{match['name'].rsplit('.', 1)[-1]}: {match['said']}"[:240])
    return None


def signal_text(code: str) -> str:
    """An exit code in words; vLLM prints None when it looked too early."""
    if code == "None":
        return "killed, or crashed (exit code not known)"
    number = int(code)
    signal = -number if number < 0 else number - 128 if 128 < number < 160 else 0
    if not signal:
        return f"exit code {number}"
    name = {1: "SIGHUP", 2: "SIGINT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL"}
    name |= {11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM"}
    return f"killed by {name.get(signal, f'signal {signal}')}"


def _fill(cause: str, match: re.Match[str]) -> str:
    words = {name: value.strip() for name, value in match.groupdict(default="").items()}
    if "code" in words:
        words["how"] = signal_text(words["code"])
    return cause.format(**words)[:280]


def _rule(pattern: str, cause: str, blame: Blame = Blame.SELF) -> _Rule:
    return _Rule(re.compile(pattern), cause, blame)


def _consequence(pattern: str, cause: str, blame: Blame = Blame.SELF) -> _Rule:
    return _Rule(re.compile(pattern), cause, blame, certain=False)


def _symptom(pattern: str, cause: str) -> _Rule:
    return _Rule(re.compile(pattern), cause, certain=False, force=Force.SYMPTOM)


def _ending(pattern: str, cause: str, force: Force = Force.ENDING) -> _Rule:
    return _Rule(re.compile(pattern), cause, certain=False, force=force)


# NCCL warns about these on machines that work.
_HARMLESS_NCCL = r"(?!.*(?:iommu=pt|libibverbs\.so|[Nn]o plugin found|could not load|Could not find: ))"
_CLOSED = r"Connection closed by (?:remote )?peer|Connection reset by (?:remote )?peer|Broken pipe|Socket closed"

TOLD_TO_STOP = "it was told to stop (SIGTERM)"

_RULES: tuple[_Rule, ...] = (
    # What a rank says about itself.
    _rule(
        r"Worker proc (?P<name>\S+) died unexpectedly \(exit code: (?P<code>-?\d+|None)\)",
        "its worker process {name} died: {how}",
    ),
    _rule(
        r"MPClient: engine core exited unexpectedly|Engine core proc \S+ died unexpectedly", "its engine process died"
    ),
    _rule(r"Error response from daemon: (?P<why>.{1,200})", "its container did not start: {why}"),
    _rule(r"\[shutdown\] API server: shutdown triggered", TOLD_TO_STOP),
    _rule(r"port: (?P<port>\d+), .*EADDRINUSE", "port {port} is already in use on this node"),
    _rule(
        r"^OSError: \[Errno 98\]|EADDRINUSE|[Aa]ddress already in use", "a port it needs is already in use on this node"
    ),
    _rule(
        r"KV cache specs for the same layer are different",
        "the ranks run with different settings: their KV cache layouts differ",
    ),
    _rule(r"OutOfMemoryError|(?:CUDA|HIP) out of memory|^MemoryError|Cannot allocate memory", "out of memory"),
    _rule(
        r"No available memory for the cache blocks|larger than the available KV cache memory"
        r"|Free memory on device .* is less than desired",
        "not enough memory for the KV cache",
    ),
    _rule(r"No space left on device", "no space left on a disk, or in /dev/shm"),
    _rule(r"^Bus error|SIGBUS", "bus error: /dev/shm is too small, or a mapped file was cut short"),
    _rule(
        r"^Fatal Python error: (?P<said>.*)|^!{3,}.*Segfault encountered|^Segmentation fault",
        "its process crashed {said}",
    ),
    _rule(
        r"not a valid model identifier|Repo(?:sitory)? ?Not ?Found|does not appear to have a file named"
        r"|Can't load (?:the )?(?:configuration|config|tokenizer)|Cannot find any model weights|No model weights found",
        "model files are missing where it looks for them",
    ),
    _rule(
        r"PackageNotFoundError|No package metadata was found for (?P<name>\S+)",
        "the installation is incomplete: package metadata is missing",
    ),
    _rule(r"^(?:vllm|usage|\S*vllm)(?: \w+)?: error: (?P<said>.+)", "vLLM refuses its arguments: {said}"),
    _rule(r"Duplicate GPU detected", "two ranks were given the same GPU"),
    _rule(
        r"ibv_modify_qp.*(?:errno 61|No data available)", "RDMA refused the connection: the GID index in use is empty"
    ),
    _rule(
        r"Gloo connectFullMesh failed.*127\.0\.0\.1",
        "gloo listens on 127.0.0.1: GLOO_SOCKET_IFNAME is not set, or names the wrong interface",
    ),
    _rule(r"Gloo connectFullMesh failed with (?:\[\S+\] )?(?P<said>.*)", "gloo could not connect the ranks ({said})"),
    # What a rank says about another; only the first two are sure of it.
    _rule(
        r"Timed out after (?P<seconds>\d+) seconds waiting for clients",
        "it had not joined after {seconds} s",
        Blame.PEER,
    ),
    _rule(
        r"validate to host (?P<where>\S+) - (?:retrying \(try=(?:[2-9]|\d\d+)|timed out \(try=)"
        r".*failed to connect to any",
        "it has no route to the master address {where}",
    ),
    _rule(r"DistNetworkError: .*failed to connect to any network address", "it has no route to the master address"),
    _rule(
        r"validate to host (?P<where>\S+) - timed out \(try=",
        "nobody answered at its master address {where}",
        Blame.HEAD,
    ),
    _rule(r"DistNetworkError: The client socket has timed out", "nobody answered at its master address", Blame.HEAD),
    _consequence(r"Error ignored in is_in_the_same_node", "it went away: the connection to it was lost", Blame.PEER),
    _consequence(
        r"gloo.*(?:" + _CLOSED + r"|Connection timed out|Read error|Write error)",
        "it went away: the connection to it was lost",
        Blame.PEER,
    ),
    _consequence(
        r"NCCL WARN .*(?:" + _CLOSED + r"|[Rr]emote process|Got completion from peer)",
        "it went away: NCCL lost the connection to it",
        Blame.PEER,
    ),
    _consequence(r"NCCL error: remote process exited", "it went away: NCCL lost the connection to it", Blame.PEER),
    _consequence(
        r"\[c10d\] recvValue failed|Failed to check the \"should dump\" flag on TCPStore",
        "it went away: its rendezvous store is gone",
        Blame.HEAD,
    ),
    _consequence(
        r"RPC call to \w+ timed out", "it did not finish a step within vLLM's execute-model timeout", Blame.PEER
    ),
    _consequence(r"NCCL WARN " + _HARMLESS_NCCL + r"(?P<said>.+)", "NCCL: {said}"),
    _consequence(r"NCCL error: (?P<said>.+)", "NCCL: {said}"),
    # That something broke, without a reason.
    _symptom(r"WorkerProc failed to start", "its worker process failed to start"),
    _symptom(r"WorkerProc hit an exception", "its worker process hit an exception"),
    _symptom(
        r"WorkerProc initialization failed", "its worker process ended while starting and left no reason (killed?)"
    ),
    _symptom(r"EngineCore failed to start|Engine core initialization failed", "its engine failed to start"),
    _symptom(
        r"EngineCore encountered a fatal error|EngineDeadError|AsyncLLM output_handler failed|Executor failed\.",
        "its engine died",
    ),
    _ending(
        r"Parent process exited, terminating worker queues", "the parent of its worker process is gone", Force.ORPHAN
    ),
    _ending(r"\[shutdown\] Executor: waiting for worker exit", "it is shutting down, and nobody here asked it to"),
)

_HINTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Failed to get the IP address, using 0\.0\.0\.0"), "VLLM_HOST_IP is not set: it advertises 0.0.0.0"),
    (
        re.compile(r"Unable to resolve hostname to a \(local\) address\. Using the loopback"),
        "GLOO_SOCKET_IFNAME is not set: gloo fell back to 127.0.0.1",
    ),
    (re.compile(r"TCP client failed to connect/validate"), "it cannot reach the master address yet"),
)

_EXCEPTION = re.compile(r"^(?P<name>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Timeout)): (?P<said>\S.*)")
