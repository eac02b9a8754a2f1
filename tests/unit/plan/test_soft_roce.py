"""The GID tables of a real kernel's soft RoCE, as addresses come and go: the right index every time."""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.model.events import Severity
from cluster.plan.fabric_checks import wire_ranks
from cluster.plan.gid import Flaw, flaw_of, member
from cluster.probe.rdma import parse_fabric
from tests.build import facts, pair

CAPTURED = Path(__file__).parents[2] / "captured" / "fabric"
PLAIN, SECOND = "10.40.0.1@va", "10.40.0.1@va, 10.41.0.1@va"


def seen(name: str):
    return parse_fabric((CAPTURED / f"rxe-{name}.txt").read_text())


def node(name: str, addresses: str, state: str = "plain", device: str = "rxe0"):
    fabric = seen(state)
    own = replace(fabric, ports=tuple(port for port in fabric.ports if port.device == device))
    return replace(facts(name, addresses), fabric=own)


@pytest.mark.parametrize(
    ("state", "addresses", "usable"),
    [
        ("plain", PLAIN, (1,)),
        ("second-address", SECOND, (1,)),
        ("readded", SECOND, (1,)),
        ("link-local", SECOND, (1,)),
    ],
)
def test_the_fabric_address_is_found_whatever_comes_and_goes(state, addresses, usable):
    one = node("spark-a", addresses, state)
    assert member(one.fabric.ports[0], one.addresses, "10.40.0.1", "va").usable == usable


def test_an_address_that_went_leaves_a_hole_and_its_index_is_empty():
    """NET-03, as a kernel does it."""
    one = node("spark-a", "10.41.0.1@va", "removed")
    port = one.fabric.ports[0]
    assert [gid.index for gid in port.gids] == [0, 2]
    gone = member(port, one.addresses, "10.40.0.1", "va")
    assert (gone.usable, flaw_of(1, gone)) == ((2,), Flaw.EMPTY)


def both(state_a: str = "plain", a: str = PLAIN):
    nodes = {"spark-a": node("spark-a", a, state_a), "spark-b": node("spark-b", "10.40.0.2@vb", device="rxe1")}
    return wire_ranks(pair(), nodes)


def test_two_soft_roce_nodes_are_wired_and_only_their_rate_is_remarked():
    wiring, findings = both()
    assert [(one.hca, one.gid) for one in wiring] == [("=rxe0", None), ("=rxe1", None)]
    remarked = [one.id for one in findings if one.severity in (Severity.REFUSAL, Severity.WARNING)]
    assert remarked == ["FABRIC.SPEED", "FABRIC.SPEED"]


def test_a_port_that_is_down_is_named():
    _, findings = both("down", SECOND)
    assert ("spark-a", "rxe0 is DOWN") in [(one.node, one.observed) for one in findings if one.id == "FABRIC.HCA"]
