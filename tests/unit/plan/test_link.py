"""A rank is wired by the interface that carries its fabric address; what cannot work is refused with the reason."""

from dataclasses import replace

import pytest

from cluster.model.events import Severity
from cluster.model.fabric import Fabric
from cluster.model.settings import NodeSettings
from cluster.plan.launch import Wiring
from cluster.plan.link import wire
from tests.build import facts
from tests.fabric import port

NODE = NodeSettings(name="spark-a", control="local", address="10.40.0.1")


def test_the_interface_is_the_one_that_carries_the_address():
    wired, (finding,) = wire(NODE, facts("spark-a", "127.0.0.1@lo, 192.0.2.11@enP7s7, 10.40.0.1@enp1s0f1np1"), False)
    assert wired == Wiring("10.40.0.1", "enp1s0f1np1")
    assert (finding.id, finding.severity) == ("FABRIC.ADDRESS", Severity.OK)


def test_a_loopback_alias_is_refused_and_the_fabric_address_offered():
    """NET-09: the LOOPBACK flag decides, not the name or 127/8."""
    node = replace(NODE, address="10.50.0.1")
    _, (finding,) = wire(node, facts("spark-a", "127.0.0.1@lo, 10.50.0.1@lo, 10.40.0.1@enp1s0f1np1"), False)
    assert finding.severity is Severity.REFUSAL
    assert "loopback" in finding.observed
    assert finding.fix.endswith("=10.40.0.1")


def test_loopback_will_do_when_all_ranks_are_on_this_machine():
    node = replace(NODE, address="127.0.0.1")
    wired, (finding,) = wire(node, facts("here", "127.0.0.1@lo"), True)
    assert (wired, finding.severity) == (Wiring("127.0.0.1", "lo"), Severity.OK)


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ("127.0.0.1@lo, 10.40.0.9@eth0", "on no interface of this node; it has 10.40.0.9 (eth0)"),
        ("127.0.0.1@lo", "no IPv4 address"),
        ("10.40.0.1@eth0 down", "no carrier"),
    ],
)
def test_an_address_that_cannot_serve_is_refused(seen, says):
    _, (finding,) = wire(NODE, facts("spark-a", seen), False)
    assert finding.severity is Severity.REFUSAL
    assert says in finding.observed


def dark(*interfaces: str, state: str = "DOWN") -> Fabric:
    ports = (port(f"roce-{name}", state=state, interfaces=(name,)) for name in interfaces)
    return Fabric(tuple(ports), ())


def test_an_address_that_went_with_the_carrier_is_told_as_a_cable():
    """As networkd does it: the cable falls out, and the interface loses its address too."""
    seen = replace(facts("spark-a", "192.0.2.11@enP7s7"), fabric=dark("enp1s0f1np1"))
    _, (finding,) = wire(NODE, seen, False)
    assert (finding.severity, finding.observed, finding.fix) == (
        Severity.REFUSAL,
        "10.40.0.1 is on no interface of this node, and no carrier is on enp1s0f1np1",
        "plug the cable in, at both ends; then `ip -br addr show enp1s0f1np1` has 10.40.0.1",
    )


def test_a_dark_port_beside_one_that_is_up_explains_no_wrong_address():
    half = Fabric((*dark("enp1s0f0np0").ports, *dark("enp1s0f1np1", state="ACTIVE").ports), ())
    seen = replace(facts("spark-a", "10.40.0.9@enp1s0f1np1"), fabric=half)
    _, (finding,) = wire(NODE, seen, False)
    assert "it has 10.40.0.9 (enp1s0f1np1)" in finding.observed
    _, (named,) = wire(replace(NODE, interface="enp1s0f0np0"), seen, False)
    assert named.observed.endswith("no carrier is on enp1s0f0np0")


def test_an_interface_that_does_not_carry_the_address_is_refused():
    node = replace(NODE, interface="enp1s0f0np0")
    _, (finding,) = wire(node, facts("spark-a", "10.40.0.1@enp1s0f1np1"), False)
    assert (finding.severity, finding.observed) == (
        Severity.REFUSAL,
        "10.40.0.1 is on enp1s0f1np1, not on enp1s0f0np0",
    )
