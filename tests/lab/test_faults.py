"""Faults around a start and a stop, on two nodes with a stand-in server: what sparkctl says, how soon, what is left."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

import pytest

from tests.lab.cli import Cli, Event
from tests.lab.faults import (
    MODEL,
    PACKAGES,
    STAND_IN,
    behave,
    clear,
    install_stand_in,
    left,
    living,
    note,
    nothing_is_left,
    ours,
)
from tests.lab.node import until
from tests.lab.nodes import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def standing(lab_ground: None) -> Iterator[Lab]:
    with Lab.up(small_disk_size="320m") as nodes:
        for node in nodes.nodes:
            install_stand_in(node)
        yield nodes


@pytest.fixture
def lab(standing: Lab) -> Iterator[Lab]:
    yield standing
    for node in standing.nodes:
        behave(node, "serve")
    clear(standing)


@pytest.fixture
def sparkctl(lab: Lab) -> Cli:
    return Cli(lab.a, STAND_IN)


# ---- refused before anything is changed


@pytest.mark.parametrize(("what", "address", "port"), [("API", "127.0.0.1", 8000), ("rendezvous", "0.0.0.0", 29521)])
def test_a_taken_port_is_refused(lab: Lab, sparkctl: Cli, what: str, address: str, port: int) -> None:
    squatter = lab.occupy_port(lab.a, address, port)
    is_refused(sparkctl, lab, f"{what} port taken on the head", "PORT.FREE", f"{what} port {port} is taken by python3")
    squatter.end()


def test_a_wrong_address_of_the_worker_is_refused(lab: Lab) -> None:
    sparkctl = Cli(lab.a, STAND_IN | {"WORKER_IP": "10.77.0.3"})
    told = "10.77.0.3 is on no interface of this node; it has 10.77.0.2 (eth9), 10.77.1.2 (lan0)"
    is_refused(sparkctl, lab, "wrong fabric address of the worker", "FABRIC.ADDRESS", told)


def test_a_wrong_master_address_is_refused(lab: Lab) -> None:
    said = Cli(lab.a, STAND_IN | {"HEAD_IP": "10.77.0.9"})("start")
    assert said.code == 2
    assert said.failed["what"].startswith("10.77.0.9 is not an address of this machine")
    note("wrong master address (the head's own)", said, left(lab))


def test_a_master_address_that_only_the_head_can_reach_is_refused_before_a_connection(lab: Lab) -> None:
    said = Cli(lab.a, STAND_IN | {"HEAD_IP": "127.0.0.1"})("start")
    assert said.code == 2
    assert said.failed["what"] == "HEAD_IP=127.0.0.1 is a loopback address, and not all nodes are local"
    assert said.of("stage-started") == ()
    note("loopback as master address", said, left(lab))


def test_a_pulled_cable_is_refused(lab: Lab, sparkctl: Cli) -> None:
    lab.cut_link()
    is_refused(sparkctl, lab, "link cut before the start", "FABRIC.ADDRESS", "eth9 has no carrier")


def test_a_full_disk_is_refused(lab: Lab, sparkctl: Cli) -> None:
    lab.fill_disk(lab.a)
    is_refused(sparkctl, lab, "head's disk full before the start", "DISK.STATE", "0 B free at")


def test_another_model_on_the_worker_is_refused(lab: Lab, sparkctl: Cli) -> None:
    config = lab.b.path(f"{MODEL}/config.json")
    config.write_text('{"other": 1}\n')
    is_refused(sparkctl, lab, "another model file on the worker", "RANKS.MODEL", "head 1 files")
    config.write_text("{}\n")


def test_another_version_on_the_worker_is_refused(lab: Lab, sparkctl: Cli) -> None:
    package = lab.b.path(f"{PACKAGES}/vllm-0.32.0.dist-info")
    other = package.rename(package.with_name("vllm-0.33.0.dist-info"))
    told = "vllm 0.32.0 on head, 0.33.0 on worker"
    is_refused(sparkctl, lab, "another vLLM on the worker", "RANKS.VERSIONS", told)
    other.rename(package)


def is_refused(sparkctl: Cli, lab: Lab, fault: str, check: str, observed: str) -> None:
    said = sparkctl("start")
    assert said.code == 4, said.result
    refusals = [one for one in said.of("finding") if one["severity"] == "refusal"]
    assert any(one["id"] == check and one["observed"].startswith(observed) for one in refusals), refusals
    assert all(one["fix"] for one in refusals)
    assert said.of("step-started") == ()
    assert said.err == ""
    nothing_is_left(lab)
    note(fault, said, "nothing")


# ---- a worker that never comes


def test_a_worker_that_ends_at_once_is_named(lab: Lab, sparkctl: Cli) -> None:
    behave(lab.b, "exit")
    with sparkctl.begin("start") as starting:
        began = starting.wait_for(is_step("start rank 1"), "the worker's launch")
        said = starting.end()
        ended = starting.heard[-1][0]
    assert (said.code, said.failed["error"], said.failed["where"]) == (6, "RankDied", "rank 1 on worker")
    assert any("no such quantization: exl9" in line for line in said.failed["evidence"])
    note("worker never starts: its server exits", said, left(lab), ended - began)
    nothing_is_left(lab)
    looked = sparkctl("status")
    assert (looked.code, looked.result["state"]) == (9, "absent")
    assert "rank 1" in looked.result["reasons"][0], "rank 0 was only removed by us"


def test_a_worker_that_says_nothing_is_a_hang(lab: Lab, sparkctl: Cli) -> None:
    behave(lab.b, "silent")
    with sparkctl.begin("start", "--hang-seconds", "6") as starting:
        began = starting.wait_for(is_step("start rank 1"), "the worker's launch")
        said = starting.end()
        ended = starting.heard[-1][0]
    assert (said.code, said.failed["error"], said.failed["where"]) == (10, "Hung", "rank 1 on worker")
    assert "rank 0 (head) waits for rank 1 (worker)" in said.failed["what"]
    evidence = said.failed["fix"].removeprefix("evidence is in ")
    files = {path.name for path in lab.a.path(f"{sparkctl.folder}/{evidence}").iterdir()}
    assert {"why.txt", "rank0-head.log", "rank1-worker-stacks.txt", "worker-processes.txt"} <= files
    note("worker never starts: its server says nothing (HANG_SECONDS=6)", said, left(lab), ended - began)
    nothing_is_left(lab)


# ---- the end of sparkctl itself


@pytest.mark.parametrize("stage", ["check", "prepare"])
def test_interrupted_before_a_launch_nothing_has_happened(lab: Lab, sparkctl: Cli, stage: str) -> None:
    with sparkctl.begin("start") as starting:
        at = starting.wait_for_stage(stage)
        starting.signal(signal.SIGINT)
        said = starting.end(20)
        ended = starting.heard[-1][0]
    assert said.code == 130
    assert said.of("stage-ended")[-1]["stage"] == stage
    nothing_is_left(lab)
    note(f"Ctrl-C during {stage}", said, "nothing", ended - at)
    assert sparkctl("status").code == 9
    is_served(sparkctl)


def test_interrupted_during_the_launch_what_was_started_is_removed(lab: Lab, sparkctl: Cli) -> None:
    with sparkctl.begin("start") as starting:
        at = starting.wait_for(is_step("start rank 0"), "the head's launch")
        starting.signal(signal.SIGINT)
        said = starting.end(30)
        ended = starting.heard[-1][0]
    assert said.code == 130
    assert said.of("stage-ended")[-1]["stage"] == "launch"
    nothing_is_left(lab)
    note("Ctrl-C during launch", said, "nothing", ended - at)
    assert sparkctl("status").code == 9
    is_served(sparkctl)


def test_interrupted_while_waiting_the_ranks_go_on(lab: Lab, sparkctl: Cli) -> None:
    behave(lab.b, "wait")
    with sparkctl.begin("start") as starting:
        starting.wait_for(is_phase(0, "waiting for its peer"), "rank 0 waits")
        at = starting.began
        starting.signal(signal.SIGINT)
        said = starting.end(20)
        at, ended = starting.heard[-2][0], starting.heard[-1][0]
    assert said.code == 130
    assert said.failed["what"] == "stopped waiting; the ranks go on loading"
    note("Ctrl-C while waiting", said, "both ranks, loading", ended - at)
    goes_on(lab, sparkctl)


def test_a_killed_sparkctl_leaves_ranks_that_the_next_one_waits_for(lab: Lab, sparkctl: Cli) -> None:
    behave(lab.b, "wait")
    with sparkctl.begin("start") as starting:
        starting.wait_for(is_phase(0, "waiting for its peer"), "rank 0 waits")
        starting.signal(signal.SIGKILL)
        starting.running.wait(10)
    looked = sparkctl("status")
    note("sparkctl itself killed (SIGKILL) while waiting", looked, "both ranks, loading")
    goes_on(lab, sparkctl)


def goes_on(lab: Lab, sparkctl: Cli) -> None:
    """Nobody waits any more; the ranks load, `status` says so, and the next `start` waits for them."""
    looked = sparkctl("status")
    assert (looked.code, looked.result["state"]) == (8, "loading")
    with sparkctl.begin("start") as again:
        again.wait_for(lambda event: "is loading already" in event.get("text", ""), "it joins the boot")
        behave(lab.b, "serve")
        said = again.end()
    assert (said.code, said.result["boot"]) == (0, looked.result["boot"])
    assert said.of("step-started") == ()
    assert sparkctl("stop").code == 0
    nothing_is_left(lab)


def test_of_two_starts_at_once_one_is_told_who_holds_the_lock(lab: Lab, sparkctl: Cli) -> None:
    behave(lab.b, "wait")
    with sparkctl.begin("start") as first:
        first.wait_for(is_phase(0, "waiting for its peer"), "rank 0 waits")
        second = Cli(lab.laptop, STAND_IN | {"HEAD_SSH": "spark-a"})("start")
        assert (second.code, second.failed["error"]) == (7, "Locked")
        assert second.failed["what"].startswith("another sparkctl is at work: `sparkctl start` by root on spark-a")
        assert "`sparkctl start` by root on spark-a" in sparkctl("status").result["lock"]
        note("two starts at once (the second from the laptop)", second, "the first start, undisturbed")
        behave(lab.b, "serve")
        assert first.end().code == 0
    assert sparkctl("status").result["lock"] == ""


# ---- a rank that is gone without a trace


def test_a_rank_killed_with_its_launcher_is_missed(lab: Lab, sparkctl: Cli) -> None:
    is_served(sparkctl)
    for process in ours(lab.a):  # the launcher is the oldest, and cannot say any more how its server ended
        with contextlib.suppress(StopIteration, ProcessLookupError):  # it went with the one before
            lab.a.kill(process.pid)
    looked = sparkctl("status")
    assert (looked.code, looked.result["state"]) == (8, "degraded")
    assert looked.result["reasons"][0] == "rank 0 (head): it is not running, and left no exit code"
    assert [rank["state"] for rank in looked.result["ranks"]] == ["vanished", "alive"]
    note("everything of the head's rank killed, its launcher too", looked, left(lab, 0.0))
    refused = sparkctl("start")
    assert (refused.code, refused.failed["fix"]) == (4, "sparkctl restart")
    assert sparkctl("restart").code == 0
    assert sparkctl("status").code == 0


def test_a_rank_whose_launcher_was_killed_is_degraded(lab: Lab, sparkctl: Cli) -> None:
    is_served(sparkctl)
    (launcher,) = [one for one in ours(lab.b) if "/agent/rank-" in one.title]
    lab.b.kill(launcher.pid)
    looked = sparkctl("status")
    assert (looked.code, looked.result["state"]) == (8, "degraded")
    assert [rank["state"] for rank in looked.result["ranks"]] == ["alive", "orphaned"]
    note("launcher of the worker's rank killed alone", looked, left(lab, 0.0))
    assert sparkctl("stop").code == 0
    nothing_is_left(lab)


# ---- nodes out of reach at a stop


def test_a_worker_out_of_reach_is_not_called_stopped(lab: Lab, sparkctl: Cli) -> None:
    is_served(sparkctl)
    lab.cut_control(lab.b)
    said = sparkctl("stop")
    assert said.code == 3
    assert said.of("stopped") == ()
    assert "rank 1 on worker" in said.failed["what"]
    assert [count > 0 for count in living(lab).values()] == [False, True]
    note("worker out of reach at stop (control link cut)", said, "rank 1, still running")
    looked = sparkctl("status")
    assert (looked.code, looked.result["state"]) == (3, "cannot-tell")
    assert looked.result["reasons"][0].startswith("worker does not answer: ")
    lab.restore_control(lab.b)
    assert sparkctl("status").code == 8
    assert sparkctl("stop").code == 0
    nothing_is_left(lab)


def test_a_worker_without_sshd_is_not_called_stopped(lab: Lab, sparkctl: Cli) -> None:
    is_served(sparkctl)
    listeners = [one.pid for one in lab.b.all_processes() if one.title.startswith(("sshd:", "/usr/sbin/sshd"))]
    for pid in listeners:
        lab.b.kill(pid)
    said = sparkctl("stop")
    assert (said.code, said.of("stopped")) == (3, ())
    assert "rank 1 on worker" in said.failed["what"]
    note("worker out of reach at stop (no sshd)", said, "rank 1, still running")
    lab.b.run(("/usr/sbin/sshd", "-f", "/etc/ssh/lab_sshd_config"), check=True)
    until(lambda: lab.a.run(("ssh", "spark-b", "true")).returncode == 0, "sshd answers again")
    assert sparkctl("stop").code == 0
    nothing_is_left(lab)


def test_a_head_out_of_reach_is_not_called_stopped(lab: Lab) -> None:
    laptop = Cli(lab.laptop, STAND_IN | {"HEAD_SSH": "spark-a"})
    is_served(laptop)
    before = [len(ours(node)) for node in lab.nodes]
    lab.cut_control(lab.a)
    said = laptop("stop")
    assert (said.code, said.of("stopped")) == (3, ())
    note("head out of reach at stop (from the laptop)", said, "both ranks, still serving")
    assert [len(ours(node)) for node in lab.nodes] == before
    lab.restore_control(lab.a)
    assert laptop("stop").code == 0
    nothing_is_left(lab)


def is_served(sparkctl: Cli) -> None:
    said = sparkctl("start")
    assert said.code == 0, said.result


def is_step(why: str):
    return lambda event: event["event"] == "step-started" and event["why"] == why


def is_phase(rank: int, text: str):
    def is_it(event: Event) -> bool:
        return (event["event"], event.get("rank"), event.get("text")) == ("progress", rank, text)

    return is_it
