"""Firewalls, big packets and addresses that blink."""

import pytest

from cluster.model.events import Finding, Severity
from cluster.model.host import Reached
from cluster.plan.reach import Door, check_reach, door, may_blink, ports_wanted
from tests.build import facts, pair


@pytest.mark.parametrize(
    ("told", "ping", "kind"),
    [
        ("open", True, Door.OPEN),
        ("timeout", True, Door.FILTERED),
        ("refused", True, Door.NO_LISTENER),
        ("errno 113", True, Door.REJECTED),
        ("errno 113", False, Door.UNREACHABLE),
        ("errno 101", None, Door.UNREACHABLE),
    ],
)
def test_what_a_connection_met(told, ping, kind):
    """NET-16"""
    assert door(told, ping) is kind


def test_the_rendezvous_is_dialled_on_the_head_only():
    settings = pair()
    assert [ports_wanted(settings, node.name) for node in settings.nodes] == [(22, 45678, 29521), (22, 45678)]


def seen(ports: str, *, ping: bool | None = True, full: bool | None = True) -> list[tuple[str, Severity, str]]:
    pairs = (one.split("=") for one in ports.split(", "))
    reached = Reached("10.40.0.1", "eth1", 9000, ping, full, tuple((int(port), told) for port, told in pairs))
    return [(one.id, one.severity, one.observed) for one in check_reach(pair(), "spark-b", (reached,))]


def test_a_closed_port_on_a_node_that_answers_ping_is_a_firewall():
    """NET-16: 22 open, 2049 filtered, 29500 without a listener, 8888 rejected."""
    assert seen("22=open, 2049=timeout, 29500=refused")[0] == (
        "FABRIC.REACH",
        Severity.REFUSAL,
        "spark-a (10.40.0.1) answers ping, but port 2049 filtered: a firewall drops packets",
    )
    assert seen("22=open, 29500=refused, 8888=errno 113")[0] == (
        "FABRIC.REACH",
        Severity.WARNING,
        "spark-a (10.40.0.1) rejects port 8888: a firewall",
    )
    assert seen("22=open, 29500=refused")[0] == ("FABRIC.REACH", Severity.OK, "spark-a (10.40.0.1) answers over eth1")


def test_a_node_that_does_not_answer_at_all_is_no_firewall():
    assert seen("22=errno 113, 29521=errno 113", ping=False, full=False)[0] == (
        "FABRIC.REACH",
        Severity.REFUSAL,
        "spark-a (10.40.0.1) does not answer over eth1",
    )


def test_full_packets_that_do_not_pass_are_refused():
    """NET-10: a ping that may be fragmented proves nothing."""
    assert seen("22=open, 29521=refused", full=False)[1] == (
        "FABRIC.JUMBO",
        Severity.REFUSAL,
        "small packets reach 10.40.0.1, but 8972 bytes do not (MTU 9000 on eth1)",
    )
    assert seen("22=open, 29521=refused", ping=None, full=None)[1][1] is Severity.NOT_CHECKED


def test_ssh_over_the_fabric_is_only_noted():
    assert seen("22=timeout, 29521=refused")[2][:2] == ("FABRIC.SSH", Severity.NOTE)


@pytest.mark.parametrize(
    ("check", "observed", "blinks"),
    [
        ("FABRIC.ADDRESS", "10.40.0.1 is on no interface of this node; it has no IPv4 address", True),
        ("FABRIC.ADDRESS", "10.40.0.1 is on eth0, not on eth1", False),
        ("FABRIC.GID", "rocep1s0f1 has no RoCE v2 entry with 10.40.0.1; ...", True),
        ("FABRIC.GID", "GID index 3 of rocep1s0f1 is empty; ...", False),
    ],
)
def test_only_what_may_come_back_is_waited_for(check, observed, blinks):
    """NET-15"""
    bare = {"spark-a": facts("spark-a", "127.0.0.1@lo"), "spark-b": facts("spark-b")}
    assert may_blink(pair(), bare, (Finding(check, Severity.REFUSAL, "spark-a", observed),)) is blinks


@pytest.mark.parametrize(("there", "blinks"), [("10.40.0.7@eth1", False), ("10.41.0.1@eth2", True), ("", True)])
def test_an_address_is_not_waited_for_on_an_interface_that_has_another(there, blinks):
    """The subnet is set up there: with another address than the settings say, and not in a moment either."""
    seen = {"spark-a": facts("spark-a", there), "spark-b": facts("spark-b")}
    absent = Finding("FABRIC.ADDRESS", Severity.REFUSAL, "spark-a", "10.40.0.1 is on no interface of this node")
    assert may_blink(pair(), seen, (absent,)) is blinks
