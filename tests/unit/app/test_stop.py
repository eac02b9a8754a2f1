"""`stop` and `restart` on a cluster that is not there."""

from dataclasses import replace

import pytest

from cluster.app.agents import source
from cluster.app.restart import restart
from cluster.app.stop import stop
from cluster.errors import Exit, NotStopped, Refused, SparkctlError, StepFailed, Unreachable
from cluster.model.events import NodeStatus, RankStatus, Served, Severity, StageEnded, StageStarted, Stopped, Told
from cluster.model.receipt import from_json
from cluster.model.settings import NodeSettings
from cluster.node.base import Result
from tests.build import GIB
from tests.fakes.cluster import FakeCluster

RECEIPT = "/home/op/.local/state/sparkctl/deployments/demo/receipt.json"
BOTH = ["rank 0 on spark-a", "rank 1 on spark-b"]


def end(cluster: FakeCluster, **changes) -> Stopped:
    return stop(replace(cluster.settings, **changes), cluster.open, cluster.emit, cluster.pace)


def failing(cluster: FakeCluster, kind: type[SparkctlError], **changes) -> SparkctlError:
    with pytest.raises(kind) as caught:
        end(cluster, **changes)
    assert cluster.of(Stopped) == [], "nothing may call it stopped"
    return caught.value


def moved(settings, rank: int, **changes) -> tuple[NodeSettings, ...]:
    nodes = list(settings.nodes)
    nodes[rank] = replace(nodes[rank], **changes)
    return tuple(nodes)


def warnings(cluster: FakeCluster) -> list[tuple[str, str]]:
    return [
        (event.node, event.text)
        for event in cluster.events
        if isinstance(event, Told) and event.severity is Severity.WARNING
    ]


# ---- stop


def test_stop_ends_every_rank_and_says_how(serving):
    assert end(serving) == Stopped(
        "demo",
        (
            RankStatus(0, "spark-a", "graceful", "2 processes in 0.5 s", processes=2),
            RankStatus(1, "spark-b", "graceful", "2 processes in 0.5 s", processes=2),
        ),
        (
            NodeStatus("spark-a", True, 128 * GIB, 100 * GIB),
            NodeStatus("spark-b", True, 128 * GIB, 100 * GIB),
        ),
    )
    assert serving.living() == []
    assert serving.of(StageStarted, StageEnded) == [
        StageStarted("stop", ("spark-a", "spark-b")),
        StageEnded("stop", 0.0, ok=True),
    ]


def test_stop_of_nothing_has_nothing_to_do(cluster):
    assert end(cluster) == Stopped("demo", (), (), nothing=True)


def test_a_second_stop_has_nothing_to_do(serving):
    end(serving)
    assert end(serving).nothing


def test_ranks_that_had_to_be_killed_are_told_so(serving):
    serving["spark-b"].killed = True
    assert [one.state for one in end(serving).ranks] == ["graceful", "killed"]


def test_ranks_of_a_failed_boot_are_ended_too(serving):
    serving["spark-a"].ranks[0].acts.append((0.0, "exits", "1"))
    assert [one.node for one in end(serving).ranks] == ["spark-b"]


def test_what_no_signal_ends_is_an_error_that_names_it(serving):
    serving["spark-b"].left = "VLLM::Worker_TP1"
    error = failing(serving, NotStopped)
    assert (error.exit, error.evidence) == (
        Exit.NOT_STOPPED,
        ("rank 1 on spark-b: VLLM::Worker_TP1 (pid 102)",),
    )
    assert serving.living() == ["rank 1 on spark-b"]
    assert serving.of(StageEnded)[-1].ok is False


def test_an_unreachable_worker_is_never_called_stopped(serving):
    serving["spark-b"].go()
    error = failing(serving, Unreachable)
    assert (error.exit, error.where) == (Exit.UNREACHABLE, "spark-b")
    assert error.what == "cannot tell whether rank 1 on spark-b stopped; the other ranks are gone"
    assert error.fix == "sparkctl stop again, once the node answers"
    assert serving.living() == ["rank 1 on spark-b"], "the others are ended all the same"


def test_a_worker_that_is_lost_while_it_stops_is_never_called_stopped(serving):
    serving["spark-b"].fails["stop"] = Unreachable("the connection was lost", where="spark-b")
    assert failing(serving, Unreachable).evidence == ("spark-b: the connection was lost",)


def test_without_the_head_nothing_is_stopped_for_its_lock_cannot_be_taken(serving):
    serving["spark-a"].go()
    assert failing(serving, Unreachable).where == "spark-a"
    assert serving.living() == BOTH


def test_what_is_left_on_one_node_does_not_hide_that_the_other_is_lost(serving):
    serving["spark-a"].left = "VLLM::EngineCore"
    serving["spark-b"].go()
    assert failing(serving, NotStopped).evidence == (
        "rank 0 on spark-a: VLLM::EngineCore (pid 102)",
        "spark-b: no route to host; nobody knows what runs there",
    )


def test_a_stop_program_that_fails_says_why(serving):
    serving["spark-b"].fails["stop"] = Result(2, b'{"error": "cannot read /proc"}', b"")
    error = failing(serving, StepFailed)
    assert (error.what, error.where) == ("cannot read /proc", "spark-b")


def test_a_rank_that_is_there_again_is_not_stopped(serving):
    """The stop program said so; the second pair of eyes sees another."""
    quiet = Result(0, b'{"ranks": [], "available_before": 1, "available_after": 1}', b"")
    serving["spark-b"].fails["stop"] = quiet
    error = failing(serving, NotStopped)
    assert error.what == "rank 1 is alive again after it was stopped"
    assert error.evidence == ("VLLM::EngineCore (pid 101)",)


def test_memory_that_does_not_come_back_is_told_after_waiting(serving):
    serving["spark-b"].available = 60 * GIB
    began = serving.clock()
    assert len(end(serving).ranks) == 2
    ((node, text),) = warnings(serving)
    assert (node, text.partition(";")[0]) == ("spark-b", "40.0 GiB less is available than before the launch")
    assert serving.clock() - began == 30


def test_memory_that_comes_back_late_is_waited_for(serving):
    serving["spark-b"].available = 60 * GIB
    serving.clock.at(serving.clock() + 4, lambda: setattr(serving["spark-b"], "available", 99 * GIB))
    assert end(serving).memory[1] == NodeStatus("spark-b", True, 128 * GIB, 99 * GIB)
    assert warnings(serving) == []


def test_without_a_receipt_stop_still_ends_what_runs(serving):
    del serving["spark-a"].files[RECEIPT]
    assert len(end(serving).ranks) == 2
    assert serving.living() == []


def test_a_damaged_receipt_does_not_keep_ranks_alive(serving):
    serving["spark-a"].files[RECEIPT] = b"\x00" * 100
    assert len(end(serving).ranks) == 2
    assert serving.living() == []


def test_a_rank_on_a_node_that_the_settings_no_longer_name_is_not_forgotten(serving):
    error = failing(serving, NotStopped, nodes=moved(serving.settings, 1, control="op@spark-c"))
    assert error.what == "rank 1 was started on spark-b (op@spark-b), which is not in the settings now"
    assert error.fix == "stop with the settings it was started with"
    assert serving.living() == BOTH


def test_after_a_stop_its_nodes_may_be_renamed(serving):
    """The receipt says that its ranks are gone, so they are strangers to nobody."""
    end(serving)
    nodes = moved(serving.settings, 1, control="op@spark-c")
    assert end(serving, nodes=nodes).nothing


def test_the_receipt_says_when_it_was_stopped(serving):
    end(serving)
    assert from_json(serving["spark-a"].files[RECEIPT].decode(), "").stopped


def test_a_full_disk_on_the_head_does_not_make_a_failure_of_a_stop(serving):
    serving["spark-a"].fill_disk()
    assert len(end(serving).ranks) == 2
    ((node, text),) = warnings(serving)
    assert node == "spark-a"
    assert text.startswith("the receipt does not say that it was stopped: cannot write ")


# ---- restart


def again(cluster: FakeCluster, **changes) -> Served:
    return restart(replace(cluster.settings, **changes), cluster.open, cluster.emit, pace=cluster.pace)


def test_restart_stops_and_starts_under_one_lock(serving):
    boot = serving["spark-a"].ranks[0].boot
    served = again(serving)
    assert served.boot != boot
    assert sorted(serving.acts[:2]) == ["stop rank 0 on spark-a", "stop rank 1 on spark-b"]
    assert serving.acts[2:] == ["launch rank 1 on spark-b", "launch rank 0 on spark-a"]
    assert sum(command.stdin == source("lock") for command in serving["spark-a"].commands) == 2
    assert [one.stage for one in serving.of(StageStarted)] == [
        "connect",
        "check first",
        "stop",
        "check",
        "prepare",
        "launch",
        "load",
    ]


def test_a_refused_restart_leaves_the_old_ranks_untouched(serving):
    serving["spark-b"].says["server"] = False
    with pytest.raises(Refused):
        again(serving)
    assert serving.acts == []
    assert serving.living() == BOTH


def test_a_restart_is_not_refused_for_ports_that_its_own_ranks_hold(serving):
    serving["spark-a"].listening = "10.40.0.1:8888 vllm, *:29521 vllm"
    serving["spark-a"].fails["stop"] = lambda: setattr(serving["spark-a"], "listening", "")
    assert again(serving).already is False


def test_a_port_that_somebody_else_holds_is_found_after_the_stop(serving):
    serving["spark-a"].listening = "*:8888 nginx"
    with pytest.raises(Refused):
        again(serving)
    assert serving.living() == []


def test_restart_applies_other_settings(serving):
    again(serving, serve=replace(serving.settings.serve, max_model_len=2048))
    receipt = from_json(serving["spark-a"].files[RECEIPT].decode(), "")
    assert "--max-model-len" in receipt.ranks[0].argv


def test_restart_of_nothing_is_a_start(cluster):
    assert again(cluster).already is False
    assert cluster.of(Stopped) == [Stopped("demo", (), (), nothing=True)]


def test_a_rank_that_cannot_be_stopped_is_not_started_over(serving):
    serving["spark-b"].left = "VLLM::Worker_TP1"
    with pytest.raises(NotStopped):
        again(serving)
    assert not any(act.startswith("launch") for act in serving.acts)
