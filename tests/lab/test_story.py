"""The main job, told once from the head and once from a laptop: start, look, ask, read logs, stop; real vLLM, TP=2."""

from __future__ import annotations

import json
import signal
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import jsonschema
import pytest

from tests.lab.cli import Cli, Event, Said, chat
from tests.lab.faults import left, note, signal_to
from tests.lab.nodes import Lab
from tests.lab.specification import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.lab

SCHEMAS = REPOSITORY / "docs" / "schema" / "v1"
API = "http://10.77.0.1:8888"
QUESTION, ANSWER = "What is 17*19? Reply with the integer only.", "323"
SETTINGS = {
    "RECIPE": "demo",
    "HEAD_IP": "10.77.0.1",
    "WORKER_IP": "10.77.0.2",
    "WORKER_SSH": "spark-b",
    "HOST": "fabric",
    "MODEL_DIR": str(REPOSITORY / "scripts" / "demo_model" / "model"),
}
FINDINGS = {
    ("FABRIC.ADDRESS", "head"): ("ok", "10.77.0.1 on eth9"),
    ("FABRIC.ADDRESS", "worker"): ("ok", "10.77.0.2 on eth9"),
}


@pytest.fixture
def lab(lab_ground: None) -> Iterator[Lab]:
    with Lab.up(small_disk_size="320m") as nodes:  # sparkctl wants 256 MiB for logs
        yield nodes


def test_the_head_starts_serves_answers_and_stops_two_ranks(lab: Lab, vllm_venv: Path) -> None:
    sparkctl = Cli(lab.a, SETTINGS | {"VENV": str(vllm_venv)})
    started = sparkctl("start")
    assert started.code == 0, started.result
    served = started.result
    assert (served["event"], served["url"], served["already"]) == ("served", API, False)
    assert [stage["stage"] for stage in served["stages"]] == ["connect", "check", "prepare", "launch", "load"]
    found = {(one["id"], one["node"]): (one["severity"], one["observed"]) for one in started.of("finding")}
    assert FINDINGS.items() <= found.items()
    assert titles(lab) == {"spark-a": ["VLLM::EngineCore", "VLLM::Worker_TP0"], "spark-b": ["VLLM::Worker_TP1"]}

    looked = sparkctl("status")
    assert (looked.code, standing(looked)) == (0, ("serving", ["alive", "alive"]))
    valid(started, looked)
    assert chat(lab.a, API, QUESTION)["choices"][0]["message"]["content"].strip() == ANSWER
    read_logs(sparkctl, lab)

    again = sparkctl("start")
    assert (again.code, again.result["already"], again.result["boot"]) == (0, True, served["boot"])
    assert again.of("step-started") == ()
    asked = sparkctl("smoke")
    assert (asked.code, asked.result["ok"]) == (0, True)
    valid(again, asked)

    receipt = json.loads(lab.a.path("/root/.local/state/sparkctl/deployments/demo/receipt.json").read_text())
    ended = sparkctl("stop")
    assert (ended.code, ended.result["event"]) == (0, "stopped")
    assert {rank["rank"]: rank["state"] for rank in ended.result["ranks"]} == {0: "graceful", 1: "graceful"}
    assert (lab.a.processes(), lab.b.processes()) == ((), ())
    before = {rank["node"]: rank["memory_before"] for rank in receipt["ranks"]}
    after = {node["node"]: node["memory_available"] for node in ended.result["memory"]}
    assert all(after[name] > 0.95 * before[name] for name in ("head", "worker")), (before, after)

    gone = sparkctl("status")
    assert (gone.code, standing(gone)) == (9, ("absent", ["exited", "exited"]))
    twice = sparkctl("stop")
    assert (twice.code, twice.result["nothing"]) == (0, True)
    valid(ended, gone, twice)


def test_a_laptop_drives_both_nodes_over_ssh(lab: Lab, vllm_venv: Path) -> None:
    sparkctl = Cli(lab.laptop, SETTINGS | {"VENV": str(vllm_venv), "HEAD_SSH": "spark-a"})
    started = sparkctl("start")
    assert started.code == 0, started.result
    assert lab.laptop.processes() == ()
    assert titles(lab) == {"spark-a": ["VLLM::EngineCore", "VLLM::Worker_TP0"], "spark-b": ["VLLM::Worker_TP1"]}
    looked, asked, again = sparkctl("status"), sparkctl("smoke"), sparkctl("start")
    assert (looked.code, standing(looked)) == (0, ("serving", ["alive", "alive"]))
    assert (asked.code, asked.result["ok"]) == (0, True)
    assert (again.code, again.result["already"]) == (0, True)
    assert {line["rank"] for line in sparkctl("logs", "--lines", "5").of("log-line")} == {0, 1}
    # The head itself sees what the laptop started: nothing is kept on the laptop.
    assert standing(Cli(lab.a, SETTINGS | {"VENV": str(vllm_venv)})("status")) == ("serving", ["alive", "alive"])
    with sparkctl.begin("status", "--watch", "--every", "1") as watch:
        at = signal_to(lab.a, "VLLM::EngineCore", signal.SIGKILL)
        known = watch.wait_for(lambda event: event["state"] != "serving", "the watch sees it", after=at)
        watch.signal(signal.SIGINT)
        watch.end(30)
    broken = sparkctl("status")
    assert broken.code in (8, 9)
    assert known - at < 15
    assert broken.result["reasons"][0].startswith("rank 0 (head): its engine process died")
    note("head's EngineCore killed, seen from the laptop", broken, left(lab, 0.0), known - at)
    assert sparkctl("stop").code == 0
    assert (lab.a.processes(), lab.b.processes()) == ((), ())
    assert sparkctl("status").code == 9


def read_logs(sparkctl: Cli, lab: Lab) -> None:
    """Both ranks interleaved by time; one of them; since a moment; by pattern; and as they are written."""
    every = sparkctl("logs", "--lines", "1000")
    lines = every.of("log-line")
    assert every.code == 0
    valid(every)
    assert all(first["at"] <= second["at"] for first, second in pairwise(lines))
    turns = [rank for rank, _ in groupby(lines, key=lambda line: line["rank"])]
    assert set(turns) == {0, 1}
    assert len(turns) > 5, "two ranks that boot side by side take turns"

    worker = sparkctl("logs", "--rank", "1", "--lines", "1000").of("log-line")
    assert keys(worker) == keys([line for line in lines if line["rank"] == 1])

    moment = lines[len(lines) // 2]["at"]
    since = keys(sparkctl("logs", "--since", moment).of("log-line"))
    known = keys([line for line in lines if line["at"] >= moment])
    assert since[: len(known)] == known

    matching = sparkctl("logs", "--grep", "for KV cache on node").of("log-line")
    assert {line["rank"] for line in matching} == {0, 1}
    assert all("for KV cache on node" in line["text"] for line in matching)

    with sparkctl.begin("logs", "--follow", "--lines", "0") as following:
        # Asked again and again, as the streams need a moment to stand.
        for _ in range(20):
            chat(lab.a, API, QUESTION)
            if any("/v1/chat/completions" in event.get("text", "") for _, event in following.heard):
                break
        following.wait_for(lambda event: "/v1/chat/completions" in event.get("text", ""), "a new line of the log")
        following.signal(signal.SIGINT)
        assert following.end(10).code == 130
    assert standing(sparkctl("status")) == ("serving", ["alive", "alive"])


def titles(lab: Lab) -> dict[str, list[str]]:
    return {node.name: [process.title for process in node.processes("VLLM::")] for node in lab.nodes}


def standing(said: Said) -> tuple[str, list[str]]:
    return said.result["state"], [rank["state"] for rank in said.result["ranks"]]


def keys(lines: list[Event] | tuple[Event, ...]) -> list[tuple[str, int, str]]:
    return [(line["at"], line["rank"], line["text"]) for line in lines]


def valid(*told: Said) -> None:
    """Every object that was printed is as the published schema says."""
    for said in told:
        assert said.events
        assert said.err == ""
        for event in said.events:
            schema = json.loads((SCHEMAS / f"{event['event']}.schema.json").read_text())
            jsonschema.validate(event, schema)
