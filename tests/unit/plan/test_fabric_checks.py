"""The fabric of both ranks judged together: what each is given, what is refused, and with which words."""

from dataclasses import replace

import pytest

from cluster.model.deployment import DeploymentId
from cluster.model.events import Severity
from cluster.model.host import Host
from cluster.model.settings import Launch
from cluster.plan.fabric_checks import ERRNO_61, wire_ranks
from cluster.plan.launch import Wiring, launch_spec
from tests.build import facts, pair
from tests.fabric import (
    HEAD,
    HEAD_HOLE,
    HEAD_SECOND_LINK_LOCAL,
    HEAD_TWIN,
    HEAD_TWIN_LINK_LOCAL,
    WORKER,
    WORKER_AT_5,
    WORKER_TWIN,
    fabric,
)

ONE_A, ONE_B = "10.40.0.1@enp1s0f1np1", "10.40.0.2@enp1s0f0np0"
BOTH_A, BOTH_B = f"{ONE_A}, 10.41.0.1@enP2p1s0f1np1", f"{ONE_B}, 10.41.0.2@enP2p1s0f0np0"


def settings(head=None, worker=None):
    base = pair()
    nodes = (replace(base.nodes[0], **(head or {})), replace(base.nodes[1], **(worker or {})))
    return replace(base, nodes=nodes)


def seen(head, worker, a: str = ONE_A, b: str = ONE_B):
    return {
        "spark-a": replace(facts("spark-a", a), fabric=head if not isinstance(head, str) else fabric(head)),
        "spark-b": replace(facts("spark-b", b), fabric=worker if not isinstance(worker, str) else fabric(worker)),
    }


def told(findings, check: str):
    return [(one.node, one.severity, one.observed) for one in findings if one.id == check]


def refused(findings) -> list[str]:
    return [one.id for one in findings if one.severity is Severity.REFUSAL]


def test_ports_found_behind_the_fabric_address_are_used_and_the_index_is_left_to_nccl_where_it_is_right():
    wiring, findings = wire_ranks(settings(), seen(HEAD, WORKER_AT_5))
    assert wiring == (
        Wiring("10.40.0.1", "enp1s0f1np1", "=rocep1s0f1", None),
        Wiring("10.40.0.2", "enp1s0f0np0", "=rocep1s0f0", None),
    )
    assert told(findings, "FABRIC.GID") == [
        ("spark-a", Severity.OK, "index 3 on rocep1s0f1: NCCL's own choice, and right"),
        ("spark-b", Severity.OK, "index 5 on rocep1s0f0: NCCL's own choice, and right"),
    ]
    assert not refused(findings)


def test_a_pinned_index_that_is_empty_on_the_worker_is_refused_with_both_tables_and_both_values():
    """NET-01"""
    _, findings = wire_ranks(settings({"gid": 3}, {"gid": 3}), seen(HEAD, WORKER_AT_5))
    assert refused(findings) == ["FABRIC.GID"]
    (one,) = [each for each in findings if each.severity is Severity.REFUSAL]
    assert (one.node, one.observed, one.fix) == (
        "spark-b",
        f"GID index 3 of rocep1s0f0 is empty; {ERRNO_61}",
        "set HEAD_GID=3 WORKER_GID=5",
    )
    assert [line for line in one.details if "fits" in line] == [
        "spark-a  rocep1s0f1:1    3  10.40.0.1  RoCE v2  enp1s0f1np1  <- fits",
        "spark-b  rocep1s0f0:1    5  10.40.0.2  RoCE v2  enp1s0f0np0  <- fits",
    ]
    assert len(one.details) == 8


def test_a_pinned_link_local_entry_is_named():
    """NET-02"""
    _, findings = wire_ranks(settings({"gid": 3}, {"gid": 3}), seen(HEAD_SECOND_LINK_LOCAL, WORKER))
    (one,) = [each for each in findings if each.severity is Severity.REFUSAL]
    assert one.observed == (
        f"GID index 3 of rocep1s0f1 (fe80::b1c2:93ab:5d0e:7a19, RoCE v2) is not the fabric address; {ERRNO_61}"
    )
    assert one.fix == "set HEAD_GID=5 WORKER_GID=3"


def test_each_rank_gets_its_own_index():
    """NET-04"""
    _, findings = wire_ranks(settings({"gid": 4}, {"gid": 4}), seen(HEAD_HOLE, WORKER))
    assert [(one.node, one.fix) for one in findings if one.id == "FABRIC.GID" and one.fix] == [
        ("spark-b", "set HEAD_GID=4 WORKER_GID=3")
    ]
    pinned = settings({"gid": 4}, {"gid": 3})
    wiring, findings = wire_ranks(pinned, seen(HEAD_HOLE, WORKER))
    assert not refused(findings)
    spec = launch_spec(pinned, DeploymentId("demo", "b"), wiring)
    assert [dict(rank.environment)["NCCL_IB_GID_INDEX"] for rank in spec.ranks] == ["4", "3"]


def test_a_rank_whose_table_misleads_nccl_is_given_the_index():
    link_local_first = """
rocep1s0f1 | 1 | 0 | 0000:0000:0000:0000:0000:ffff:a9fe:0102 | RoCE v2 | enp1s0f1np1
rocep1s0f1 | 1 | 4 | 0000:0000:0000:0000:0000:ffff:0a28:0001 | RoCE v2 | enp1s0f1np1
"""
    wiring, findings = wire_ranks(settings(), seen(link_local_first, WORKER))
    assert [one.gid for one in wiring] == [4, None]
    assert told(findings, "FABRIC.GID")[0] == ("spark-a", Severity.OK, "index 4 on rocep1s0f1, found now")


def test_both_halves_of_a_cable_are_used_when_they_share_subnets():
    """NET-05, and twins grouped by their physical port."""
    wiring, findings = wire_ranks(settings(), seen(HEAD + HEAD_TWIN, WORKER + WORKER_TWIN, BOTH_A, BOTH_B))
    assert [one.hca for one in wiring] == ["=rocep1s0f1,roceP2p1s0f1", "=rocep1s0f0,roceP2p1s0f0"]
    assert not [one for one in findings if one.severity in (Severity.REFUSAL, Severity.WARNING)]


def test_another_cables_port_is_no_twin():
    other = replace(
        fabric(HEAD + HEAD_TWIN),
        links=tuple(
            replace(one, socket="7e/p0" if one.name == "enP2p1s0f1np1" else "7e/p1")
            for one in fabric(HEAD + HEAD_TWIN).links
        ),
    )
    wiring, _ = wire_ranks(settings(), seen(other, WORKER, BOTH_A))
    assert wiring[0].hca == "=rocep1s0f1"


def test_a_twin_without_a_partner_in_its_subnet_is_left_out():
    wiring, findings = wire_ranks(settings(), seen(HEAD + HEAD_TWIN, WORKER, BOTH_A))
    assert [one.hca for one in wiring] == ["=rocep1s0f1", "=rocep1s0f0"]
    assert told(findings, "FABRIC.RAILS") == [
        (
            "spark-a",
            Severity.WARNING,
            "single rail: roceP2p1s0f1 has no partner in its subnet on the other node",
        )
    ]


def test_a_twin_with_only_a_link_local_address_is_left_out_when_found_and_refused_when_named():
    """NET-08"""
    text = HEAD + HEAD_TWIN_LINK_LOCAL
    wiring, findings = wire_ranks(settings(), seen(text, WORKER))
    assert wiring[0].hca == "=rocep1s0f1"
    assert told(findings, "FABRIC.RAILS") == [
        ("spark-a", Severity.WARNING, "single rail: roceP2p1s0f1 has no IPv4 address on enP2p1s0f1np1")
    ]
    _, findings = wire_ranks(settings({"hca": "rocep1s0f1,roceP2p1s0f1"}), seen(text, WORKER))
    assert ("spark-a", Severity.REFUSAL, "no IPv4 address on enP2p1s0f1np1 (roceP2p1s0f1)") in told(
        findings, "FABRIC.HCA"
    )


def test_a_list_of_devices_is_no_path():
    """NET-05"""
    _, findings = wire_ranks(
        settings({"hca": "rocep1s0f1,roceP2p1s0f1", "gid": 3}), seen(HEAD + HEAD_TWIN, WORKER, BOTH_A)
    )
    assert told(findings, "FABRIC.GID")[0] == (
        "spark-a",
        Severity.OK,
        "index 3 on rocep1s0f1, roceP2p1s0f1, as set",
    )


def test_a_device_that_is_not_there_is_refused_with_those_that_are():
    _, findings = wire_ranks(settings({"hca": "mlx5_0"}), seen(HEAD, WORKER))
    (one,) = [each for each in findings if each.severity is Severity.REFUSAL]
    assert (one.id, one.fix) == ("FABRIC.HCA", "set HEAD_CX7_IB=rocep1s0f1")


def test_a_different_mtu_on_the_second_rail_is_refused_with_both_ends():
    """NET-10"""
    head = fabric(HEAD + HEAD_TWIN)
    worker = fabric(WORKER + WORKER_TWIN, enP2p1s0f0np0_mtu=1500)
    _, findings = wire_ranks(settings(), seen(head, worker, BOTH_A, BOTH_B))
    assert told(findings, "FABRIC.MTU") == [
        ("", Severity.OK, "9000 on both ends of 10.40.0.0/24"),
        (
            "",
            Severity.REFUSAL,
            "enP2p1s0f1np1 on spark-a has 9000 (RoCE 4096), enP2p1s0f0np0 on spark-b has 1500 (RoCE 1024)",
        ),
    ]


def test_only_active_ports_are_judged_by_their_speed():
    """NET-11"""
    slow = fabric(HEAD)
    slow = replace(slow, ports=(replace(slow.ports[0], gbps=100.0), replace(slow.ports[0], device="x", state="DOWN")))
    _, findings = wire_ranks(settings(), seen(slow, WORKER))
    assert told(findings, "FABRIC.SPEED") == [
        ("spark-a", Severity.WARNING, "rocep1s0f1 at 100 Gb/s"),
        ("spark-b", Severity.OK, "rocep1s0f0 at 200 Gb/s"),
    ]


def test_each_rank_is_wired_by_its_own_interface():
    """NET-13"""
    base = replace(settings(), launch=Launch(venv="/opt/vllm", environment=(("NCCL_SOCKET_IFNAME", "^lo,docker0"),)))
    wiring, _ = wire_ranks(base, seen(HEAD, WORKER))
    ranks = [dict(rank.environment) for rank in launch_spec(base, DeploymentId("demo", "b"), wiring).ranks]
    assert [(one["GLOO_SOCKET_IFNAME"], one["TP_SOCKET_IFNAME"], one["NCCL_SOCKET_IFNAME"]) for one in ranks] == [
        ("enp1s0f1np1", "enp1s0f1np1", "^lo,docker0"),
        ("enp1s0f0np0", "enp1s0f0np0", "^lo,docker0"),
    ]


def test_two_interfaces_in_one_subnet_are_told():
    a = "10.40.0.1@enp1s0f1np1, 10.40.0.7@enP2p1s0f1np1"
    _, findings = wire_ranks(settings(), seen(HEAD + HEAD_TWIN, WORKER, a))
    assert told(findings, "FABRIC.SUBNET")[0] == (
        "spark-a",
        Severity.WARNING,
        "10.40.0.0/24 is on enP2p1s0f1np1 and enp1s0f1np1",
    )


def test_a_narrow_pcie_link_and_counted_errors_are_told():
    narrow = fabric(HEAD)
    narrow = replace(narrow, ports=(replace(narrow.ports[0], pcie_width=2, fatal=3),))
    _, findings = wire_ranks(settings(), seen(narrow, WORKER))
    assert [text for _, _, text in told(findings, "FABRIC.PCIE")] == [
        "rocep1s0f1 has 2 PCIe lanes",
        "rocep1s0f1 counted 3 fatal PCIe error(s) since the last boot",
    ]


@pytest.mark.parametrize("pin", [None, 3])
def test_nodes_without_rdma_are_told_as_not_checked_and_nothing_is_refused(pin):
    nothing = {"spark-a": facts("spark-a", ONE_A), "spark-b": facts("spark-b", ONE_B)}
    wiring, findings = wire_ranks(settings({"gid": pin}, {"gid": pin}), nothing)
    assert wiring == (
        Wiring("10.40.0.1", "enp1s0f1np1", "", pin),
        Wiring("10.40.0.2", "enp1s0f0np0", "", pin),
    )
    assert told(findings, "FABRIC.HCA") == [
        ("spark-a", Severity.NOT_CHECKED, "no node has an RDMA device"),
        ("spark-b", Severity.NOT_CHECKED, "no node has an RDMA device"),
    ]
    assert not refused(findings)


def test_one_node_with_rdma_and_one_without_cannot_talk():
    both = seen(HEAD, WORKER)
    both["spark-b"] = facts("spark-b", ONE_B)
    _, findings = wire_ranks(settings(), both)
    assert told(findings, "FABRIC.RAILS") == [("", Severity.REFUSAL, "spark-a would use RDMA, spark-b plain sockets")]


def test_ranks_on_one_machine_and_rdma_that_is_switched_off_are_not_checked():
    local = settings({"address": "127.0.0.1"}, {"address": "127.0.0.1", "control": "local"})
    both = {name: facts(name, "127.0.0.1@lo") for name in ("spark-a", "spark-b")}
    assert told(wire_ranks(local, both)[1], "FABRIC.HCA") == [
        ("", Severity.NOT_CHECKED, "all ranks are on this machine")
    ]
    off = replace(settings(), launch=Launch(venv="/opt/vllm", environment=(("NCCL_IB_DISABLE", "1"),)))
    wiring, _ = wire_ranks(off, seen(HEAD, WORKER))
    assert [one.hca for one in wiring] == ["", ""]


def test_a_fabric_address_that_is_not_on_rdma_is_told():
    _, findings = wire_ranks(settings(), seen(HEAD, WORKER, "10.40.0.1@enP7s7", "10.40.0.2@enP7s7"))
    assert told(findings, "FABRIC.HCA")[0] == (
        "spark-a",
        Severity.WARNING,
        "no active RDMA port is behind enP7s7; NCCL would take rocep1s0f1 by itself",
    )


def test_a_named_pair_against_a_single_found_port_is_told_and_the_found_one_stays():
    named = settings({"hca": "rocep1s0f1,roceP2p1s0f1"})
    wiring, findings = wire_ranks(named, seen(HEAD + HEAD_TWIN, WORKER, BOTH_A))
    assert [one.hca for one in wiring] == ["rocep1s0f1,roceP2p1s0f1", "=rocep1s0f0"]
    assert told(findings, "FABRIC.RAILS") == [
        ("spark-a", Severity.WARNING, "roceP2p1s0f1 has no partner in its subnet on the other node")
    ]


def test_a_single_named_port_leaves_the_other_ranks_twin_out():
    wiring, _ = wire_ranks(
        settings({"hca": "rocep1s0f1"}), seen(HEAD + HEAD_TWIN, WORKER + WORKER_TWIN, BOTH_A, BOTH_B)
    )
    assert [one.hca for one in wiring] == ["rocep1s0f1", "=rocep1s0f0"]


def test_where_a_file_would_choose_in_nccls_place_the_index_is_given():
    both = seen(HEAD, WORKER_AT_5)
    both["spark-b"] = replace(
        both["spark-b"], host=Host(kernel="6", nccl_files=(("/etc/nccl.conf", "NCCL_IB_GID_INDEX=3"),))
    )
    wiring, _ = wire_ranks(settings(), both)
    assert [one.gid for one in wiring] == [None, 5]
