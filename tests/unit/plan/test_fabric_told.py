"""What is said of one end of the fabric, and when it is the first cause."""

from dataclasses import replace

import pytest

from cluster.model.fabric import FabricLook, PortLook
from cluster.model.settings import NodeSettings
from cluster.model.status import FabricStatus
from cluster.plan.fabric_told import cut, fabric_status

HEAD = NodeSettings(name="spark-a", address="10.40.0.1")
PORT = PortLook("rocep1s0f1", 1, "ACTIVE", 200.0, ("enp1s0f1np1",))
TWIN = PortLook("roceP2p1s0f1", 1, "ACTIVE", 200.0, ("enP2p1s0f1np1",))
OTHER = PortLook("rocep1s0f0", 1, "DOWN", 40.0, ("enp1s0f0np0",))
SEEN = FabricLook("enp1s0f1np1", True, 200000, 9000, 5, 6, (PORT, TWIN, OTHER))


def test_the_port_of_the_interface_is_shown_where_none_is_named():
    assert fabric_status(HEAD, SEEN) == FabricStatus(
        "10.40.0.1", "enp1s0f1np1", True, 200000, 9000, ("rocep1s0f1:1",), 1, 5, 6
    )


@pytest.mark.parametrize(
    ("hca", "shown"),
    [
        ("rocep1s0f1,roceP2p1s0f1", ("rocep1s0f1:1", "roceP2p1s0f1:1")),
        ("^rocep1s0f1", ("roceP2p1s0f1:1",)),
        ("=rocep1s0f1:1", ("rocep1s0f1:1",)),
        ("roce", ("rocep1s0f1:1", "roceP2p1s0f1:1")),  # a beginning is no name: what is down there was never meant
    ],
)
def test_the_named_ports_are_shown_as_nccl_reads_the_names(hca, shown):
    assert fabric_status(replace(HEAD, hca=hca), SEEN).rdma == shown


@pytest.mark.parametrize(
    ("hca", "seen", "problem"),
    [
        ("", SEEN, ""),
        ("", replace(SEEN, interface=None, carrier=False), "no interface has the address 10.40.0.1 any more"),
        (
            "",
            replace(SEEN, carrier=False),
            "enp1s0f1np1 has no carrier: the cable is out, or the other end is down",
        ),
        ("rocep1s0f1,rocep1s0f0", SEEN, "rocep1s0f0 is DOWN"),
    ],
)
def test_what_keeps_ranks_from_talking(hca, seen, problem):
    assert fabric_status(replace(HEAD, hca=hca), seen).problem == problem


def test_each_cut_end_is_told_with_its_node():
    ends = [("a", FabricStatus("1", "x", True)), ("b", FabricStatus("2", "y", False, problem="y is out")), ("c", None)]
    assert cut(ends) == ("the fabric is cut: y is out (on b)",)
