"""`start` on a cluster that is not there: what it says, what it leaves, what it makes of every fault."""

import json
from dataclasses import replace

import pytest

from cluster.app.start import start
from cluster.errors import (
    Exit,
    Hung,
    Interrupted,
    Locked,
    OutOfTime,
    RankDied,
    Refused,
    SparkctlError,
    StepFailed,
    Unreachable,
)
from cluster.model.events import Failed, Finding, Progress, Served, Severity, StageEnded, StageStarted, Told
from cluster.model.fabric import NOTHING_SAID, Transport
from cluster.model.receipt import Receipt, from_json
from cluster.model.settings import Launch, NodeSettings, Watch
from cluster.model.units import Seconds
from cluster.node.base import Result
from tests.build import GIB, pair
from tests.fakes.cluster import FakeCluster

ROOT = "/home/op/.local/state/sparkctl/deployments/demo"
NO_DISK = Result(1, b"", b"OSError: no space left on device")


def begin(cluster: FakeCluster, *forced: str, **changes) -> Served:
    settings = replace(cluster.settings, **changes)
    return start(settings, cluster.open, cluster.emit, frozenset(forced), cluster.pace)


def failing(cluster: FakeCluster, kind: type[SparkctlError]) -> SparkctlError:
    with pytest.raises(kind) as caught:
        begin(cluster)
    return caught.value


def receipt(cluster: FakeCluster) -> Receipt:
    return from_json(cluster["spark-a"].files[f"{ROOT}/receipt.json"].decode(), "here")


def stages(cluster: FakeCluster) -> list[tuple[str, bool | None]]:
    """Begun (None), then ended well or not."""
    return [
        (event.stage, event.ok if isinstance(event, StageEnded) else None)
        for event in cluster.events
        if isinstance(event, StageStarted | StageEnded)
    ]


def told(cluster: FakeCluster, severity: Severity) -> list[str]:
    return [event.text for event in cluster.events if isinstance(event, Told) and event.severity is severity]


# ---- it works


def test_a_start_goes_through_its_stages_and_serves(cluster):
    served = begin(cluster)
    assert stages(cluster) == [
        (name, ok) for name in ("connect", "check", "prepare", "launch", "load") for ok in (None, True)
    ]
    assert (served.url, served.model, served.already) == ("http://10.40.0.1:8888", "demo", False)
    assert served.receipt == "spark-a:~/.local/state/sparkctl/deployments/demo/receipt.json"
    assert [one.stage for one in served.stages] == ["connect", "check", "prepare", "launch", "load"]
    assert [one.stage for one in served.stages[-1].children] == ["port open", "HTTP answers", "first token"]


def test_the_worker_is_launched_before_the_head(cluster):
    begin(cluster)
    assert cluster.acts == ["launch rank 1 on spark-b", "launch rank 0 on spark-a"]


def test_each_phase_of_each_rank_is_told_once(cluster):
    begin(cluster)
    told = [(one.rank, one.text) for one in cluster.of(Progress) if not one.heartbeat]
    assert told == list(dict.fromkeys(told))
    assert {rank: [text for one, text in told if one == rank][-1] for rank in (0, 1)} == {
        0: "HTTP up",
        1: "KV cache sized",
    }


def test_the_receipt_says_what_was_started_where(cluster):
    served = begin(cluster)
    kept = receipt(cluster)
    assert (kept.boot, kept.url, kept.model, kept.recipe) == (served.boot, served.url, "demo", "demo")
    assert kept.served
    assert kept.stages == served.stages
    head, worker = kept.ranks
    assert (head.node, head.control, worker.node, worker.control) == ("spark-a", "local", "spark-b", "op@spark-b")
    assert head.argv[-2:] == ("--node-rank", "0")
    assert worker.argv[-3:] == ("--node-rank", "1", "--headless")
    assert head.packages == (("torch", "2.13.0"), ("vllm", "0.32.0"))
    assert (head.model_digest, head.model_how) == ("d1" * 32, "contents")
    assert head.memory_before == 100 * GIB
    assert head.identity[0] == "100"
    assert {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "NCCL_DEBUG"} <= set(head.variables)


def test_a_transport_that_was_not_planned_is_told_and_kept(cluster):
    said = "b:1:2 [0] NCCL INFO"
    cluster.plays(1, f"3 says {said} NET/Socket : Using [0]eno1:10.0.0.7<0>; 3 says {said} Using network Socket")
    begin(cluster)
    head, worker = receipt(cluster).ranks
    assert (head.transport, worker.transport) == (NOTHING_SAID, Transport("Socket", ("eno1",)))
    warnings = [(one.node, one.text) for one in cluster.of(Told) if one.severity is Severity.WARNING]
    assert warnings == [("spark-b", f"rank 1: NCCL's sockets are on eno1, not on {worker.interface}")]


def test_the_receipt_holds_names_of_variables_and_no_values(cluster):
    begin(cluster, launch=Launch(venv="/opt/vllm", environment=(("NCCL_BUFFSIZE", "7654321"),)))
    text = cluster["spark-a"].files[f"{ROOT}/receipt.json"]
    assert b"NCCL_BUFFSIZE" in text
    assert b"7654321" not in text


def test_the_boots_own_receipt_lies_beside_its_logs(cluster):
    served = begin(cluster)
    copy = cluster["spark-a"].files[f"{ROOT}/boots/{served.boot}/receipt.json"]
    assert copy == cluster["spark-a"].files[f"{ROOT}/receipt.json"]


def test_files_are_for_their_owner_alone(cluster):
    begin(cluster)
    assert {mode for host in cluster.hosts.values() for path, mode in host.modes.items() if path.endswith("json")} == {
        0o600
    }


def test_a_forced_check_becomes_a_warning_and_is_kept_in_the_receipt(cluster):
    cluster["spark-b"].says["server"] = False
    begin(cluster, "SERVER.PRESENT")
    assert receipt(cluster).forced == ("SERVER.PRESENT",)
    severities = {
        one.severity for one in cluster.of(Finding) if isinstance(one, Finding) and one.id == "SERVER.PRESENT"
    }
    assert severities == {Severity.OK, Severity.WARNING}


def test_four_ranks_on_four_nodes_start_from_the_last_to_the_head():
    nodes = tuple(NodeSettings(name=f"n{n}", control=f"n{n}", address=f"10.40.0.{n + 1}") for n in range(4))
    serve = replace(pair().serve, tensor_parallel=2, pipeline_parallel=2)
    cluster = FakeCluster(pair(nodes=nodes, serve=serve))
    begin(cluster)
    assert cluster.acts == [f"launch rank {n} on n{n}" for n in (3, 2, 1, 0)]
    assert len(cluster.living()) == 4
    assert begin(cluster).already


def test_a_forced_check_that_there_is_not_is_told(cluster):
    begin(cluster, "PORT", "RANKS.ARGV")
    assert told(cluster, Severity.WARNING) == ["--force PORT: no check of that name was made"]


# ---- again


def test_second_start_has_nothing_to_do(cluster):
    first = begin(cluster)
    acts = list(cluster.acts)
    second = begin(cluster)
    assert (second.already, second.boot, second.url) == (True, first.boot, first.url)
    assert cluster.acts == acts


def test_start_while_it_loads_waits_for_the_boot_that_is_under_way(cluster):
    cluster.interrupted(at=3)
    failing(cluster, Interrupted)
    launched = list(cluster.acts)
    served = begin(cluster)
    assert (served.boot, served.already) == (receipt(cluster).boot, False)
    assert cluster.acts == launched
    assert told(cluster, Severity.NOTE)[0] == f"boot {served.boot} is loading already; waiting for it"


def test_a_boot_that_fails_while_one_waits_for_it_again_is_removed_too(cluster):
    cluster.plays(1, "5 exits 1")
    cluster.plays(0, "5 freezes")
    cluster.interrupted(at=3)
    failing(cluster, Interrupted)
    assert failing(cluster, RankDied).where == "rank 1 on spark-b"
    assert cluster.living() == []


def test_a_start_with_another_port_is_other_settings_and_no_server_that_went(cluster):
    begin(cluster)
    with pytest.raises(Refused, match="with other settings than asked for now"):
        begin(cluster, serve=replace(cluster.settings.serve, port=9999))


def test_start_with_other_settings_is_refused_and_says_which(cluster):
    begin(cluster)
    serve = replace(cluster.settings.serve, max_model_len=2048)
    with pytest.raises(Refused) as caught:
        begin(cluster, serve=serve)
    assert caught.value.what == "it runs already, with other settings than asked for now"
    assert caught.value.evidence == ("--max-model-len: 2048 asked for, not given to what runs",)
    assert caught.value.fix == "sparkctl restart, to apply them"
    assert len(cluster.living()) == 2


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        ({"port": 9999}, "--port: 9999 asked for, 8888 given to what runs"),
        ({"model": "/models/big"}, "command: /opt/vllm/bin/vllm serve /models/big asked for, "),
        ({"enforce_eager": True}, "--enforce-eager: on asked for, not given to what runs"),
    ],
)
def test_a_changed_setting_is_named_with_both_values(cluster, changes, evidence):
    begin(cluster)
    with pytest.raises(Refused) as caught:
        begin(cluster, serve=replace(cluster.settings.serve, **changes))
    assert [line for line in caught.value.evidence if line.startswith(evidence)]
    assert len(caught.value.evidence) == 1


def test_start_with_another_environment_is_refused_too(cluster):
    begin(cluster)
    with pytest.raises(Refused) as caught:
        begin(cluster, launch=Launch(venv="/opt/vllm", environment=(("NCCL_PROTO", "^LL128"),)))
    assert caught.value.evidence == ("environment variables",)


def test_to_wait_longer_is_no_other_setting(cluster):
    begin(cluster)
    assert begin(cluster, watch=Watch(ready_timeout=Seconds(999), hang_seconds=Seconds(5))).already


def test_ranks_without_a_receipt_are_not_taken_for_ours(cluster):
    begin(cluster)
    del cluster["spark-a"].files[f"{ROOT}/receipt.json"]
    error = failing(cluster, Refused)
    assert error.what == "ranks of this deployment run, but the head has no receipt of their start"
    assert error.fix == "sparkctl stop, then sparkctl start"


def test_a_damaged_receipt_is_as_good_as_none(cluster):
    begin(cluster)
    cluster["spark-a"].files[f"{ROOT}/receipt.json"] = b"{half"
    assert "receipt" in failing(cluster, Refused).what


def test_a_degraded_deployment_is_not_mended_by_a_start(cluster):
    begin(cluster)
    cluster["spark-b"].ranks[0].acts.append((0.0, "killed", "9"))
    error = failing(cluster, Refused)
    assert (error.what, error.fix) == ("this deployment is degraded; a start would not mend it", "sparkctl restart")


# ---- refused


def changed_files(cluster: FakeCluster) -> list[str]:
    return [path for host in cluster.hosts.values() for path in host.files]


def test_a_refusal_changes_nothing(cluster):
    cluster["spark-a"].listening = "*:8888 nginx"
    error = failing(cluster, Refused)
    assert error.what == "1 check failed; nothing was changed"
    assert error.evidence == ("spark-a: API port 8888 is taken by nginx (pid 77) on all addresses",)
    assert error.fix == "end that program, or set PORT to another port"
    assert (cluster.acts, changed_files(cluster)) == ([], [])
    assert stages(cluster)[-1] == ("check", False)


def test_all_refusals_are_told_not_the_first(cluster):
    cluster["spark-a"].listening = "*:8888 nginx, 10.40.0.1:29521 old"
    cluster["spark-b"].says["server"] = False
    error = failing(cluster, Refused)
    assert len(error.evidence) == 3
    assert [one.id for one in cluster.of(Finding) if isinstance(one, Finding) and one.severity == "refusal"] == [
        "PORT.FREE",
        "PORT.FREE",
        "SERVER.PRESENT",
    ]


@pytest.mark.parametrize(
    ("says", "observed"),
    [
        ({"packages": {"torch": "2.13.0", "vllm": "0.33.0"}}, "vllm 0.32.0 on spark-a, 0.33.0 on spark-b"),
        (
            {
                "model": {
                    "present": True,
                    "files": 4,
                    "bytes": 1,
                    "digest": "e5" * 32,
                    "how": "contents",
                    "unreadable": [],
                    "outside": [],
                }
            },
            "spark-a 4 files d1d1d1d1d1d1, spark-b 4 files e5e5e5e5e5e5",
        ),
    ],
)
def test_ranks_that_would_run_different_things_are_refused(cluster, says, observed):
    cluster["spark-b"].says.update(says)
    assert failing(cluster, Refused).evidence == (f"all nodes: {observed}",)
    assert cluster.acts == []


class Mangled(dict[str, bytes]):
    """A disk that keeps other bytes than were written."""

    def __setitem__(self, path: str, data: bytes) -> None:
        super().__setitem__(path, data.replace(b'"serve"', b'"curve"'))


def test_a_command_line_that_reads_back_differently_is_refused_before_the_launch(cluster):
    cluster["spark-b"].files = Mangled()
    error = failing(cluster, Refused)
    assert error.evidence[0].startswith("all nodes: spark-a ")
    assert cluster.acts == []
    assert stages(cluster)[-1] == ("prepare", False)


def test_an_unreachable_node_fails_the_connect_stage(cluster):
    cluster["spark-b"].go()
    error = failing(cluster, Unreachable)
    assert (error.where, error.exit) == ("spark-b", Exit.UNREACHABLE)
    assert stages(cluster) == [("connect", None), ("connect", False)]


def test_both_nodes_failures_are_reported(cluster):
    cluster["spark-a"].go()
    cluster["spark-b"].go()
    with pytest.raises(BaseExceptionGroup) as caught:
        begin(cluster)
    assert [str(one) for one in caught.value.exceptions] == ["spark-a: no route to host", "spark-b: no route to host"]
    assert isinstance(cluster.events[-1], StageEnded)
    assert cluster.events[-1].detail == "no route to host; no route to host"


def test_a_failing_question_is_reported_for_both_nodes(cluster):
    for host in cluster.hosts.values():
        host.fails["identity"] = Result(1, b"", b"PermissionError: /opt/vllm")
    with pytest.raises(BaseExceptionGroup) as caught:
        begin(cluster)
    assert [one.where for one in caught.value.exceptions if isinstance(one, StepFailed)] == ["spark-a", "spark-b"]
    assert cluster.acts == []


# ---- the lock


def test_another_sparkctl_at_work_is_named(cluster):
    cluster["spark-a"].holder = {
        "command": "sparkctl start",
        "user": "ann",
        "host": "laptop",
        "pid": 41,
        "since": "2026-11-30T17:00:00Z",
    }
    error = failing(cluster, Locked)
    assert (error.exit, error.where) == (Exit.LOCKED, "spark-a")
    assert error.what == (
        "another sparkctl is at work: `sparkctl start` by ann on laptop (pid 41), since 2026-11-30T17:00:00Z"
    )
    assert changed_files(cluster) == []


def test_a_stale_lock_is_taken_over_and_told(cluster):
    cluster["spark-a"].stale = {"command": "sparkctl stop", "user": "bob", "host": "desk", "pid": 7, "since": "then"}
    begin(cluster)
    assert told(cluster, Severity.NOTE)[0] == (
        "took over a stale lock: `sparkctl stop` by bob on desk (pid 7), since then ended without releasing it"
    )


# ---- launch


def test_a_head_that_does_not_launch_takes_the_worker_with_it(cluster):
    cluster["spark-a"].fails["launch"] = NO_DISK
    error = failing(cluster, StepFailed)
    assert (error.what, error.where) == ("start rank 0 failed with exit code 1", "spark-a")
    assert error.evidence == ("OSError: no space left on device",)
    assert cluster.acts == ["launch rank 1 on spark-b", "stop rank 1 on spark-b"]
    assert cluster.living() == []


def test_a_launch_that_was_cut_off_is_undone_too(cluster):
    """It may have happened: the undo is known before the act."""
    cluster["spark-a"].fails["launch"] = Unreachable("the connection was lost", where="spark-a")
    failing(cluster, Unreachable)
    asked = [command.argv[3:] for command in cluster["spark-a"].commands if len(command.argv) == 5]
    assert [verb for verb, _ in asked][-1] == "stop"
    assert json.loads(asked[-1][1])["dirs"][0].endswith("/rank0")
    assert cluster.living() == []


def test_an_undo_that_cannot_reach_its_node_is_told(cluster):
    cluster["spark-a"].fails["launch"] = lambda: _fail_and_lose(cluster)
    failing(cluster, StepFailed)
    assert told(cluster, Severity.WARNING) == ["could not undo “start rank 1”: the connection was lost"]
    assert cluster.living() == ["rank 1 on spark-b"]


def _fail_and_lose(cluster: FakeCluster) -> None:
    cluster["spark-b"].go()
    raise StepFailed("start rank 0 failed", where="spark-a")


def test_a_full_disk_on_the_head_is_told_and_leaves_nothing(cluster):
    cluster["spark-a"].fill_disk()
    error = failing(cluster, StepFailed)
    assert (error.where, error.fix) == ("spark-a", "make room on spark-a: `df -h`, `df -i`")
    assert (cluster.acts, cluster.living()) == ([], [])


def test_a_disk_that_fills_up_while_it_loads_does_not_end_what_serves(cluster):
    cluster.clock.at(5, cluster["spark-a"].fill_disk)
    assert begin(cluster).already is False
    assert told(cluster, Severity.WARNING)[0].startswith("the receipt does not say that it serves: cannot write ")
    assert len(cluster.living()) == 2


# ---- while it loads


def test_a_rank_that_died_is_the_first_cause_and_all_are_removed(cluster):
    cluster.plays(1, "3 says RuntimeError: CUDA out of memory; 3 exits 1")
    cluster.plays(0, "3 freezes")
    error = failing(cluster, RankDied)
    assert (error.exit, error.where) == (Exit.RANK_DIED, "rank 1 on spark-b")
    assert error.what.startswith("rank 1 (spark-b) failed first: ")
    assert cluster.living() == []
    assert cluster.acts[-1] == "stop rank 0 on spark-a"
    assert not any(act.startswith("read stacks") for act in cluster.acts)


def test_evidence_of_a_death_is_kept(cluster, tmp_path):
    cluster.plays(1, "3 says RuntimeError: CUDA out of memory; 3 exits 1")
    cluster.plays(0, "3 freezes")
    error = failing(cluster, RankDied)
    (folder,) = (tmp_path / "logs").iterdir()
    assert error.fix == f"evidence is in logs/{folder.name}/"
    assert sorted(path.name for path in folder.iterdir()) == [
        "rank0-spark-a.log",
        "rank1-spark-b.log",
        "spark-a-processes.txt",
        "spark-b-processes.txt",
        "why.txt",
    ]
    assert "CUDA out of memory" in (folder / "rank1-spark-b.log").read_text()
    assert error.what in (folder / "why.txt").read_text()
    assert "rank 1: exited" in (folder / "spark-b-processes.txt").read_text()


def test_an_exit_with_code_zero_is_a_failure_too(cluster):
    cluster.plays(0, "3 exits 0")
    assert failing(cluster, RankDied).where == "rank 0 on spark-a"


def test_a_killed_worker_is_named_within_fifteen_seconds(cluster):
    cluster.plays(1, "4 killed 9")
    cluster.plays(0, "4 freezes")
    error = failing(cluster, RankDied)
    assert error.where == "rank 1 on spark-b"
    assert cluster.clock() < 4 + 15


def test_a_hang_asks_every_rank_for_its_stacks(cluster, tmp_path):
    cluster.plays(0, "4 freezes")
    cluster.plays(1, "4 freezes")
    error = failing(cluster, Hung)
    assert error.exit == Exit.HUNG
    asked = [act for act in cluster.acts if act.startswith("read stacks")]
    assert sorted(asked) == ["read stacks on spark-a", "read stacks on spark-b"]
    (folder,) = (tmp_path / "logs").iterdir()
    assert "all_reduce" in (folder / "rank1-spark-b-stacks.txt").read_text()
    assert cluster.living() == []


def test_stacks_are_read_before_the_ranks_are_removed(cluster):
    cluster.plays(0, "4 freezes")
    cluster.plays(1, "4 freezes")
    failing(cluster, Hung)
    assert cluster.acts.index("read stacks on spark-b") < cluster.acts.index("stop rank 1 on spark-b")


def test_a_stopped_process_is_the_evidence_of_its_hang(cluster):
    cluster.plays(0, "4 freezes")
    cluster.plays(1, "4 stopped")
    assert "rank 1 on spark-b: VLLM::EngineCore (pid 101) is stopped (state T)" in failing(cluster, Hung).evidence


def test_a_boot_that_only_crawls_runs_out_of_time(cluster):
    crawl = "; ".join(f"{at} says Loading safetensors: {at}% Completed | {at}/100" for at in range(3, 90, 2))
    for rank in (0, 1):
        cluster.plays(rank, f"{crawl}; 90 freezes")
    cluster.course = "0 says non-default args: {{}}"
    error = failing(cluster, OutOfTime)
    assert error.exit == Exit.OUT_OF_TIME
    assert error.fix.endswith("; READY_TIMEOUT sets the limit")
    assert cluster.living() == []


def test_no_folder_for_evidence_does_not_hide_the_failure(cluster, tmp_path):
    (tmp_path / "logs").write_text("a file is in the way")
    cluster.plays(0, "3 exits 7")
    error = failing(cluster, RankDied)
    assert (error.where, error.fix) == ("rank 0 on spark-a", "")
    assert told(cluster, Severity.WARNING)[0].startswith("evidence is incomplete: ")


def test_nodes_that_cannot_give_evidence_do_not_hide_the_failure(cluster):
    cluster.plays(0, "3 exits 7")
    cluster.clock.at(3, lambda: [host.fails.update(look=NO_DISK) for host in cluster.hosts.values()] and None)
    assert failing(cluster, RankDied).where == "rank 0 on spark-a"
    failed = [f"{name}: a question to the node failed with exit code 1" for name in cluster.hosts]
    assert told(cluster, Severity.WARNING) == [f"evidence is incomplete: {'; '.join(failed)}"]


def test_a_node_out_of_sight_leaves_its_ranks_alone(cluster):
    """An ssh failure is "unknown" and not "dead"."""
    cluster.course = "0 says non-default args: {{}}; 900 serves"
    cluster.loses("spark-b", at=3)
    with pytest.raises(Unreachable) as caught:
        begin(cluster, watch=Watch(ready_timeout=Seconds(300)))
    assert caught.value.exit == Exit.UNREACHABLE
    assert cluster.living() == ["rank 0 on spark-a", "rank 1 on spark-b"]
    assert caught.value.fix == (
        "the ranks were left running; once the node answers: sparkctl status, then stop or start"
    )


def test_what_cannot_be_removed_from_a_node_out_of_sight_is_told(cluster):
    cluster.plays(0, "5 exits 1")
    cluster.loses("spark-b", at=3)
    failing(cluster, RankDied)
    assert told(cluster, Severity.WARNING) == ["could not undo “start rank 1”: the connection was lost"]
    assert cluster.living() == ["rank 1 on spark-b"]


def test_a_node_that_comes_back_in_time_costs_nothing(cluster):
    cluster.course = cluster.course.replace("6 serves", "15 serves")
    cluster.loses("spark-b", at=3)
    cluster.clock.at(10, cluster["spark-b"].come_back)
    assert begin(cluster).already is False
    notes = [text for text in told(cluster, Severity.NOTE) if "does not answer" in text]
    assert notes == ["spark-b does not answer (the connection was lost); rank 1 counts as unknown, not as dead"]


def test_health_alone_is_not_serving(cluster):
    """The API is up beside a hung rank: 200, and no token ever."""
    cluster.plays(1, "5 freezes")
    error = failing(cluster, SparkctlError)
    assert error.exit in (Exit.HUNG, Exit.OUT_OF_TIME)


def test_a_server_that_refuses_every_completion_is_dead(cluster):
    cluster["spark-a"].completion = 500
    error = failing(cluster, RankDied)
    assert (error.where, error.what) == (
        "rank 0 on spark-a",
        "rank 0 (spark-a) failed first: it answers a completion with status 500",
    )


# ---- Ctrl-C


@pytest.mark.parametrize("moment", ["ask", "identity"])
def test_ctrl_c_before_the_launch_leaves_no_process(cluster, moment):
    cluster["spark-b"].fails[moment] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        begin(cluster)
    assert (cluster.acts, cluster.living()) == ([], [])
    assert isinstance(cluster.events[-1], StageEnded)
    assert cluster.events[-1].detail == "interrupted"


def test_ctrl_c_during_the_launch_is_undone(cluster):
    cluster["spark-a"].fails["launch"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        begin(cluster)
    assert cluster.acts == ["launch rank 1 on spark-b", "stop rank 1 on spark-b"]
    assert cluster.living() == []


def test_ctrl_c_while_waiting_leaves_the_ranks_and_says_how_to_go_on(cluster):
    cluster.interrupted(at=4)
    error = failing(cluster, Interrupted)
    assert (error.what, error.exit) == ("stopped waiting; the ranks go on loading", 130)
    assert error.fix == "sparkctl start waits for them again, sparkctl stop ends them"
    assert cluster.living() == ["rank 0 on spark-a", "rank 1 on spark-b"]


@pytest.mark.parametrize("moment", ["identity", "launch"])
def test_a_start_after_ctrl_c_begins_anew(cluster, moment):
    cluster["spark-a"].fails[moment] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        begin(cluster)
    del cluster["spark-a"].fails[moment]
    assert begin(cluster).already is False


def test_no_use_case_reports_its_own_failure(cluster):
    """It raises; the command line tells it once."""
    cluster.plays(0, "3 exits 1")
    failing(cluster, RankDied)
    assert cluster.of(Failed, Served) == []
