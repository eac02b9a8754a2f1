"""The guard with a deployment: started before its ranks, undone with them, heard by `status`."""

import pytest

from cluster.app.status import status
from cluster.errors import RankDied, StepFailed
from cluster.model.deployment import State
from cluster.model.kit import Guard, GuardMode
from cluster.node.base import Result
from tests.build import pair
from tests.fakes.cluster import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(pair(guard=Guard(mode=GuardMode.ACT)))


def begin(cluster: FakeCluster) -> None:
    from cluster.app.start import start

    start(cluster.settings, cluster.open, cluster.emit, pace=cluster.pace)


def seen(cluster: FakeCluster):
    return status(cluster.settings, cluster.open)


def test_guards_come_before_ranks(cluster):
    begin(cluster)
    assert cluster.acts == [
        "start guard on spark-a",
        "start guard on spark-b",
        "launch rank 1 on spark-b",
        "launch rank 0 on spark-a",
    ]


def test_a_launch_that_fails_takes_the_guards_with_it(cluster):
    cluster["spark-a"].fails["launch"] = Result(4, b'{"error": "no"}', b"")
    with pytest.raises(StepFailed):
        begin(cluster)
    assert cluster.acts[-2:] == ["stop guard on spark-b", "stop guard on spark-a"]
    assert [host.guards for host in cluster.hosts.values()] == [{}, {}]


def test_without_a_guard_nothing_is_started_for_one():
    cluster = FakeCluster()
    begin(cluster)
    assert cluster.acts == ["launch rank 1 on spark-b", "launch rank 0 on spark-a"]


def test_status_says_that_it_watches_and_the_least_that_it_saw(cluster):
    begin(cluster)
    assert [node.detail for node in seen(cluster).nodes] == [
        "the memory guard acts, 4.0 GiB was the least available"
    ] * 2


def test_status_says_when_a_guard_was_killed(cluster):
    begin(cluster)
    for guard in cluster["spark-b"].guards.values():
        guard["state"] = "killed"
    report = seen(cluster)
    assert report.state is State.SERVING
    assert report.nodes[1].detail.startswith("the memory guard was killed: nothing guards this node's memory now")


def test_status_says_whom_a_guard_blamed_when_it_stopped_the_ranks(cluster):
    begin(cluster)
    words = {"spark-a": "another node of this deployment is out of memory", "spark-b": "1.40 GiB available, our ranks"}
    for name, host in cluster.hosts.items():
        for guard in host.guards.values():
            guard.update(state="ended", did=[{"at": "x", "what": f"stopped our ranks; {words[name]}"}])
        host.end()
    report = seen(cluster)
    assert (report.state, report.reasons) == (
        State.ABSENT,
        (
            "the memory guard on spark-b stopped the ranks: 1.40 GiB available, our ranks",
            "the memory guard on spark-a stopped the ranks: another node of this deployment is out of memory",
        ),
    )


def test_a_boot_that_a_guard_ended_says_so_first(cluster):
    cluster.plays(1, "3 exits 0")

    def stop() -> None:
        for guard in cluster["spark-b"].guards.values():
            guard.update(state="ended", did=[{"at": "x", "what": "stopped our ranks; 1.40 GiB available"}])

    cluster.clock.at(3, stop)
    with pytest.raises(RankDied) as caught:
        begin(cluster)
    assert caught.value.evidence[0] == "the memory guard on spark-b stopped the ranks: 1.40 GiB available"
