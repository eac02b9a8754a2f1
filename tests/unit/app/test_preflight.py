"""Preflight says all that the checks say, and changes nothing."""

import pytest

from cluster.app.preflight import explain, preflight
from cluster.errors import SettingsError
from cluster.model.checks import Severity
from cluster.plan.contracts import Purpose, contracts
from tests.fakes.cluster import AT_ONCE, FakeCluster


def run(cluster: FakeCluster, **more):
    return preflight(cluster.settings, cluster.open, cluster.emit, pace=cluster.pace, **more)


def refused(report) -> list[str]:
    return [one.finding.id for one in report.results if one.finding.severity is Severity.REFUSAL]


def test_a_taken_port_is_told_and_nothing_is_changed():
    cluster = FakeCluster()
    cluster["spark-a"].listening = "*:8888 nginx"
    before = {name: dict(host.files) for name, host in cluster.hosts.items()}
    report = run(cluster)
    assert (refused(report), report.refused) == (["PORT.FREE"], 1)
    assert {name: dict(host.files) for name, host in cluster.hosts.items()} == before
    assert cluster.acts == []


def test_a_forced_refusal_is_recorded_and_does_not_count():
    cluster = FakeCluster()
    cluster["spark-a"].listening = "*:8888 nginx"
    report = run(cluster, forced=("port.free",))
    assert (report.refused, report.forced) == (0, ("PORT.FREE",))


def test_only_what_was_asked_for_is_told():
    report = run(FakeCluster(), only=("FABRIC.ADDRESS",))
    assert {one.finding.id for one in report.results} == {"FABRIC.ADDRESS"}
    assert report.whole


def test_packing_needs_no_free_port():
    cluster = FakeCluster()
    cluster["spark-a"].listening = "*:8888 nginx"
    report = run(cluster, purpose=Purpose.PACK)
    assert report.refused == 0
    assert {one.finding.id for one in report.results} == {"MODEL.PRESENT", "DISK.STATE"}


def test_our_own_ranks_do_not_refuse_their_own_ports():
    cluster = FakeCluster(course=AT_ONCE)
    cluster.start()
    cluster["spark-a"].listening = "10.40.0.1:8888 vllm"
    report = run(cluster)
    assert (report.refused, report.notes) == (
        0,
        ("it is serving: its ports and its memory are its own and were not judged",),
    )


def test_every_finding_comes_with_what_was_looked_at():
    report = run(FakeCluster())
    assert [one.finding.id for one in report.results if not one.looks_at] == []


def test_a_missing_address_is_waited_for_five_seconds():
    """NET-15: it never appears."""
    cluster = FakeCluster()
    cluster["spark-b"].addresses = "192.0.2.7@eth0"
    began = cluster.clock.now
    assert refused(run(cluster)) == ["FABRIC.ADDRESS"]
    assert cluster.clock.now - began == 5


def test_an_address_that_comes_back_is_taken():
    """NET-15: there from the third poll on."""
    cluster = FakeCluster()
    cluster["spark-b"].addresses = "192.0.2.7@eth0"
    cluster.clock.at(cluster.clock.now + 3, lambda: setattr(cluster["spark-b"], "addresses", "10.40.0.2@eth1"))
    began = cluster.clock.now
    assert refused(run(cluster)) == []
    assert cluster.clock.now - began == 3


def test_checks_are_explained_without_contacting_anybody():
    assert [one.id for one in explain(("fabric.gid",)).checks] == ["FABRIC.GID"]
    assert explain(("all",)).checks == contracts()
    with pytest.raises(SettingsError, match=r"did you mean FABRIC\.GID"):
        explain(("FABRIC.GIDD",))
