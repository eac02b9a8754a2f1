"""What NCCL says of its transport, in the forms of several of its versions, and what of it was not planned."""

from pathlib import Path

import pytest

from cluster.model.fabric import NOTHING_SAID, Transport
from cluster.plan.loglines import Plain, classify, message_of
from cluster.plan.transport import described, differences, heard

CAPTURED = Path(__file__).resolve().parents[2] / "captured" / "nccl"
VLLM = "(EngineCore_DP0 pid=2301) (RayWorkerWrapper pid=2981, ip=169.254.28.198) "
ROCE = """
spark-a:2981:3111 [0] NCCL INFO NCCL_IB_GID_INDEX set by environment to 3.
spark-a:2981:3111 [0] NCCL INFO NET/IB : Using [0]rocep1s0f1:1/RoCE [1]roceP2p1s0f1:1/RoCE [RO]; OOB eth9:10.40.0.1<0>
spark-a:2981:3111 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'rocep1s0f1'
spark-a:2981:3111 [0] NCCL INFO Using network IB
spark-a:2981:3113 [0] NCCL INFO Channel 10/0 : 1[0] -> 0[0] [send] via NET/IB/0
spark-a:2981:3113 [0] NCCL INFO NET/IB: NCCL Dev 0 IbDev 0 Port 1 qpn 341 mtu 5 GID 3 (0/1) fifoRkey=0x1
spark-a:2981:3111 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 0
"""
TWINS = ("rocep1s0f1:1", "roceP2p1s0f1:1")
RDMA = Transport("IB", TWINS, False, (3,))
SOCKETS = Transport("Socket", ("eno1",), False)


def read(log: str) -> Transport:
    said = NOTHING_SAID
    for line in log.strip().splitlines():
        said = heard(said, message_of(line))
    return said


def test_rdma_over_both_halves_of_a_cable():
    assert read(ROCE) == RDMA
    assert described(RDMA) == "RDMA over rocep1s0f1:1, roceP2p1s0f1:1, GID 3, no GPU direct"


@pytest.mark.parametrize("case", ["good_eager", "good_graph"])
def test_sockets_in_a_recorded_boot(case):
    said = read((CAPTURED / case / "rank0.log").read_text())
    assert (said.kind, said.gpu_direct, described(said)) == ("Socket", False, "sockets")


def test_a_socket_line_names_the_interface():
    assert read("a:1:2 [0] NCCL INFO NET/Socket : Using [0]eth9:10.77.0.1<0> [1]lan0:10.77.1.1<0>").devices == (
        "eth9",
        "lan0",
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA", Transport("IB", gpu_direct=True)),
        ("Channel 09/0 : 1[0] -> 0[0] [send] via NET/IBext_v10/1", Transport("IB")),
        ("NET/IB : GPU Direct RDMA (DMABUF) enabled for HCA 1 'roceP2p1s0f1", Transport(gpu_direct=True)),
        ("Using network AWS Libfabric", Transport("AWS")),
        ("Channel 00 : 0[0] -> 1[1] via P2P/CUMEM", NOTHING_SAID),
        ("NET/Plugin: Could not find: libnccl-net.so", NOTHING_SAID),
    ],
)
def test_single_lines(line, said):
    assert read(f"spark-a:2981:3113 [0] NCCL INFO {line}") == said


def test_what_a_connection_uses_counts_more_than_what_was_chosen():
    assert read(
        "a:1:2 [0] NCCL INFO Channel 0 : 0 -> 1 via NET/Socket/0\na:1:2 [0] NCCL INFO Using network IB"
    ).kind == ("Socket")


def test_a_word_of_nccl_in_passing_is_no_fault():
    assert classify("a:1:2 [0] NCCL INFO socket: Connection reset by peer, Address already in use, retrying") == Plain()


def test_a_line_of_others_says_nothing():
    assert heard(NOTHING_SAID, "Using network Socket") == NOTHING_SAID


@pytest.mark.parametrize(
    ("transport", "hca", "gid", "told"),
    [
        (RDMA, "rocep1s0f1,roceP2p1s0f1", 3, ()),
        (RDMA, "=rocep1s0f1:1,roceP2p1s0f1:1", None, ()),
        (RDMA, "", None, ()),
        (NOTHING_SAID, "rocep1s0f1", 3, ()),
        (None, "rocep1s0f1", 3, ()),
        (RDMA, "rocep1s0f1,roceP2p1s0f1", 4, ("NCCL connected with GID 3, and 4 was planned",)),
        (RDMA, "rocep1s0f1", 3, ("NCCL uses roceP2p1s0f1:1, which rocep1s0f1 does not name",)),
        (Transport("IB", TWINS[:1]), "rocep1s0f1,roceP2p1s0f1", None, ("NCCL leaves out roceP2p1s0f1",)),
        (
            SOCKETS,
            "rocep1s0f1",
            3,
            ("NCCL fell back to sockets on eno1, though RDMA over rocep1s0f1 was planned: far slower",),
        ),
        (SOCKETS, "", None, ("NCCL's sockets are on eno1, not on eth9",)),
        (Transport("Socket", ("eth9",)), "", None, ()),
        (Transport("Socket"), "", None, ()),
    ],
)
def test_what_is_not_as_planned(transport, hca, gid, told):
    assert differences(transport, hca, gid, "eth9") == told


def test_another_plugin_is_named():
    assert described(Transport("AWS")) == "the network plugin AWS"
