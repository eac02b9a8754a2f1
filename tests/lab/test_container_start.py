"""`start` in containers without vLLM: what is pulled, sent, refused and left, with a stand-in for the server inside."""

from __future__ import annotations

import contextlib
import io
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from tests.contract.dockerd import missing, python_image
from tests.lab.cli import Cli
from tests.lab.engines import SOCKET, docker, engine_in, lent
from tests.lab.memory import anonymous, evidence, has_available, meminfo_of_ours
from tests.lab.node import SMALL_DISK, until
from tests.lab.nodes import Lab
from tests.lab.portrait import changes, portrait
from tests.lab.specification import REPOSITORY
from tests.lab.test_container import ours, stranger
from tests.lab.test_story import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.node import Node

pytestmark = pytest.mark.lab

IMAGE = "sparkctl-standin:1"
DOCKERFILE = (
    b"FROM sparkctl-python:1\nCOPY tests /tests\nCOPY vllm /usr/bin/vllm\nCOPY behaviour /opt/stand-in/behaviour\n"
)
PROGRAM = b'#!/bin/sh\nexec /usr/bin/python3 -S /tests/lab/fake_vllm.py "$@"\n'


class EngineOf:
    """A node's engine, asked from the host."""

    def __init__(self, node: Node) -> None:
        self._host = f"unix://{node.path(SOCKET)}"

    def run(self, *words: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "DOCKER_BUILDKIT": "0", "HOME": "/root"}
        return subprocess.run(
            ("docker", "-H", self._host, *words), input=data, check=True, capture_output=True, env=environment
        )


@pytest.fixture(scope="module")
def lab(lab_ground: None) -> Iterator[Lab]:
    if reason := missing():
        pytest.skip(f"not run: {reason}")
    with Lab.up(small_disk_size="320m", lent=lent()) as nodes, contextlib.ExitStack() as stack:
        for node in nodes.nodes:
            stack.enter_context(engine_in(node))
            stranger(node)
        engine = EngineOf(nodes.a)
        python_image(engine, "sparkctl-python:1")  # type: ignore[arg-type]  # it asks for no more than `run`
        engine.run("build", "--network=none", "--tag", IMAGE, "-", data=context())
        yield nodes


def context() -> bytes:
    files = {"Dockerfile": DOCKERFILE, "vllm": PROGRAM, "behaviour": b"serve\n"}
    for path in ("tests/lab/fake_vllm.py", "tests/contract/standin.py"):
        files[path] = (REPOSITORY / path).read_bytes()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def sparkctl(lab: Lab) -> Cli:
    return Cli(lab.a, SETTINGS | {"RUNTIME": "container", "IMAGE": IMAGE, "HOST": "loopback", "READY_TIMEOUT": "60s"})


def test_what_the_flags_forbid_is_refused_and_nothing_is_created(lab: Lab, sparkctl: Cli) -> None:
    own_log = (f"{SMALL_DISK}/sparkctl", f"{SMALL_DISK}/sparkctl/sparkctl.log")
    before = [portrait(node, *own_log) for node in lab.nodes]
    refused = sparkctl("start", "--no-ship")
    assert (refused.code, refused.failed["error"]) == (4, "Refused")
    assert "--no-ship forbids to send it" in refused.failed["what"]
    missing_one = sparkctl("start", "--no-pull", "--set", "IMAGE=nobody/has:this")
    assert "--no-pull forbids to pull it" in missing_one.failed["what"]
    assert [ours(node) for node in lab.nodes] == [[], []]
    after = [portrait(node, *own_log) for node in lab.nodes]
    assert [changes(then, now) for then, now in zip(before, after, strict=True)] == [[], []]


def test_start_sends_the_image_and_stop_leaves_no_container(lab: Lab, sparkctl: Cli) -> None:
    started = sparkctl("start")
    assert started.code == 0, (started.result, started.err)
    assert [one["stage"] for one in started.result["stages"]] == [
        "connect", "check", "image", "prepare", "launch", "load",
    ]  # fmt: skip
    assert [len(ours(node)) for node in lab.nodes] == [1, 1]
    assert sparkctl("start").result["already"]
    ended = sparkctl("stop")
    assert (ended.code, ended.result["event"]) == (0, "stopped")
    for node in lab.nodes:
        assert ours(node) == []
        assert docker(node, "ps", "-q", "--filter", "name=stranger").stdout.strip()
        assert docker(node, "volume", "ls", "-q").stdout.split() == ["kept"]


def test_the_guard_counts_what_a_container_holds_and_stops_both(lab: Lab, sparkctl: Cli) -> None:
    with meminfo_of_ours(*lab.nodes):
        started = sparkctl("start", "--set", "DSV41_MEM_GUARD=act")
        assert started.code == 0, (started.result, started.err)
        (box,) = running(lab.b)
        inside = docker(lab.b, "top", box, "-eo", "pid", check=True).stdout.split()[1:]
        held = anonymous(lab.b, map(int, inside))
        has_available(lab.b, 1.2)
        until(lambda: not any(map(running, lab.nodes)), "neither container runs", 40)
        gone = sparkctl("status")
    boots = f"{SMALL_DISK}/sparkctl/deployments/{started.result['deployment']}/boots/{started.result['boot']}"
    told = evidence(lab.b, f"{boots}/rank1")
    assert "our ranks are to blame" in told["why"]
    assert told["samples"][-1]["ours"] >= held > 0
    assert gone.code == 9
    assert gone.result["reasons"][0].startswith("the memory guard on worker stopped the ranks: 1.20 GiB available")
    assert all(docker(node, "ps", "-q", "--filter", "name=stranger").stdout.strip() for node in lab.nodes)
    assert sparkctl("stop").code == 0


def running(node: Node) -> list[str]:
    return docker(node, "ps", "-q", "--filter", "label=sparkctl.deployment").stdout.split()


def test_a_compose_file_names_what_is_there(lab: Lab, sparkctl: Cli) -> None:
    written = sparkctl("compose", "--rank", "1")
    (report,) = written.of("export")
    identity = docker(lab.b, "image", "inspect", "--format", "{{.Id}}", IMAGE, check=True).stdout.strip()
    assert identity in report["text"]
    refused = sparkctl("compose", "--set", "MODEL_DIR=/nowhere")
    assert "/nowhere" in "".join(refused.failed["evidence"])


def test_an_engine_that_does_not_run_is_named(sparkctl: Cli) -> None:
    failed = sparkctl("image", "ls", "--set", "ENGINE_SOCKET=/run/none.sock").failed
    assert (failed["error"], failed["exit"]) == ("EngineDown", 5)
    assert "systemctl start docker" in failed["fix"]
