"""Faults in real vLLM, TP=2 over two nodes, while it loads and serves: how soon `status` knows, what it says."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.lab.cli import Begun, Cli, Event, Said, chat, long_request
from tests.lab.faults import SHARED, clear, left, note, nothing_is_left, ours, signal_to
from tests.lab.node import until
from tests.lab.nodes import Lab
from tests.lab.specification import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.lab.node import Node

pytestmark = pytest.mark.lab

API = "http://10.77.0.1:8888"
KNOWN_WITHIN = 15.0  # seconds from a death to the first look that says so


@pytest.fixture(scope="module")
def lab(lab_ground: None) -> Iterator[Lab]:
    with Lab.up(small_disk_size="320m") as nodes:
        yield nodes
        nothing_is_left(nodes)


@pytest.fixture(scope="module")
def sparkctl(lab: Lab, vllm_venv: Path) -> Iterator[Cli]:
    model = REPOSITORY / "scripts" / "demo_model" / "model"
    cli = Cli(lab.a, SHARED | {"HOST": "fabric", "VENV": str(vllm_venv), "MODEL_DIR": str(model)})
    yield cli
    cli("stop")
    clear(lab)


def test_a_worker_killed_while_loading(lab: Lab, sparkctl: Cli) -> None:
    with sparkctl.begin("start") as starting:
        starting.wait_for(lambda event: event.get("rank") == 1 and event["current"] >= 3, "rank 1 loads", 120)
        at = kill(lab.b, "VLLM::Worker")
        said = starting.end(120)
        ended = starting.heard[-1][0]
    assert (said.code, said.failed["error"], said.failed["where"]) == (6, "RankDied", "rank 1 on worker")
    assert ended - at < KNOWN_WITHIN
    note("worker killed while loading", said, left(lab), ended - at)
    nothing_is_left(lab)
    assert sparkctl("status").code == 9


def test_a_worker_off_the_control_network_is_unknown_and_not_dead(lab: Lab, sparkctl: Cli) -> None:
    serve(sparkctl)
    lab.cut_control(lab.b)
    looked = sparkctl("status")
    assert (looked.code, looked.result["state"]) == (3, "cannot-tell")
    assert [rank["state"] for rank in looked.result["ranks"]] == ["alive", "unknown"]
    assert chat(lab.a, API, "What is 17*19? Reply with the integer only.")["choices"]
    note("control link to the worker cut while serving", looked, "both ranks, still serving")
    lab.restore_control(lab.b)
    assert sparkctl("status").code == 0


def test_a_full_disk_does_not_end_a_server(lab: Lab, sparkctl: Cli) -> None:
    serve(sparkctl)
    lab.fill_disk(lab.a)
    assert chat(lab.a, API, "What is 17*19? Reply with the integer only.")["choices"]
    looked, again = sparkctl("status"), sparkctl("start")
    assert (looked.code, again.code, again.result["already"]) == (0, 0, True)
    lab.free_disk(lab.a)


def test_a_worker_stopped_in_a_request_is_a_hang_until_it_goes_on(lab: Lab, sparkctl: Cli) -> None:
    serve(sparkctl)
    with long_request(lab.a, API) as request, watching(sparkctl) as watch:
        watch.wait_for(lambda event: (event.get("running") or 0) > 0, "a request runs")
        at = signal_to(lab.b, "VLLM::Worker", signal.SIGSTOP)
        known = watch.wait_for(is_state("hung"), "it is called hung", 90, after=at)
        looked = sparkctl("status")
        signal_to(lab.b, "VLLM::Worker", signal.SIGCONT)
        watch.wait_for(is_state("serving"), "it serves again", 60, after=known)
        answer = json.loads(request.communicate(timeout=120)[0])
    assert answer["choices"]
    assert (looked.code, looked.result["state"]) == (10, "hung")
    assert any("is stopped (state T)" in reason for reason in looked.result["reasons"])
    assert known - at < KNOWN_WITHIN
    note("rank 1's worker process stopped (SIGSTOP) mid-request", looked, "everything; SIGCONT mends it", known - at)


def test_a_cut_cable_is_a_hang_until_it_is_mended(lab: Lab, sparkctl: Cli) -> None:
    serve(sparkctl)
    with watching(sparkctl) as watch:
        at = time.monotonic()
        lab.cut_link()
        known = watch.wait_for(lambda event: event["state"] != "serving", "something is wrong", 60, after=at)
        looked = sparkctl("status")
        lab.restore_link()
        watch.wait_for(is_state("serving"), "it serves again", 90, after=known)
    assert (looked.code, looked.result["state"]) == (10, "hung")
    assert [why for why in looked.result["reasons"] if why.startswith("the fabric is cut")] == [
        f"the fabric is cut: eth9 has no carrier: the cable is out, or the other end is down (on {node})"
        for node in ("head", "worker")
    ]
    assert looked.sentence.startswith("hung: the fabric is cut")
    assert known - at < KNOWN_WITHIN + 5
    note("fabric link cut while serving", looked, "everything; plugging the cable in mends it", known - at)


def test_a_worker_killed_in_a_request(lab: Lab, sparkctl: Cli) -> None:
    serve(sparkctl)
    with long_request(lab.a, API) as request:
        until(lambda: runs_a_request(sparkctl), "a request runs", 30)
        looked = fault(lab, sparkctl, "worker killed mid-request", lambda: kill(lab.b, "VLLM::Worker"))
        answer = json.loads(request.communicate(timeout=60)[0])
    assert "choices" not in answer
    assert any("rank 1" in reason for reason in looked.result["reasons"])


def test_a_worker_killed_while_idle(lab: Lab, sparkctl: Cli) -> None:
    serve(sparkctl)
    looked = fault(lab, sparkctl, "worker killed while serving, idle", lambda: kill(lab.b, "VLLM::Worker"))
    assert looked.result["reasons"][0].startswith("rank 1 (worker)")


def test_the_api_server_killed_alone(lab: Lab, sparkctl: Cli) -> None:
    serve(sparkctl)
    looked = fault(
        lab, sparkctl, "head's API server killed (that process only)", lambda: kill(lab.a, "/bin/vllm serve")
    )
    assert (looked.code, looked.result["reasons"][0]) == (8, "rank 0 (head): it was killed by SIGKILL")
    until(lambda: ours(lab.a) == (), "the launcher ends what the API server left", 15)
    refused = sparkctl("start")
    assert (refused.code, refused.failed["fix"]) == (4, "sparkctl restart")
    assert sparkctl("stop").code == 0
    nothing_is_left(lab)
    assert sparkctl("status").code == 9


def fault(lab: Lab, sparkctl: Cli, name: str, act: Callable[[], float]) -> Said:
    """Do it beside a watch; the first look that is no longer `serving` dates the discovery."""
    with watching(sparkctl) as watch:
        watch.wait_for(is_state("serving"), "it serves")
        at = act()
        known = watch.wait_for(lambda event: event["state"] != "serving", "the watch sees it", 60, after=at)
    looked = sparkctl("status")
    # vLLM's other rank ends by itself when it notices: then nothing is left to be degraded.
    assert looked.code in (8, 9), looked.result
    assert known - at < KNOWN_WITHIN
    note(name, looked, left(lab, 0.0), known - at)
    return looked


@contextlib.contextmanager
def watching(sparkctl: Cli) -> Iterator[Begun]:
    with sparkctl.begin("status", "--watch", "--every", "1") as watch:
        yield watch
        watch.signal(signal.SIGINT)
        assert watch.end(30).code == 130


def serve(sparkctl: Cli) -> None:
    """Serving, whatever the fault before has left: nothing to do, a start, or a restart."""
    state = sparkctl("status").result["state"]
    if state != "serving":
        said = sparkctl("start" if state == "absent" else "restart", timeout=300)
        assert said.code == 0, said.result


def runs_a_request(sparkctl: Cli) -> bool:
    return (sparkctl("status").result["running"] or 0) > 0


def is_state(state: str) -> Callable[[Event], bool]:
    return lambda event: event["event"] == "status" and event["state"] == state


def kill(node: Node, title: str) -> float:
    return signal_to(node, title, signal.SIGKILL)
