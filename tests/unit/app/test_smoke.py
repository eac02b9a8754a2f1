"""`smoke`: what counts as the right answer."""

from dataclasses import replace

import pytest

from cluster.app.smoke import smoke
from cluster.errors import StepFailed, Unreachable
from cluster.model.events import SmokeCheck, SmokeReport
from cluster.model.settings import Serve
from cluster.node.base import Result
from tests.fakes.cluster import FakeCluster


def answered(cluster: FakeCluster, **reply) -> SmokeReport:
    cluster["spark-a"].reply = reply
    return smoke(cluster.settings, cluster.open)


def test_the_right_answer_is_told_with_its_times(cluster):
    assert answered(cluster) == SmokeReport(
        "demo",
        "http://10.40.0.1:8888",
        "demo",
        True,
        (SmokeCheck("17*19", True, 0.25, "answered “323” (2 tokens, first token after 0.10 s)"),),
    )


@pytest.mark.parametrize("text", ["323", " 323\n", "The answer is 323.", "17*19=323"])
def test_the_number_may_stand_in_a_sentence(cluster, text):
    assert answered(cluster, text=text).ok


@pytest.mark.parametrize("text", ["", "322", "1323", "3230", "32 3"])
def test_another_number_is_wrong(cluster, text):
    assert not answered(cluster, text=text).ok


def test_an_error_of_the_server_is_shown(cluster):
    report = answered(cluster, status=500, text="", error="EngineDeadError", usage=None, first_token=None)
    assert (report.ok, report.checks[0].detail) == (False, "HTTP 500: EngineDeadError")


def test_a_server_that_is_not_there_is_told(cluster):
    report = answered(cluster, status=None, text="", error="Connection refused", usage=None, first_token=None)
    assert (report.ok, report.checks[0].detail) == (False, "Connection refused")


def test_a_long_answer_is_cut(cluster):
    detail = answered(cluster, text="no " * 100).checks[0].detail
    assert len(detail) < 140


def test_only_the_head_is_needed_to_ask(cluster):
    cluster["spark-b"].go()
    assert answered(cluster).ok


def test_without_the_head_it_cannot_ask(cluster):
    cluster["spark-a"].go()
    with pytest.raises(Unreachable):
        answered(cluster)


def test_a_program_that_fails_on_the_head_is_an_error(cluster):
    cluster["spark-a"].fails["chat"] = Result(1, b"", b"PermissionError: /etc/key")
    with pytest.raises(StepFailed) as caught:
        answered(cluster)
    assert caught.value.evidence == ("PermissionError: /etc/key",)


def test_the_key_stays_in_its_file(cluster):
    serve = replace(Serve(), model="/m", served_model_name="demo", api_key_file="~/key")
    smoke(replace(cluster.settings, serve=serve), cluster.open)
    assert '"key_file":"~/key"' in cluster["spark-a"].commands[-1].argv[-1]
