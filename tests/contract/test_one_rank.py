"""sparkctl itself with one rank on this machine: vLLM's stand-in, and a server that is not vLLM."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.bench import STANDIN, until
from tests.contract.sshd import free_port

pytestmark = pytest.mark.contract

REPOSITORY = Path(__file__).parents[2]
OWN = Path(__file__).with_name("own_server.py")
ONE = """
deployment: one
nodes: [{{name: spark, control: local, address: 127.0.0.1, state_dir: {folder}/state}}]
serve: {{model: {folder}/model, served_model_name: alone, host: loopback, port: {port}, tensor_parallel: 1}}
"""
VLLM = "launch: {{venv: {folder}/venv}}\n"
NATIVE = """
launch:
  command: [{python}, {own}, "{folder}", "{{host}}", "{{port}}", "{{name}}", "; touch {folder}/shell"]
  environment: {{EXL3_MODEL_DIR: "{{model}}"}}
watch: {{ready_path: /ready}}
exl3: {{profile: aliased}}
"""
OURS = """
launch:
  command: [{python}, -m, spark_exl3, --model, "{{model}}", --name, "{{name}}", --host, "{{host}}", --port, "{{port}}"]
  environment: {{PYTHONPATH: "{library}"}}
serve: {{max_model_len: 1024, api_key_file: {folder}/key}}
watch: {{ready_path: /ready}}
exl3: {{profile: measured}}
"""
BESIDE = ("--force", "EXL3.ALONE")  # the servers of other tests run on this machine, too


@dataclass(frozen=True, slots=True)
class Desk:
    folder: Path

    def argv(self, *words: str) -> dict[str, Any]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONPATH": str(REPOSITORY)}
        return {
            "args": (sys.executable, "-m", "cluster", *words, "--json"),
            "cwd": self.folder,
            "env": environment,
            "text": True,
        }

    def __call__(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = subprocess.run(**self.argv(*words), capture_output=True, timeout=120)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout.splitlines()[-1])

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(**self.argv(*words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def merged(*texts: str) -> str:
    whole: dict[str, Any] = {}
    for text in texts:
        for key, value in yaml.safe_load(text).items():
            whole[key] = whole.get(key, {}) | value if isinstance(value, dict) else value
    return json.dumps(whole)


@pytest.fixture
def desk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Desk]:
    library = f"{REPOSITORY / 'exl3_server'}:{REPOSITORY / 'tests/fakes/exllama'}"
    names = {"folder": tmp_path, "port": free_port(), "python": sys.executable, "own": OWN, "library": library}
    for name, text in {
        "venv/bin/vllm": f'#!/bin/sh\nexec {sys.executable} {STANDIN} "$@"\n',
        "model/config.json": '{"reply": "323"}',
        "cluster.yaml": merged(ONE.format(**names), request.param.format(**names)),
        "key": "sesame",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o700)
    desk = Desk(tmp_path)
    yield desk
    assert desk("stop")[0] == 0


@pytest.mark.parametrize("desk", [VLLM], indirect=True)
def test_one_rank_of_vllm_starts_without_a_rendezvous_and_a_second_start_has_nothing_to_do(desk):
    code, served = desk("start")
    assert (code, served["event"], served["already"]) == (0, "served", False)
    assert [(one["rank"], one["node"]) for one in desk("status")[1]["ranks"]] == [(0, "spark")]
    (spec,) = desk.folder.glob("state/deployments/one/boots/*/rank0/spec.json")
    words = set(json.loads(spec.read_text())["argv"])
    assert not words & {"--nnodes", "--master-addr", "--node-rank", "--headless", "--distributed-executor-backend"}
    assert desk("start")[1]["already"] is True


@pytest.mark.parametrize("desk", [NATIVE], indirect=True)
def test_another_server_is_waited_for_by_its_own_sign_and_told_to_clients(desk):
    start = desk.begin("start", *BESIDE)
    asked = desk.folder / "asked"
    until(lambda: asked.exists() and len(asked.read_text()), lambda times: times >= 2)
    assert start.poll() is None
    assert desk("status")[1]["state"] == "loading"
    assert desk("client-config")[0] == 4
    (desk.folder / "loaded").touch()
    output, _ = start.communicate(timeout=60)
    assert (start.returncode, json.loads(output.splitlines()[-1])["event"]) == (0, "served")
    assert desk("status")[1]["state"] == "serving"
    given = json.loads((desk.folder / "given.json").read_text())
    assert (given["copy"], given["dir"]) == ("", str(desk.folder / "model"))
    assert given["argv"][-1] == f"; touch {desk.folder}/shell"
    assert not (desk.folder / "shell").exists()
    told = json.loads(desk("client-config")[1]["text"])["providers"]["one-local"]["models"][0]
    assert (told["id"], told["contextWindow"]) == ("alone", 6144)


@pytest.mark.parametrize("desk", [OURS], indirect=True)
def test_our_own_server_is_started_with_its_profile_and_key_and_answers_the_smoke_test(desk):
    code, served = desk("start", *BESIDE)
    assert (code, served["event"]) == (0, "served"), served
    code, smoke = desk("smoke")
    assert (code, [(one["name"], one["ok"]) for one in smoke["checks"]]) == (0, [("17*19", True)]), smoke
    code, pace = desk("bench", "chat", "--requests", "3")
    assert (code, pace["event"], pace["answered"], pace["new_tokens"], pace["counted"]) == (0, "chat-bench", 3, 9, True)
    (spec,) = desk.folder.glob("state/deployments/one/boots/*/rank0/spec.json")
    given = json.loads(spec.read_text())["env"]
    assert {one: given[one] for one in ("CTX", "CHUNK", "EXL3_MTP", "EXL3_ATS_COPY")} == {
        "CTX": "1024",
        "CHUNK": "2048",
        "EXL3_MTP": "1",
        "EXL3_ATS_COPY": r"^(?!mtp\.)",
    }
    assert "sesame" not in spec.read_text()
