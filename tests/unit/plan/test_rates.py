"""What links and measurements are worth."""

import pytest

from cluster.model.fabric_test import Grade
from cluster.plan.rates import df_payload, grade_rdma, grade_tcp, roce_mtu


@pytest.mark.parametrize(("mtu", "roce"), [(1500, 1024), (9000, 4096), (4192, 4096), (4191, 2048), (576, 256), (68, 0)])
def test_the_mtu_of_roce_follows_from_that_of_the_interface(mtu, roce):
    """NET-10"""
    assert roce_mtu(mtu) == roce


def test_a_ping_that_fills_a_jumbo_packet():
    assert df_payload(9000) == 8972


@pytest.mark.parametrize(
    ("gbps", "grade"),
    [
        (13.23, Grade.DEGRADED),
        (24.99, Grade.DEGRADED),
        (25, Grade.SUSPICIOUS),
        (50, Grade.SUSPICIOUS),
        (80, Grade.OK),
        (92.57, Grade.OK),
        (111.4, Grade.OK),
    ],
)
def test_only_a_measurement_shows_a_degraded_function(gbps, grade):
    """NET-12"""
    assert grade_rdma(gbps) is grade


@pytest.mark.parametrize(
    ("gbps", "mbps", "grade"),
    [(34, 200000, Grade.OK), (6, 200000, Grade.DEGRADED), (0.94, 1000, Grade.OK), (0.2, 1000, Grade.DEGRADED)],
)
def test_plain_sockets_are_judged_by_what_the_link_can_carry(gbps, mbps, grade):
    assert grade_tcp(gbps, mbps) is grade
