"""What the watch makes of lines and silence; the threads around it, with nodes that answer at once."""

import json
import time

import pytest

from cluster.app.session import Session
from cluster.app.watch import Sightings, Watch
from cluster.errors import ToolMissing, Unreachable
from cluster.node.base import Result
from cluster.plan.boot import Answered, HttpError, Silence, Unknown
from tests.build import pair
from tests.fakes.cluster import AT_ONCE, FakeCluster

BOOT = "20261130T170000Z-0001"


@pytest.fixture
def cluster() -> FakeCluster:
    """Two ranks of one boot that serve from the first second on."""
    cluster = FakeCluster(course=AT_ONCE)
    for number, host in enumerate(cluster.hosts.values()):
        host.launch(BOOT, number)
    return cluster


def line(cluster: FakeCluster, name: str, sightings: Sightings) -> str:
    node = next(one for one in cluster.settings.nodes if one.name == name)
    return cluster[name].answer(sightings.question(node, completion_every=None, every=1.0)).text


def test_an_observation_has_every_rank_and_the_head(cluster):
    sightings = Sightings(cluster.settings, BOOT, 0.0)
    for name in cluster.hosts:
        sightings.take(name, line(cluster, name, sightings), 1.0)
    seen = sightings.observation(1.0)
    assert [(one.rank, [each.text for each in one.lines]) for one in seen.ranks] == [
        (0, ["non-default args: {}", "Starting vLLM server on http://"]),
        (1, ["non-default args: {}"]),
    ]
    assert (seen.head.health, seen.head.completion) == (200, Answered())


def test_a_look_is_told_once(cluster):
    sightings = Sightings(cluster.settings, BOOT, 0.0)
    sightings.take("spark-b", line(cluster, "spark-b", sightings), 1.0)
    sightings.observation(1.0)
    assert sightings.observation(1.5).ranks == ()


def test_a_new_question_reads_on_from_the_last_line(cluster):
    sightings = Sightings(cluster.settings, BOOT, 0.0)
    sightings.take("spark-b", line(cluster, "spark-b", sightings), 1.0)
    request = json.loads(sightings.question(cluster.settings.nodes[1], completion_every=None, every=1.0).argv[-1])
    assert request["places"] == {"1": [1, 1]}


def test_only_the_heads_node_is_asked_about_the_api(cluster):
    sightings = Sightings(cluster.settings, BOOT, 0.0)
    head, worker = (
        json.loads(sightings.question(node, completion_every=None, every=1.0).argv[-1])
        for node in cluster.settings.nodes
    )
    assert (head["http"]["port"], head["completion"]) == (8888, {"limit": 60.0, "every": None})
    assert (worker["http"], worker["completion"]) == (None, None)


def test_a_silent_node_is_unknown_after_a_while():
    sightings = Sightings(pair(), BOOT, 0.0)
    assert sightings.observation(4.0).ranks == ()
    assert [one.process for one in sightings.observation(6.0).ranks] == [Unknown("no answer for 6 s")] * 2


def test_a_node_in_trouble_is_unknown_at_once_and_until_it_speaks(cluster):
    sightings = Sightings(cluster.settings, BOOT, 0.0)
    sightings.trouble("spark-b", "the connection was lost")
    assert [one.process for one in sightings.observation(1.0).ranks] == [Unknown("the connection was lost")]
    sightings.take("spark-b", line(cluster, "spark-b", sightings), 2.0)
    assert [one.rank for one in sightings.observation(2.0).ranks] == [1]
    assert sightings.observation(3.0).ranks == ()


def test_an_answer_that_cannot_be_read_is_trouble_and_no_death():
    sightings = Sightings(pair(), BOOT, 0.0)
    sightings.take("spark-b", "Last login: yesterday", 1.0)
    (seen,) = sightings.observation(1.0).ranks
    assert seen.process == Unknown("cannot read what the node tells of its ranks")


def test_a_failed_completion_counts_once_however_often_it_is_repeated(cluster):
    cluster["spark-a"].completion = 500
    sightings = Sightings(cluster.settings, BOOT, 0.0)
    same = line(cluster, "spark-a", sightings)
    seen = []
    for now in (1.0, 1.5):
        sightings.take("spark-a", same, now)
        seen.append(sightings.observation(now).head.completion)
    cluster.clock.sleep(2)
    sightings.take("spark-a", line(cluster, "spark-a", sightings), 2.0)
    seen.append(sightings.observation(2.0).head.completion)
    assert seen == [HttpError(500, "it did not work"), None, HttpError(500, "it did not work")]


def test_ranks_of_another_boot_are_not_looked_at(cluster):
    sightings = Sightings(cluster.settings, "20261130T170000Z-0002", 0.0)
    sightings.take("spark-b", line(cluster, "spark-b", sightings), 1.0)
    assert sightings.observation(1.0).ranks == ()


# ---- the threads


def everything(watch: Watch, ranks: int) -> dict[int, object]:
    """Observe until so many ranks have been seen."""
    seen: dict[int, object] = {}
    until = time.monotonic() + 10
    while len(seen) < ranks and time.monotonic() < until:
        seen.update({one.rank: one.process for one in watch.observe().ranks})
    return seen


def test_all_nodes_are_watched_at_once(cluster):
    with Session(cluster.settings, cluster.open) as session, Watch(session, BOOT, retry=0.01) as watch:
        assert set(everything(watch, 2)) == {0, 1}
        assert sorted(watch.looks) == ["spark-a", "spark-b"]


def test_a_lost_connection_is_made_anew(cluster):
    failures = [Unreachable("the connection was lost", where="spark-b")] * 2

    def fail_twice() -> None:
        if failures:
            raise failures.pop()

    cluster["spark-b"].fails["watch"] = fail_twice
    with Session(cluster.settings, cluster.open) as session, Watch(session, BOOT, retry=0.01) as watch:
        everything(watch, 2)
        while "spark-b" not in watch.looks:
            watch.observe()
    assert failures == []


def test_a_node_that_can_never_answer_ends_the_watch(cluster):
    cluster["spark-b"].fails["watch"] = ToolMissing("python3 is not in any folder we look in", where="spark-b")
    with (
        Session(cluster.settings, cluster.open) as session,
        Watch(session, BOOT, retry=0.01) as watch,
        pytest.raises(ToolMissing),
    ):
        everything(watch, 3)


def test_a_watching_program_that_ends_is_trouble(cluster):
    cluster["spark-b"].fails["watch"] = Result(1, b"", b"Traceback\nMemoryError")
    with Session(cluster.settings, cluster.open) as session, Watch(session, BOOT, retry=0.01) as watch:
        seen = everything(watch, 2)
    assert seen[1] == Unknown("the watching program ended with exit code 1: MemoryError")


def test_before_the_first_look_nothing_is_known_of_the_head():
    assert Sightings(pair(), BOOT, 0.0).observation(0.0).head.health is Silence.NOT_ASKED
