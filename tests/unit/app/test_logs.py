"""`logs`: order, filters, exit codes."""

import json

import pytest

from cluster.app.logs import Wanted, logs
from cluster.errors import Exit, SettingsError, StepFailed, Unreachable
from cluster.model.events import LogLine, Severity, Told
from cluster.node.base import Result
from tests.fakes.cluster import FakeCluster

BOOT = "20261130T170000Z-0001"


@pytest.fixture
def cluster() -> FakeCluster:
    """Two ranks that have written a few lines, one after the other."""
    cluster = FakeCluster(course="0 says zero; 2 says two; 4 says four")
    cluster.plays(1, "1 says one; 3 says three")
    for number, host in enumerate(cluster.hosts.values()):
        host.launch(BOOT, number)
    cluster.clock.sleep(10)
    return cluster


def read(cluster: FakeCluster, **wanted) -> tuple[Exit, list[str]]:
    cluster.events.clear()
    code = logs(cluster.settings, cluster.open, cluster.emit, Wanted(**wanted))
    return code, [f"{one.rank} {one.text}" for one in cluster.events if isinstance(one, LogLine)]


def test_lines_of_all_ranks_are_interleaved_by_time(cluster):
    assert read(cluster) == (
        Exit.DONE,
        ["0 zero", "1 zero", "1 one", "0 two", "1 two", "1 three", "0 four", "1 four"],
    )


def test_a_line_carries_its_rank_node_and_time(cluster):
    read(cluster, lines=1, ranks=(1,))
    assert cluster.events == [LogLine(1, "spark-b", "2026-11-30T17:00:04.000Z", "four")]


def test_only_the_ranks_asked_for_are_read(cluster):
    assert read(cluster, ranks=(0,))[1] == ["0 zero", "0 two", "0 four"]
    assert not any(command.argv[3] == "tail" for command in cluster["spark-b"].commands if command.argv[1] == "-IS")


def test_a_rank_that_there_is_not_is_refused_before_anything_is_asked(cluster):
    with pytest.raises(SettingsError) as caught:
        read(cluster, ranks=(0, 2))
    assert (caught.value.what, caught.value.fix) == ("there is no rank 2", "ranks are 0 and 1")
    assert cluster["spark-a"].commands == []


def test_the_last_lines_of_each_rank(cluster):
    assert read(cluster, lines=1)[1] == ["0 four", "1 four"]


def test_since_reads_all_lines_from_then_on(cluster):
    assert read(cluster, since="2026-11-30T17:00:03.000Z", lines=1)[1] == ["1 three", "0 four", "1 four"]


def test_grep_keeps_what_matches(cluster):
    assert read(cluster, grep="^t(wo|hree)$")[1] == ["0 two", "1 two", "1 three"]


def test_a_pattern_that_is_none_is_refused_before_anything_is_asked(cluster):
    with pytest.raises(SettingsError) as caught:
        read(cluster, grep="(")
    assert caught.value.what.startswith("--grep (: ")
    assert cluster["spark-a"].commands == []


def test_a_line_without_a_time_stays_with_the_one_before_it(cluster):
    text = "2026-11-30T17:00:01.500Z Traceback\n  File serve.py\nKeyError: 'x'\n2026-11-30T17:00:05.000Z end\n"
    cluster["spark-b"].fails["tail"] = Result(0, text.encode(), b"")
    assert read(cluster) == (
        Exit.DONE,
        ["0 zero", "1 Traceback", "1   File serve.py", "1 KeyError: 'x'", "0 two", "0 four", "1 end"],
    )


def test_an_empty_line_is_only_a_sign_of_life(cluster):
    cluster["spark-b"].fails["tail"] = Result(0, b"\n\n2026-11-30T17:00:05.000Z end\n", b"")
    assert read(cluster, ranks=(1,))[1] == ["1 end"]


def test_where_nothing_was_started_there_is_nothing_to_read():
    nothing = FakeCluster()
    assert read(nothing) == (Exit.ABSENT, [])
    assert nothing.events == [Told(Severity.NOTE, "there is no log: no rank of demo was found")]


def test_a_node_out_of_reach_is_told_and_the_other_is_read(cluster):
    cluster["spark-b"].go()
    assert read(cluster) == (Exit.UNREACHABLE, ["0 zero", "0 two", "0 four"])
    assert cluster.events[0] == Told(Severity.WARNING, "its log is not shown: no route to host", "spark-b")


def test_a_log_that_cannot_be_read_is_an_error_with_its_place(cluster):
    cluster["spark-b"].fails["tail"] = Result(1, b"", b"PermissionError: log")
    with pytest.raises(StepFailed) as caught:
        read(cluster)
    assert caught.value.where.startswith("spark-b:~/.local/state/sparkctl/deployments/demo/boots/")
    assert caught.value.evidence == ("PermissionError: log",)


def test_the_newest_boot_is_read(cluster):
    for number, host in enumerate(cluster.hosts.values()):
        host.end()
        host.launch("20261130T180000Z-0002", number)
    cluster.clock.sleep(1)
    assert read(cluster)[1] == ["0 zero", "1 zero", "1 one"]


def test_logs_touch_no_rank(cluster):
    read(cluster)
    read(cluster, follow=True)
    assert cluster.acts == []


def test_follow_goes_on_until_every_stream_ended(cluster):
    code, lines = read(cluster, follow=True, lines=1)
    assert (code, sorted(lines)) == (Exit.DONE, ["0 four", "1 four"])
    request = json.loads(next(one for one in cluster["spark-a"].commands if one.argv[3] == "tail").argv[-1])
    assert request["follow"] is True


def test_a_stream_that_breaks_while_following_is_told_and_the_other_goes_on(cluster):
    cluster["spark-b"].fails["tail"] = Unreachable("the connection was lost", where="spark-b")
    _, lines = read(cluster, follow=True)
    assert lines == ["0 zero", "0 two", "0 four"]
    assert Told(Severity.WARNING, "its log ended: the connection was lost", "spark-b") in cluster.events
