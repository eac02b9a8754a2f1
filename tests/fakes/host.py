"""One node of the fake cluster: its files, its ranks, and the answers of the programs that are sent to it."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

from cluster.app.agents import source
from cluster.app.guard import program as guard_program
from cluster.model.steps import Command
from cluster.node.base import Result
from tests.build import GIB
from tests.fakes.node import FakeNode

Json = dict[str, Any]
Act = tuple[float, str, str]  # seconds after the launch, word, rest
Trouble = Result | BaseException | Callable[[], None]

METRICS = "\n".join(
    f"vllm:{name} {value}"
    for name, value in {
        "prompt_tokens_total": 0.0,
        "generation_tokens_total": 0.0,
        "num_requests_running": 0.0,
        "num_requests_waiting": 0.0,
    }.items()
)


@dataclass
class FakeRank:
    """A rank that was launched at `begun` (epoch) and does its acts in time, unless it was ended from outside."""

    boot: str
    number: int
    begun: float
    acts: list[Act]
    folder: str
    ended: Json | None = None
    cut: bool = False
    is_asked: bool = True  # whether whoever ended it was us
    kernel_boot: str = "b"

    def lines(self, now: float) -> list[str]:
        """With their UTC times, as the log has them."""
        said = [(at, rest) for at, word, rest in self._past(now) if word == "says"]
        said += [(at, "Starting vLLM server on http://") for at, word, _ in self._past(now) if word == "serves"]
        return [f"{utc(self.begun + at)} {text}" for at, text in said]

    def exit(self, now: float) -> Json | None:
        if self.ended:
            return self.ended
        for at, word, rest in self._past(now):
            if word in ("exits", "killed"):
                code, signal = (int(rest), None) if word == "exits" else (None, int(rest))
                return _exit(code, signal, self.begun + at, requested=False)
        return None

    def lives(self, now: float) -> bool:
        return not self.cut and self.exit(now) is None

    def is_frozen(self, now: float) -> bool:
        return any(word in ("freezes", "stopped") for _, word, _ in self._past(now))

    def is_up(self, now: float) -> bool:
        return self.lives(now) and any(word == "serves" for _, word, _ in self._past(now))

    def state(self, now: float) -> str:
        return "T" if any(word == "stopped" for _, word, _ in self._past(now)) else "S"

    def cpu(self, now: float) -> float:
        """Half a core, until it freezes."""
        frozen = [self.begun + at for at, word, _ in self._past(now) if word in ("freezes", "stopped")]
        return (min([now, *frozen]) - self.begun) / 2

    def _past(self, now: float) -> list[Act]:
        return [one for one in self.acts if self.begun + one[0] <= now]


@dataclass
class FakeHost:
    """A node. Words that tests set:

    listening  like "*:8888 nginx"        available  bytes of memory
                                          model      bytes of its model
                                          free       bytes, where a GPU shares them
    says       parts of the identity      fails      program -> what happens instead of its answer
    left       a name: a process that no signal ends        killed  whether ranks need the hard way
    completion what a one-token completion is answered with (200, 500, "timeout"), None while nothing asks
    plugged    whether the cable of the fabric is in
    """

    name: str
    addresses: str
    now: Callable[[], float]
    play: Callable[[int], list[Act]]
    is_whole: Callable[[], bool]
    acted: Callable[[str], None]
    home: str = "/home/op"
    listening: str = ""
    available: int = 100 * GIB
    model: int = 6 * GIB
    free: int | None = None
    says: Json = field(default_factory=dict)
    fails: dict[str, Trouble] = field(default_factory=dict)
    left: str = ""
    killed: bool = False
    holder: Json | None = None
    stale: Json | None = None
    reply: Json = field(default_factory=dict)
    completion: int | str = 200
    gone: bool = False
    full_disk: bool = False
    plugged: bool = True
    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    connections: list[FakeNode] = field(default_factory=list)
    ranks: list[FakeRank] = field(default_factory=list)
    guards: dict[str, Json] = field(default_factory=dict)
    kernel_boot: str = "b"
    booted: float = 0.0

    def go(self) -> None:
        """Out of reach, for those who are connected too."""
        self.gone = True
        for one in self.connections:
            one.gone = True

    def fill_disk(self) -> None:
        self.full_disk = True
        for one in self.connections:
            one.full_disk = True

    def end(self) -> None:
        """Its ranks are stopped, by somebody who asks."""
        for rank in self.living():
            rank.ended = _exit(0, None, self.now(), requested=True)

    def reboot(self, *, in_order: bool) -> None:
        """In order, its system asks the ranks to end; else its power is cut."""
        for rank in self.living():
            rank.is_asked = False
            if in_order:
                rank.ended = _exit(0, None, self.now(), requested=True)
            else:
                rank.cut = True
        self.kernel_boot, self.booted = "another boot", self.now() + 60

    def come_back(self) -> None:
        self.gone = False
        for one in self.connections:
            one.gone = False

    def answer(self, command: Command) -> Result:
        verb, request = _asked(command)
        match self.fails.get(verb):
            case Result() as result:
                return result
            case BaseException() as error:
                raise error
            case None:
                pass
            case act:
                act()
        code, text = _PROGRAMS[verb](self, request)
        return Result(code, text.encode(), b"")

    def launch(self, boot: str, number: int, folder: str = "") -> None:
        """Without a word of ours: as if it had been started before."""
        folder = folder or f"{self.home}/.local/state/sparkctl/deployments/demo/boots/{boot}/rank{number}"
        rank = FakeRank(boot, number, self.now(), self.play(number), folder, kernel_boot=self.kernel_boot)
        self.ranks.append(rank)

    def full(self, path: str) -> str:
        return f"{self.home}/{path[2:]}" if path.startswith("~/") else path

    def living(self) -> list[FakeRank]:
        return [rank for rank in self.ranks if rank.lives(self.now())]


def utc(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _asked(command: Command) -> tuple[str, Json]:
    request = json.loads(command.argv[-1])
    verb = command.argv[3]
    if command.stdin == guard_program():
        return f"guard {verb}", request
    if verb != command.argv[-1]:
        return verb, request
    name = next(
        one for one in ("ask", "identity", "lock", "chat", "memory", "headers", "drop") if command.stdin == source(one)
    )
    return name, request


def _exit(code: int | None, signal: int | None, at: float, *, requested: bool) -> Json:
    return {
        "code": code, "signal": signal, "at": utc(at), "requested": requested,
        "left_behind": 0, "killed": 0, "error": None,
    }  # fmt: skip


def _ask(host: FakeHost, questions: Any) -> tuple[int, str]:
    return 0, json.dumps([_answer(host, one) for one in questions])


def _answer(host: FakeHost, question: Json) -> Json:
    if "stdin" in question:
        told = host.answer(Command(tuple(question["argv"]), stdin=question["stdin"].encode()))
        return {"exit": told.exit, "out": told.text, "err": told.err_text}
    if "file" in question:
        if question["file"] == "/proc/meminfo":
            sizes = {"MemTotal": 128 * GIB, "MemFree": host.available, "MemAvailable": host.available}
            return _told("".join(f"{name}: {size // 1024} kB\n" for name, size in sizes.items()))
        data = host.files.get(host.full(question["file"]))
        return {"exit": None, "out": "", "err": "No such file"} if data is None else _told(data.decode())
    match question["argv"][0]:
        case "ip":
            return _told(json.dumps([_link(one) for one in host.addresses.split(", ")]))
        case "ss":
            return _told("".join(_listener(one) for one in host.listening.split(", ") if one))
        case _:
            return _told("")


def _told(text: str) -> Json:
    return {"exit": 0, "out": text, "err": ""}


def _link(text: str) -> Json:
    address, _, interface = text.partition("@")
    inet = {"family": "inet", "local": address, "prefixlen": 24}
    return {"ifname": interface, "mtu": 9000, "flags": ["UP", "LOWER_UP"], "addr_info": [inet]}


def _listener(text: str) -> str:
    place, _, holder = text.partition(" ")
    users = f' users:(("{holder}",pid=77,fd=3))' if holder else ""
    return f"LISTEN 0 128 {place} 0.0.0.0:*{users}\n"


def _identity(host: FakeHost, want: Json) -> tuple[int, str]:
    model = {"present": True, "files": 4, "bytes": 6291456, "digest": "d1" * 32, "how": "contents"}
    model |= {"unreadable": [], "outside": []}
    key = {"present": True, "mode": 0o600, "empty": False}
    seen = {
        "python": "3.12.3",
        "packages": {"torch": "2.13.0", "vllm": "0.32.0"} if want["venv"] else {},
        "server": bool(want["venv"]),
        "tools": {"ninja": "", "nvcc": ""},
        "model": model if want["model"] else None,
        "key": key if want["key_file"] else None,
        "state": {"free": 50 * GIB, "writable": True, "path": host.home},
        "hostname": host.name,
        "machine": "aarch64",
        "machine_id": sha256(host.name.encode()).hexdigest()[:16],
        "boot_id": "b",
    }
    return 0, json.dumps(seen | host.says)


def _launch(host: FakeHost, request: Json) -> tuple[int, str]:
    folder = PurePosixPath(host.full(request["dir"]))
    spec = json.loads(host.files[f"{folder}/spec.json"])
    assert host.full(request["program"]) in host.files, "the launcher must lie there first"
    host.acted(f"launch rank {spec['rank']} on {host.name}")
    now = host.now()
    host.launch(spec["boot"], spec["rank"], str(folder))
    answer = {
        "pid": 100, "ticks": 1, "kernel_boot": "b", "session": 100, "main": [101, 2], "unit": None, "manager": None,
        "program": spec["argv"][0], "box": None, "started": utc(now), "available": host.available,
    }  # fmt: skip
    return 0, json.dumps(answer)


def _chosen(host: FakeHost, request: Json) -> list[FakeRank]:
    if "dirs" in request:
        folders = [host.full(one) for one in request["dirs"]]
        return [rank for rank in host.ranks if rank.folder in folders]
    return [rank for rank in host.ranks if rank.number in (request["ranks"] or (rank.number,))]


def _stop(host: FakeHost, request: Json) -> tuple[int, str]:
    now = host.now()
    living = [rank for rank in _chosen(host, request) if rank.lives(now)]
    reports = []
    for rank in living:
        host.acted(f"stop rank {rank.number} on {host.name}")
        how = "left" if host.left else "killed" if host.killed else "graceful"
        reports.append({
            "dir": rank.folder, "boot": rank.boot, "rank": rank.number, "how": how,
            "ended": ["VLLM::EngineCore", "python"],
            "left": [{"pid": 102, "name": host.left}] if host.left else [],
            "seconds": 0.5,
        })  # fmt: skip
        if not host.left:
            rank.ended = _exit(0, None, now, requested=True)
    answer = {"ranks": reports, "available_before": host.available, "available_after": host.available}
    return 5 if host.left and living else 0, json.dumps(answer)


def _look(host: FakeHost, request: Json) -> tuple[int, str]:
    boots = [rank.boot for rank in host.ranks]
    newest = max(boots, default="")
    shown = [rank for rank in _chosen(host, request) if rank.lives(host.now()) or rank.boot == newest]
    count = request["log_lines"]
    ranks = [_sight(host, rank, rank.lines(host.now())[-count:] if count else []) for rank in shown]
    return 0, json.dumps(_node(host, ranks, request, request["completion_limit"]))


def _watch(host: FakeHost, request: Json) -> tuple[int, str]:
    ranks = []
    for rank in _chosen(host, request):
        if rank.boot == request["boot"]:
            begin = request["places"].get(str(rank.number), (0, 0))[1]
            ranks.append(_sight(host, rank, rank.lines(host.now())[begin:]))
    wish = request["completion"] or {"limit": 60.0}
    node = _node(host, ranks, request, wish["limit"])
    if node["head"]:
        node["head"]["asking_since"] = None
    return 0, json.dumps(node) + "\n"


def _node(host: FakeHost, ranks: list[Json], request: Json, limit: float) -> Json:
    return {
        "at": host.now(), "host": host.name, "kernel_boot": host.kernel_boot, "booted": host.booted,
        "memory": [128 * GIB, host.available, host.available, 2 * GIB, 0],
        "head": _head(host, limit, request["http"]) if request["http"] else None,
        "ras": {"text": None, "trouble": "refused"}, "gpus": None, "ranks": ranks,
        "fabric": {**WIRED, "carrier": host.plugged} if request["fabric"] else None,
    }  # fmt: skip


WIRED: Json = {
    "interface": "enp1s0f0np0", "carrier": True, "mbps": 200000, "mtu": 9000, "received": 0, "sent": 0, "rdma": [],
}  # fmt: skip


def _head(host: FakeHost, limit: float, asked: Json) -> Json:
    now = host.now()
    if not any(rank.is_up(now) and _port(host, rank) in (None, asked["port"]) for rank in host.ranks):
        return {"at": now, "health": "refused", "metrics": None, "later": None, "completion": None}
    answer = host.completion if host.is_whole() else "timeout"
    seconds = limit if answer == "timeout" else 0.02
    said = "" if answer in (200, "timeout") else "it did not work"
    completion = {"at": now, "answer": answer, "seconds": seconds, "said": said}
    return {"at": now, "health": 200, "metrics": METRICS, "later": None, "completion": completion}


def _port(host: FakeHost, rank: FakeRank) -> int | None:
    """Where it listens, as its command line says; a rank that a test put there without one listens everywhere."""
    spec = host.files.get(f"{rank.folder}/spec.json")
    argv: list[str] = json.loads(spec)["argv"] if spec else []
    return int(argv[argv.index("--port") + 1]) if "--port" in argv else None


def _sight(host: FakeHost, rank: FakeRank, lines: list[str]) -> Json:
    now = host.now()
    ended, lives = rank.exit(now), rank.lives(now)
    state = "alive" if lives else "exited" if ended else "vanished"
    process = {
        "pid": 101, "ppid": 100, "state": rank.state(now), "name": "VLLM::EngineCore", "command": "VLLM::EngineCore",
        "rss": GIB, "cpu": rank.cpu(now), "threads": 4,
    }  # fmt: skip
    return {
        "boot": rank.boot, "rank": rank.number, "dir": rank.folder, "state": state,
        "pid": 100, "main": 101, "unit": None, "started": utc(rank.begun), "kernel_boot": rank.kernel_boot,
        "available": host.available, "stop_asked": bool(ended and ended["requested"] and rank.is_asked),
        "exit": ended, "processes": [process] if lives else [],
        "log": {"lines": lines, "place": [1, len(rank.lines(now))], "behind": 0, "lost": False},
        "guard": host.guards.get(rank.folder),
    }  # fmt: skip


def _stacks(host: FakeHost, request: Json) -> tuple[int, str]:
    host.acted(f"read stacks on {host.name}")
    process = {
        "pid": 101, "name": "VLLM::EngineCore", "state": "S", "cpu": 1.0, "python": "Thread 101: all_reduce",
        "status": "Name: EngineCore", "wchan": "futex_wait", "kernel": "",
    }  # fmt: skip
    ranks = [
        {"dir": rank.folder, "boot": rank.boot, "rank": rank.number, "missing": None, "processes": [process]}
        for rank in _chosen(host, request)
        if rank.lives(host.now())
    ]
    return 0, json.dumps({"ranks": ranks, "meminfo": "MemTotal: 1 kB\n"})


def _tail(host: FakeHost, request: Json) -> tuple[int, str]:
    folder = host.full(request["dir"]).rsplit("/boots/", 1)[-1]
    rank = next(one for one in host.ranks if one.folder.endswith(folder))
    lines = [
        line
        for line in rank.lines(host.now())
        if line[:24] >= (request["since"] or "") and re.search(request["grep"] or "", line[25:])
    ]
    kept = lines if request["lines"] is None else lines[-request["lines"] :] if request["lines"] else []
    return 0, "".join(f"{line}\n" for line in kept)


def _guard(host: FakeHost, request: Json) -> tuple[int, str]:
    folder = host.full(request["dir"])
    assert {f"{folder}/guard-spec.json", host.full(request["program"])} <= set(host.files), "they must lie there first"
    host.acted(f"start guard on {host.name}")
    host.guards[folder] = {"state": "watching", "mode": "act", "lowest": 4 * GIB, "did": []}
    return 0, json.dumps({"pid": 99})


def _guard_stop(host: FakeHost, request: Json) -> tuple[int, str]:
    host.acted(f"stop guard on {host.name}")
    return 0, json.dumps({"was": bool(host.guards.pop(host.full(request["dir"]), None))})


def _memory(host: FakeHost, request: Json) -> tuple[int, str]:
    free = host.available if host.free is None else host.free
    sizes = {"MemTotal": 128 * GIB, "MemFree": free, "MemAvailable": host.available}
    seen = {
        "meminfo": "".join(f"{name}: {size // 1024} kB\n" for name, size in sizes.items()),
        "pressure": "",
        "holders": [{"name": "jupyter", "pid": 55, "bytes": 3 * GIB, "pids": [55]}],
        "gpu": None,
        "gpus": None,
        "has_gpu": host.free is not None,
        "shm": {"size": 64 * GIB, "free": 64 * GIB},
        "killers": {"earlyoom": "inactive"},
        "machine": f"boot of {host.name}",
    }
    return 0, json.dumps(seen)


def _headers(host: FakeHost, request: Json) -> tuple[int, str]:
    groups = [["layers.#.ffn.experts.*.w1.weight", 0, 9, 8, host.model // 10]] if host.model else []
    return 0, json.dumps({"present": True, "files": 1, "groups": groups, "problems": [], "config": None})


def _drop(host: FakeHost, request: Json) -> tuple[int, str]:
    host.acted(f"drop page cache on {host.name}")
    pages: Json = {"resident_before": None, "resident_after": None, "kept": [], "rate": None}
    return 0, json.dumps({"files": 1, "size": 1, "free_before": host.free or 0, "free_after": host.available, **pages})


def _lock(host: FakeHost, request: Json) -> tuple[int, str]:
    if host.holder:
        return 0, json.dumps({"held": False, "holder": host.holder}) + "\n"
    return 0, json.dumps({"held": True, "stale": host.stale}) + "\n"


def _chat(host: FakeHost, request: Json) -> tuple[int, str]:
    good = {
        "status": 200,
        "text": "323",
        "reasoning": "",
        "finish": "stop",
        "usage": {"completion_tokens": 2},
        "first_token": 0.1,
    }
    return 0, json.dumps({**good, "seconds": 0.25, "error": "", **host.reply})


_PROGRAMS: dict[str, Callable[[FakeHost, Any], tuple[int, str]]] = {
    "ask": _ask,
    "identity": _identity,
    "launch": _launch,
    "stop": _stop,
    "look": _look,
    "watch": _watch,
    "stacks": _stacks,
    "tail": _tail,
    "lock": _lock,
    "chat": _chat,
    "guard launch": _guard,
    "guard stop": _guard_stop,
    "memory": _memory,
    "headers": _headers,
    "drop": _drop,
}
