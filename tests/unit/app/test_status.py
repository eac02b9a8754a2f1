"""`status` on a cluster that is not there: every state, its exit code, and what is said of each rank."""

import json
import re
from dataclasses import replace

import pytest

from cluster.app.status import EXITS, follow, status, with_rates
from cluster.errors import Exit
from cluster.model.deployment import State
from cluster.model.events import NodeStatus, RankStatus, StatusReport, Told
from cluster.model.settings import Watch
from cluster.model.status import FabricStatus
from cluster.model.units import Seconds
from tests.build import GIB
from tests.fakes.cluster import FakeCluster

RECEIPT = "/home/op/.local/state/sparkctl/deployments/demo/receipt.json"


def look(cluster: FakeCluster) -> StatusReport:
    return status(cluster.settings, cluster.open)


def judged(cluster: FakeCluster) -> tuple[State, Exit]:
    state = look(cluster).state
    return state, EXITS[state]


def wired(address: str) -> FabricStatus:
    return FabricStatus(address, "enp1s0f0np0", True, 200000, 9000)


def test_every_state_has_an_exit_code():
    assert EXITS == {
        State.SERVING: Exit.DONE,
        State.LOADING: Exit.DEGRADED,
        State.DEGRADED: Exit.DEGRADED,
        State.ABSENT: Exit.ABSENT,
        State.HUNG: Exit.HUNG,
        State.CANNOT_TELL: Exit.UNREACHABLE,
    }


def test_where_nothing_was_started_it_is_absent(cluster):
    assert judged(cluster) == (State.ABSENT, 9)
    assert [one.state for one in look(cluster).ranks] == ["absent", "absent"]


def test_serving_is_proven_by_a_token(serving):
    report = look(serving)
    boot = serving["spark-a"].ranks[0].boot
    began = "2026-11-30T17:00:00.000Z"
    assert replace(report, at="") == StatusReport(
        deployment="demo",
        state=State.SERVING,
        boot=boot,
        url="http://10.40.0.1:8888",
        ranks=(
            RankStatus(0, "spark-a", "alive", "HTTP up", 101, 1, GIB, began),
            RankStatus(1, "spark-b", "alive", "KV cache sized", 101, 1, GIB, began),
        ),
        nodes=(
            NodeStatus("spark-a", True, 128 * GIB, 100 * GIB, "", 100 * GIB, 2 * GIB, 0, wired("10.40.0.1")),
            NodeStatus("spark-b", True, 128 * GIB, 100 * GIB, "", 100 * GIB, 2 * GIB, 0, wired("10.40.0.2")),
        ),
        reasons=("a one-token completion was answered",),
        model="demo",
        health="200",
        completion="200 in 0.02 s",
        running=0.0,
        waiting=0.0,
        generated=0.0,
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", report.at)


def test_a_boot_that_has_no_api_yet_is_loading(cluster):
    cluster.course = cluster.course.replace("6 serves", "600 serves")
    cluster.interrupted(at=4)
    with pytest.raises(BaseException, match="stopped waiting"):
        cluster.start()
    assert judged(cluster) == (State.LOADING, 8)


def test_what_runs_is_asked_where_it_listens_and_not_where_the_settings_say_now(serving):
    moved = replace(serving.settings, serve=replace(serving.settings.serve, port=9999))
    report = status(moved, serving.open)
    assert (report.state, report.url) == (State.SERVING, "http://10.40.0.1:8888")


def test_a_dead_rank_makes_it_degraded_and_is_named(serving):
    serving["spark-b"].ranks[0].acts.append((0.0, "killed", "9"))
    report = look(serving)
    assert (report.state, EXITS[report.state]) == (State.DEGRADED, 8)
    assert report.ranks[1].state == "exited"
    assert report.ranks[1].detail == "ended with signal 9 at 2026-11-30T17:00:00.000Z"
    assert report.reasons[0].startswith("rank 1 (spark-b): it was ")


def test_an_api_that_answers_beside_a_frozen_rank_is_hung(serving):
    serving["spark-b"].ranks[0].acts.append((0.0, "stopped", ""))
    report = look(serving)
    assert (report.state, EXITS[report.state], report.health) == (State.HUNG, 10, "200")
    assert report.reasons[0] == "rank 1 on spark-b: VLLM::EngineCore (pid 101) is stopped (state T)"


def test_a_node_out_of_reach_is_unknown_and_not_dead(serving):
    serving["spark-b"].go()
    report = look(serving)
    assert (report.state, EXITS[report.state]) == (State.CANNOT_TELL, 3)
    assert report.ranks[1] == RankStatus(1, "spark-b", "unknown", "no route to host")
    assert report.nodes[1] == NodeStatus("spark-b", False, detail="no route to host")
    assert report.ranks[0].state == "alive"


def test_without_the_head_the_worker_is_still_told(serving):
    serving["spark-a"].go()
    report = look(serving)
    assert (report.state, report.ranks[0].state, report.ranks[1].state) == (State.CANNOT_TELL, "unknown", "alive")


def test_with_both_nodes_out_of_reach_it_cannot_tell(serving):
    for host in serving.hosts.values():
        host.go()
    assert judged(serving) == (State.CANNOT_TELL, 3)


def test_what_ended_as_asked_is_absent(serving):
    for host in serving.hosts.values():
        host.end()
    report = look(serving)
    assert (report.state, report.reasons) == (State.ABSENT, ("it was stopped as asked",))
    assert report.ranks[0].detail == "ended as asked with exit code 0 at 2026-11-30T17:00:06.000Z"


@pytest.mark.parametrize(("in_order", "state", "ended"), [(True, "exited", "ended at 2026-11-30T17:00:06.000Z; "),
                                                          (False, "vanished", "")])  # fmt: skip
def test_a_reboot_of_a_node_is_named_with_its_time_and_what_to_type(serving, in_order, state, ended):
    serving["spark-b"].reboot(in_order=in_order)
    report = look(serving)
    assert report.state is State.DEGRADED
    assert report.reasons == (
        "rank 1 (spark-b): its node was rebooted at 2026-11-30T17:01:06Z, after the start, and the rank went with it",
        "rank 1: node rebooted at 2026-11-30T17:01:06Z",
        "`sparkctl restart` starts all ranks anew",
    )
    assert (report.ranks[1].state, report.ranks[1].detail) == (
        state,
        f"{ended}its node was rebooted at 2026-11-30T17:01:06Z, after the start",
    )


def test_after_a_reboot_of_both_nodes_it_is_absent_and_says_why(serving):
    for host in serving.hosts.values():
        host.reboot(in_order=True)
    report = look(serving)
    assert (report.state, report.reasons[0], report.reasons[-1]) == (
        State.ABSENT,
        "rank 0 (spark-a): its node was rebooted at 2026-11-30T17:01:06Z, after the start, and the rank went with it",
        "`sparkctl start` starts all ranks anew",
    )


def test_what_was_stopped_before_a_reboot_was_stopped_as_asked(serving):
    for host in serving.hosts.values():
        host.end()
        host.reboot(in_order=True)
    assert look(serving).reasons == ("it was stopped as asked",)


def test_a_cut_fabric_is_the_first_cause_of_a_hang(serving):
    serving["spark-b"].plugged = False
    serving["spark-a"].completion = "timeout"
    report = look(serving)
    assert (report.state, report.reasons[0]) == (
        State.HUNG,
        "the fabric is cut: enp1s0f0np0 has no carrier: the cable is out, or the other end is down (on spark-b)",
    )
    assert [one.fabric and one.fabric.up for one in report.nodes] == [True, False]


def test_a_cut_fabric_is_no_reason_while_it_serves(serving):
    serving["spark-b"].plugged = False
    report = look(serving)
    assert (report.state, report.reasons) == (State.SERVING, ("a one-token completion was answered",))
    assert report.nodes[1].fabric is not None
    assert report.nodes[1].fabric.problem.startswith("enp1s0f0np0 has no carrier")


def test_a_transport_that_was_not_planned_is_told_from_the_receipt(serving):
    receipt = json.loads(serving["spark-a"].files[RECEIPT])
    receipt["ranks"][1] |= {"hca": "rocep1s0f1", "interface": "enp1s0f0np0"}
    receipt["ranks"][1]["transport"] = {"kind": "Socket", "devices": ["eno1"], "gpu_direct": False, "gids": []}
    serving["spark-a"].files[RECEIPT] = json.dumps(receipt).encode()
    head, worker = look(serving).ranks
    assert (head.transport, worker.transport) == ("", "sockets on eno1")
    assert worker.detail == (
        "KV cache sized; NCCL fell back to sockets on eno1, though RDMA over rocep1s0f1 was planned: far slower"
    )


def test_a_damaged_receipt_is_a_reason_and_not_an_end(serving):
    serving["spark-a"].files[RECEIPT] = b"{half"
    report = look(serving)
    assert report.state is State.SERVING
    assert report.reasons[-1].startswith(
        "spark-a:~/.local/state/sparkctl/deployments/demo/receipt.json: cannot read the receipt"
    )
    assert (report.url, report.model) == ("http://10.40.0.1:8888", "")


def test_whoever_holds_the_lock_is_told(serving):
    serving["spark-a"].files["/home/op/.local/state/sparkctl/lock"] = (
        b'{"command": "sparkctl restart", "user": "ann", "host": "laptop", "pid": 4, "since": "then"}'
    )
    assert look(serving).lock == "`sparkctl restart` by ann on laptop (pid 4), since then"


def test_a_released_lock_is_not_told(serving):
    serving["spark-a"].files["/home/op/.local/state/sparkctl/lock"] = b""
    assert look(serving).lock == ""


def test_status_changes_nothing_and_takes_no_lock(serving):
    files = {name: dict(host.files) for name, host in serving.hosts.items()}
    commands = {name: len(host.commands) for name, host in serving.hosts.items()}
    look(serving)
    assert {name: host.files for name, host in serving.hosts.items()} == files
    assert serving.acts == []
    asked = {name: len(host.commands) - commands[name] for name, host in serving.hosts.items()}
    assert asked == {"spark-a": 2, "spark-b": 1}, "two round trips to the head, one to the worker"


# ---- status --watch


def watched(cluster: FakeCluster, until: float) -> list[StatusReport]:
    seen: list[StatusReport] = []
    cluster.interrupted(at=cluster.clock() + until)
    with pytest.raises(KeyboardInterrupt):
        seen.extend(follow(cluster.settings, cluster.open, cluster.emit, 5.0, cluster.pace))
    return seen


def test_watch_looks_again_and_again(serving):
    assert [one.state for one in watched(serving, 15)] == [State.SERVING] * 3


def test_watch_tells_what_goes_through_the_fabric(serving):
    first, second, *_ = watched(serving, 15)
    assert rates_of(first) == [(None, None)] * 2
    assert rates_of(second) == [(0.0, 0.0)] * 2


def rates_of(report: StatusReport) -> list[tuple[float | None, float | None]]:
    return [(one.fabric.in_rate, one.fabric.out_rate) for one in report.nodes if one.fabric]


def report_of(received: int) -> StatusReport:
    fabric = replace(wired("10.40.0.1"), received=received, sent=2 * received)
    return StatusReport("demo", State.SERVING, "", "", (), (NodeStatus("spark-a", True, fabric=fabric),), ())


@pytest.mark.parametrize(("before", "now", "rates"), [(100, 1100, (200.0, 400.0)), (1100, 100, (None, None))])
def test_rates_are_bytes_per_second_and_none_when_an_interface_began_anew(before, now, rates):
    assert rates_of(with_rates(report_of(before), report_of(now), 5.0)) == [rates]


def test_watch_sees_a_node_come_back(serving):
    serving["spark-b"].go()
    serving.clock.at(serving.clock() + 6, serving["spark-b"].come_back)
    assert [one.state for one in watched(serving, 15)] == [State.CANNOT_TELL, State.CANNOT_TELL, State.SERVING]


def test_watch_sees_a_head_come_back(serving):
    serving["spark-a"].go()
    serving.clock.at(serving.clock() + 6, serving["spark-a"].come_back)
    assert [one.state for one in watched(serving, 15)] == [State.CANNOT_TELL, State.CANNOT_TELL, State.SERVING]


def test_watch_keeps_the_stacks_of_a_hang_once(serving, tmp_path):
    serving["spark-b"].ranks[0].acts.append((0.0, "freezes", ""))
    assert [one.state for one in watched(serving, 15)] == [State.HUNG] * 3
    assert sorted(serving.acts) == ["read stacks on spark-a", "read stacks on spark-b"]
    (folder,) = (tmp_path / "logs").iterdir()
    (note,) = serving.of(Told)
    assert note.text == f"evidence of the hang is in logs/{folder.name}/"


def test_one_look_never_waits_long_for_a_token(cluster):
    settings = replace(cluster.settings, watch=Watch(completion_timeout=Seconds(600)))
    status(settings, cluster.open)
    assert max(command.limit for command in cluster["spark-a"].commands) <= 40
