"""Which ways there are to measure, which are missing, and what a measurement is worth."""

from dataclasses import replace

import pytest

from cluster.model.fabric_test import Coverage, Grade, How, Measured
from cluster.plan.fabric_checks import join
from cluster.plan.fabric_ways import coverage, judge, judge_together, missing, name, pairs, totals, way
from tests.build import facts, pair
from tests.fabric import HEAD, HEAD_TWIN, WORKER, WORKER_TWIN, fabric

ONE_A, ONE_B = "10.40.0.1@enp1s0f1np1", "10.40.0.2@enp1s0f0np0"
BOTH_A, BOTH_B = f"{ONE_A}, 10.41.0.1@enP2p1s0f1np1", f"{ONE_B}, 10.41.0.2@enP2p1s0f0np0"


def ranks(a: str, b: str, head: str = "", worker: str = ""):
    seen = {
        "spark-a": replace(facts("spark-a", a), fabric=fabric(head)),
        "spark-b": replace(facts("spark-b", b), fabric=fabric(worker)),
    }
    return join(pair(), seen)[0]


def test_both_directions_of_both_rails_are_measured():
    found = pairs(ranks(BOTH_A, BOTH_B, HEAD + HEAD_TWIN, WORKER + WORKER_TWIN))
    assert [(name(way(*each)), each[0].device, each[0].gid) for each in found] == [
        ("spark-a enp1s0f1np1 -> spark-b enp1s0f0np0", "rocep1s0f1", 3),
        ("spark-a enP2p1s0f1np1 -> spark-b enP2p1s0f0np0", "roceP2p1s0f1", 3),
        ("spark-b enp1s0f0np0 -> spark-a enp1s0f1np1", "rocep1s0f0", 3),
        ("spark-b enP2p1s0f0np0 -> spark-a enP2p1s0f1np1", "roceP2p1s0f0", 3),
    ]


def test_without_rdma_the_fabric_addresses_are_measured():
    found = pairs(ranks(f"{ONE_A}, 192.0.2.1@enP7s7", f"{ONE_B}, 192.0.2.2@enP7s7"))
    assert [name(way(*each)) for each in found] == [
        "spark-a enp1s0f1np1 -> spark-b enp1s0f0np0",
        "spark-b enp1s0f0np0 -> spark-a enp1s0f1np1",
    ]
    assert missing(ranks(ONE_A, ONE_B)) == ()


def test_nodes_without_a_common_subnet_are_told_as_missing():
    apart = ranks(ONE_A, "10.99.0.2@enp1s0f0np0")
    assert pairs(apart) == ()
    assert missing(apart) == (
        Coverage("spark-a enp1s0f1np1", False, "no other node has an address in 10.40.0.0/24"),
        Coverage("spark-b", False, "10.40.0.2 is on no interface"),
    )


@pytest.mark.parametrize(
    ("how", "gbps", "us", "grade"),
    [
        (How.RDMA, 13.23, 2.0, Grade.DEGRADED),
        (How.RDMA, 50.0, 2.0, Grade.SUSPICIOUS),
        (How.RDMA, 92.57, 2.0, Grade.OK),
        (How.RDMA, 111.4, 25.0, Grade.SUSPICIOUS),
        (How.SOCKETS, 34.0, 40.0, Grade.OK),
        (How.SOCKETS, 3.0, 40.0, Grade.DEGRADED),
        (How.RDMA, None, None, Grade.FAILED),
    ],
)
def test_a_way_is_judged_by_the_known_healthy_figures(how, gbps, us, grade):
    """NET-12"""
    source = pairs(ranks(ONE_A, ONE_B, HEAD, WORKER))[0][0]
    assert judge(source, how, gbps, us, "")[0] is grade


def measured(gbps, together=False, how=How.RDMA, error=""):
    one = way(*pairs(ranks(ONE_A, ONE_B))[0])
    return Measured(one, how, together, gbps, 2.0, Grade.OK, error)


def test_a_way_that_failed_is_not_covered():
    assert coverage([measured(90.0), measured(None, error="no route"), measured(50.0, together=True)], ()) == (
        Coverage("spark-a enp1s0f1np1 -> spark-b enp1s0f0np0", True),
        Coverage("spark-a enp1s0f1np1 -> spark-b enp1s0f0np0", False, "no route"),
    )


@pytest.mark.parametrize(
    ("all_at_once", "how", "grade"),
    [(100.0, How.RDMA, Grade.OK), (60.0, How.RDMA, Grade.SUSPICIOUS), (20.0, How.SOCKETS, Grade.OK)],
)
def test_ways_that_disturb_each_other_are_told(all_at_once, how, grade):
    alone, one = [measured(100.0, how=how)], measured(all_at_once, together=True, how=how)
    total = totals([one])
    assert total == {("spark-a", "spark-b"): all_at_once}
    assert judge_together(alone, total, one) is grade
