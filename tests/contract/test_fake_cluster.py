"""The fake cluster is trusted because it answers with the fields of the real node programs, asked here side by side."""

import json
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cluster.app.agents import agent
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.node.local import LocalNode
from cluster.runtime.native import RAS, CompletionWish, HeadQuestion
from tests.contract.bench import Bench, until
from tests.fakes.cluster import FakeCluster
from tests.fakes.host import FakeHost

pytestmark = pytest.mark.contract


def differences(real: Any, fake: Any, at: str = "answer") -> list[str]:
    """Where two answers are not built alike; texts, numbers and what one of them leaves empty do not matter."""
    match real, fake:
        case (None, _) | (_, None) | ([], _) | (_, []):
            return []
        case dict(), dict():
            uneven = [f"{at}.{key}" for key in sorted(real.keys() ^ fake.keys())]
            both = sorted(real.keys() & fake.keys())
            return uneven + [one for key in both for one in differences(real[key], fake[key], f"{at}.{key}")]
        case list(), list():
            return differences(real[0], fake[0], f"{at}[0]")
        case _:
            same = isinstance(real, str | int | float) and isinstance(fake, str | int | float)
            return [] if same else [f"{at}: {real!r} and {fake!r}"]


@pytest.fixture
def host() -> FakeHost:
    return FakeCluster()["spark-a"]


def real(command: Command) -> Any:
    node = LocalNode("here")
    try:
        result = node.run(command)
    finally:
        node.close()
    assert result.exit == 0, result.err_text
    return json.loads(result.out)


def told(host: FakeHost, command: Command) -> Any:
    return json.loads(host.answer(command).out)


def test_differences_are_found():
    assert differences({"a": 1, "b": [{"c": 1}]}, {"a": "x", "b": [{"d": 1}]}) == ["answer.b[0].c", "answer.b[0].d"]
    assert differences({"a": {}}, {"a": 1}) == ["answer.a: {} and 1"]
    assert differences({"a": 1}, {"a": None}) == []


def test_ask(host):
    headers = agent("headers", {"model": "/nowhere"})
    program = {"argv": headers.argv, "stdin": headers.stdin.decode(), "limit": headers.limit}
    files: list[Any] = [{"file": "/proc/meminfo"}, {"file": "/nowhere"}]
    command = agent("ask", [*files, {"argv": ["ip", "-j", "addr"]}, program])
    there, here = real(command), told(host, command)
    assert differences(there, here) == []
    assert there[1]["exit"] is here[1]["exit"] is None
    assert there[0]["out"].startswith("MemTotal:")
    assert here[0]["out"].startswith("MemTotal:")


def test_identity(host, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    key = tmp_path / "key"
    key.write_text("k")
    want = {
        "venv": sys.prefix,
        "model": str(tmp_path),
        "key_file": str(key),
        "state_dir": str(tmp_path),
    }
    command = agent("identity", want)
    there, here = real(command), told(host, command)
    there["packages"] = here["packages"] = {}
    assert differences(there, here) == []


def test_chat(host):
    want = {"url": "http://127.0.0.1:9/v1", "model": "m", "prompt": "?", "max_tokens": 1, "limit": 5, "key_file": ""}
    command = agent("chat", want)
    assert differences(real(command), told(host, command)) == []


@pytest.mark.parametrize("taken", [False, True])
def test_lock(host, tmp_path, taken):
    holder = {"command": "sparkctl stop", "user": "ann", "host": "laptop", "pid": 1, "since": "then"}
    command = agent("lock", {"path": str(tmp_path / "lock"), "holder": holder})
    lines: list[str] = []
    stop = Event()
    node = LocalNode("here")

    def second(line: str) -> None:
        """While the first one holds it."""
        lines.append(line)
        if taken:
            lines.append(node.run(command).text)
        stop.set()

    try:
        node.stream(command, second, stop)
    finally:
        node.close()
    host.holder = holder if taken else None
    there, here = json.loads(lines[-1]), told(host, command)
    assert (there["held"], here["held"]) == (not taken, not taken)
    assert differences(there, here) == []


@pytest.mark.parametrize("name", ["memory", "headers"])
def test_what_is_asked_for_memory(host, tmp_path, name):
    want = {"most": 3} if name == "memory" else {"model": str(tmp_path)}
    command = agent(name, want)
    there, here = real(command), told(host, command)
    if name == "memory":
        there["killers"] = here["killers"] = {}
    assert differences(there, here) == []


def test_a_rank_from_its_launch_to_its_end(bench: Bench, host: FakeHost, tmp_path: Path):
    """The stand-in for vLLM on one side, the fake on the other, both asked the same."""
    host.play = lambda rank: [(0.0, "says", "ready"), (0.0, "serves", "")]
    launch = bench.prepare(bench.rank()).command
    for path in bench.state.rglob("*"):
        if path.is_file():
            host.files[str(path)] = path.read_bytes()
    there, here = bench.node.run(launch), host.answer(launch)
    assert (there.exit, here.exit) == (0, 0)
    assert differences(json.loads(there.out), json.loads(here.out)) == []
    until((bench.folder / "log").read_text, lambda text: " ready\n" in text)

    head = HeadQuestion("127.0.0.1", 9, "m")
    look = bench.runtime.look(bench.where, head=head, ras=RAS, completion_limit=Seconds(1), log_lines=5)
    assert differences(json.loads(bench.node.run(look).out), told(host, look)) == []

    watch = bench.runtime.watch(
        bench.where, bench.which.boot, head=head, completion=CompletionWish(Seconds(1)), ras=RAS, every=Seconds(0.1)
    )
    lines: list[str] = []
    stop = Event()

    def first(line: str) -> None:
        lines.append(line)
        stop.set()

    bench.node.stream(watch, first, stop)
    assert differences(json.loads(lines[0]), told(host, watch)) == []

    stacks = bench.runtime.stacks(bench.where, Seconds(2))
    assert differences(json.loads(bench.node.run(stacks).out), told(host, stacks)) == []

    tail = bench.runtime.log(bench.rank(), bench.which, lines=1).command
    assert bench.node.run(tail).text[24:] == " ready\n"
    assert host.answer(tail).text[24:].startswith(" ")

    ending = bench.runtime.stop(bench.where, Seconds(2))
    assert differences(json.loads(bench.node.run(ending).out), told(host, ending)) == []
    assert differences(json.loads(bench.node.run(look).out), told(host, look)) == []
