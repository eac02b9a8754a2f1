"""Real vLLM, tensor parallel 2, one rank on each lab node, started with the two commands a person would type."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.node import Node, Running, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.nodes import Lab

pytestmark = pytest.mark.lab

QUIET_AND_SMALL = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "NO_COLOR": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VLLM_CPU_CI_ENV": "1",
    "TORCHDYNAMO_DISABLE": "1",
}
BOOT_LIMIT = 300.0


@pytest.fixture
def lent(tiny_model: Path) -> tuple[Path, ...]:
    return (tiny_model,)


def test_two_ranks_across_the_cable_answer_a_completion(lab: Lab, vllm_venv: Path, tiny_model: Path) -> None:
    began = time.monotonic()
    with rank(lab.b, 1, vllm_venv, tiny_model, "--headless") as worker:
        address = ("--host", lab.a.fabric_address, "--port", "8000")
        with rank(lab.a, 0, vllm_venv, tiny_model, *address) as head:
            until(lambda: answers(lab.a) or head.poll() is not None, "the head is healthy", BOOT_LIMIT)
            assert head.poll() is None, lab.a.path("/var/log/rank0.log").read_text()[-4000:]
            print(f"healthy after {time.monotonic() - began:.1f} s")
            answer = complete(lab.a, 8)
            assert answer["usage"]["completion_tokens"] == 8
            assert answer["choices"][0]["finish_reason"] == "length"
            titles = [process.title for node in lab.nodes for process in node.processes("VLLM::")]
            assert titles == ["VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"]
            head.signal(signal.SIGTERM)
            assert head.wait(60) == 0
            assert worker.poll() is None, "rank 1 is known to stay when the head is gone"
    until(lambda: not lab.b.processes("vllm"), "rank 1 ends when its parent is killed", 60)


@contextlib.contextmanager
def rank(node: Node, number: int, venv: Path, model: Path, *own: str) -> Iterator[Running]:
    command = (
        str(venv / "bin" / "vllm"), "serve", str(model), "--served-model-name", "tiny", "--max-model-len", "1024",
        "--max-num-seqs", "4", "--kv-cache-memory-bytes", "64M", "--enforce-eager", "--tensor-parallel-size", "2",
        "--distributed-executor-backend", "mp", "--nnodes", "2", "--master-addr", "10.77.0.1", "--master-port", "29511",
        "--node-rank", str(number), *own,
    )  # fmt: skip
    network = {"VLLM_HOST_IP": node.fabric_address, "GLOO_SOCKET_IFNAME": node.interface}
    with node.path(f"/var/log/rank{number}.log").open("w") as log:
        running = node.popen(command, env={**QUIET_AND_SMALL, **network}, stdout=log, stderr=log)
        try:
            yield running
        finally:
            for process in node.processes():
                with contextlib.suppress(StopIteration, ProcessLookupError):
                    node.kill(process.pid)
            running.end()


def answers(head: Node) -> bool:
    time.sleep(0.5)
    health = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://{head.fabric_address}:8000/health")
    return head.run(health).stdout == "200"


def complete(head: Node, tokens: int) -> Any:
    question = {"model": "tiny", "prompt": "hello", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    url = f"http://{head.fabric_address}:8000/v1/completions"
    said = head.run(("curl", "-s", url, "-H", "Content-Type: application/json", "-d", json.dumps(question)), check=True)
    return json.loads(said.stdout)
