"""NCCL_IB_HCA is a small language; we read it as NCCL does, and say where a value means something else than it says."""

import pytest

from cluster.plan.hca import select
from tests.fabric import port

PORTS = (
    port("rocep1s0f0", state="DOWN"),
    port("rocep1s0f1"),
    port("roceP2p1s0f0", state="DOWN"),
    port("roceP2p1s0f1"),
)


@pytest.mark.parametrize(
    ("value", "devices", "reason"),
    [
        ("", ["rocep1s0f1", "roceP2p1s0f1"], ""),
        ("roce", ["rocep1s0f1", "roceP2p1s0f1"], ""),
        ("rocep1s0f", ["rocep1s0f1"], ""),
        ("=rocep1s0f1", ["rocep1s0f1"], ""),
        ("^rocep1s0f0", ["rocep1s0f1", "roceP2p1s0f1"], ""),
        ("^=rocep1s0f1", ["roceP2p1s0f1"], ""),
        ("rocep1s0f1, roceP2p1s0f1", ["rocep1s0f1"], "blank_in_list"),
        ("rocep1s0f1:2", [], "no_active_port"),
        ("ROCEP1S0F1", [], "no_active_port"),
        ("^", [], "no_active_port"),
        ("=roce", [], "no_active_port"),
        ("rocep1s0f1:1,roceP2p1s0f1:1", ["rocep1s0f1", "roceP2p1s0f1"], ""),
        ("rocep1s0f1,mlx5_0", ["rocep1s0f1"], "unknown_name"),
        ("rocep1s0f0,rocep1s0f1", ["rocep1s0f1"], "port_down"),
        ("rocep1s0f1:1:0:0", ["rocep1s0f1"], ""),
    ],
)
def test_a_value_stands_for_the_ports_that_nccl_takes(value, devices, reason):
    """NET-05, NET-06"""
    found = select(value, PORTS)
    assert ([one.device for one in found.ports], found.reason) == (devices, reason)


def test_a_value_that_names_nothing_says_what_is_there():
    assert select("mlx5_0", PORTS[:2]).problem == (
        "“mlx5_0” names no active RDMA port of this node; it has rocep1s0f0:1 DOWN, rocep1s0f1:1 ACTIVE"
    )
