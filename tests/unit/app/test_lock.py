"""The lock of a head: what is said of its holder, and what is not taken for an answer."""

import json

import pytest

from cluster.app.lock import describe, held
from cluster.errors import Locked, StepFailed, Unreachable
from cluster.model.events import Severity, Told
from cluster.node.base import Result
from tests.build import pair
from tests.fakes.cluster import FakeCluster

ANN = {"command": "sparkctl start", "user": "ann", "host": "laptop", "pid": 41, "since": "2026-11-30T17:00:00Z"}


def take(cluster: FakeCluster) -> str:
    head = cluster.open(cluster.settings.head)
    with held(head, cluster.settings, "stop", cluster.emit):
        return "held"


def refused(cluster: FakeCluster, kind: type[Exception]) -> Exception:
    with pytest.raises(kind) as caught:
        take(cluster)
    return caught.value


def test_who_asks_is_written_into_it_without_the_options_given(cluster):
    take(cluster)
    (command,) = cluster["spark-a"].commands
    request = json.loads(command.argv[-1])
    assert request["path"] == "~/.local/state/sparkctl/lock"
    assert request["holder"]["command"] == "sparkctl stop"
    assert set(request["holder"]) == {"command", "deployment", "user", "host", "pid", "since"}


def test_only_the_head_is_asked(cluster):
    take(cluster)
    assert cluster["spark-b"].commands == []


def test_the_holder_is_named(cluster):
    cluster["spark-a"].holder = ANN
    error = refused(cluster, Locked)
    assert isinstance(error, Locked)
    assert error.what == f"another sparkctl is at work: {describe(ANN)}"
    assert error.fix == "wait for it to end, or end it there; the lock goes with it"


def test_a_holder_is_described_as_far_as_it_is_known():
    assert describe(ANN) == "`sparkctl start` by ann on laptop (pid 41), since 2026-11-30T17:00:00Z"
    assert describe({"command": "unreadable lock text"}) == "`unreadable lock text` by ? on ? (pid ?), since ?"


def test_a_stale_text_is_told_and_not_in_the_way(cluster):
    cluster["spark-a"].stale = ANN
    assert take(cluster) == "held"
    assert cluster.events == [
        Told(
            Severity.NOTE,
            f"took over a stale lock: {describe(ANN)} ended without releasing it",
            "spark-a",
        )
    ]


def test_a_head_that_is_lost_meanwhile_is_unreachable(cluster):
    cluster["spark-a"].fails["lock"] = Unreachable("the connection was lost", where="spark-a")
    refused(cluster, Unreachable)


@pytest.mark.parametrize("said", [b"", b"Welcome to spark-a\n", b'{"something": "else"}\n'])
def test_what_is_no_answer_is_no_lock(cluster, said):
    cluster["spark-a"].fails["lock"] = Result(0, said, b"")
    error = refused(cluster, StepFailed)
    assert isinstance(error, StepFailed)
    assert (error.what, error.where) == (
        "the head did not answer for the lock",
        "spark-a:~/.local/state/sparkctl/lock",
    )


def test_a_program_that_fails_is_quoted(cluster):
    cluster["spark-a"].fails["lock"] = Result(1, b"", b"Traceback\nPermissionError: lock")
    error = refused(cluster, StepFailed)
    assert isinstance(error, StepFailed)
    assert error.evidence == ("Traceback", "PermissionError: lock")


def test_an_error_inside_releases_it(cluster):
    head = cluster.open(cluster.settings.head)
    with pytest.raises(KeyError), held(head, cluster.settings, "stop", cluster.emit):
        raise KeyError("inside")
    assert take(cluster) == "held"


def test_two_deployments_of_one_head_share_its_lock():
    """They would launch into each other's memory."""
    first, second = FakeCluster(pair()), FakeCluster(pair(deployment="other"))
    paths = []
    for one in (first, second):
        take(one)
        paths.append(json.loads(one["spark-a"].commands[0].argv[-1])["path"])
    assert paths[0] == paths[1]
