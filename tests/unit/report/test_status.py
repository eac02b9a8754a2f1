"""`status` for a person: 80 columns, 120 columns, a pipe, and one line per change."""

from dataclasses import replace

import pytest

from cluster.model.deployment import State
from cluster.model.events import NodeStatus, RankStatus, StatusReport
from cluster.model.status import FabricStatus
from cluster.report.layout import cells, paint
from cluster.report.status import status_lines, watch_line

GIB = 2**30
TWINS = ("rocep1s0f1:1", "roceP2p1s0f1:1")
WIRED = FabricStatus("10.40.0.1", "enp1s0f1np1", True, 200_000, 9000, TWINS, 2, 0, 0, 1.5 * GIB, 2.5e6)
NODES = (
    NodeStatus("spark-a", True, 120 * GIB, 12 * GIB, "", 9 * GIB, 3 * GIB, 0, WIRED),
    NodeStatus("spark-b", True, 120 * GIB, 512 * 2**20, "", 2**20, 500 * 2**20, GIB, replace(WIRED, in_rate=2.5e6)),
)
SAID = "RDMA over rocep1s0f1:1, GID 3, no GPU direct"
RANKS = (
    RankStatus(0, "spark-a", "running", "", 41234, 4, 101 * GIB, "2026-11-30T15:36:00.000Z", SAID),
    RankStatus(1, "spark-b", "running", "", 3345, 2, 100 * GIB, "2026-11-30T17:39:28.000Z", SAID),
)
SERVING = StatusReport(
    "demo", State.SERVING, "20261130T173000Z-3f9a", "http://10.77.0.1:8888/v1", RANKS, NODES, ("all well",),
    "demo-mul", "200", "0.21 s", 1.0, 0.0, 1234567.0, "", "2026-11-30T17:40:00.000Z",
)  # fmt: skip
DEAD = replace(
    SERVING,
    state=State.DEGRADED,
    reasons=("rank 1 ended with exit code 0", "/health still answers 200"),
    ranks=(RANKS[0], RankStatus(1, "spark-b", "exited", "exit code 0; " + "last words " * 8)),
    lock="by ana: start",
)
UNPLUGGED = "enp1s0f1np1 has no carrier: the cable is out, or the other end is down"
CUT = replace(
    SERVING,
    state=State.HUNG,
    reasons=(f"the fabric is cut: {UNPLUGGED} (on spark-a)",),
    nodes=(
        replace(NODES[0], fabric=replace(WIRED, up=False, mbps=None, rdma_active=0, problem=UNPLUGGED)),
        NODES[1],
    ),
)
AWAY = replace(
    SERVING,
    state=State.CANNOT_TELL,
    reasons=("spark-b does not answer",),
    ranks=(RANKS[0], RankStatus(1, "spark-b", "unknown")),
    nodes=(NODES[0], NodeStatus("spark-b", False, detail="no route to host")),
    generated=float("nan"),
)
ABSENT = StatusReport("demo", State.ABSENT, "", "", (), NODES, ("no rank runs",))


def text(report, width):
    return [paint(one, color=False) for one in status_lines(report, width)]


MEMORY = [
    "  NODE     AVAILABLE               FREE     CACHE      SWAP IN USE",
    "  spark-a  12.0 of 120.0 GiB       9.0 GiB  3.0 GiB    0 B",
    "  spark-b  512.0 MiB of 120.0 GiB  1.0 MiB  500.0 MiB  1.0 GiB",
]
FABRIC = [
    "  FABRIC   INTERFACE    LINK      MTU   RDMA       NCCL  IN         OUT",
    "  spark-a  enp1s0f1np1  200 Gb/s  9000  2 of 2 up  RDMA  1.5 GiB/s  2.4 MiB/s",
    "  spark-b  enp1s0f1np1  200 Gb/s  9000  2 of 2 up  RDMA  2.4 MiB/s  2.4 MiB/s",
]


def test_a_serving_deployment_in_80_columns():
    assert text(SERVING, 80) == [
        "demo is serving   boot 20261130T173000Z-3f9a",
        "  http://10.77.0.1:8888/v1   model demo-mul",
        "  health 200   completion 0.21 s   running 1   waiting 0   tokens 1 234 567",
        "",
        "  RANK  NODE     STATE    FOR        PROCS  MEMORY",
        "  0     spark-a  running  2 h 4 min  4      101.0 GiB",
        "  1     spark-b  running  32 s       2      100.0 GiB",
        "",
        *MEMORY,
        "",
        *FABRIC,
    ]


def test_there_is_room_for_pids_and_for_what_nccl_said_in_120_columns():
    said = text(SERVING, 120)
    assert said[5:7] == [
        "  0     spark-a  running  2 h 4 min  4      101.0 GiB  41234",
        "  1     spark-b  running  32 s       2      100.0 GiB  3345",
    ]
    assert "2 of 2 up  RDMA over rocep1s0f1:1, GID 3, no GPU direct  1.5 GiB/s  2.4 MiB/s" in said[-2]


def test_nothing_is_left_out_in_a_pipe():
    assert "rocep1s0f1:1, roceP2p1s0f1:1: 2 of 2 up" in text(SERVING, None)[-1]


def test_a_cut_fabric_is_told_once_and_shown_in_its_table():
    said = text(CUT, 80)
    assert said[2:4] == [
        "  because the fabric is cut: enp1s0f1np1 has no carrier: the cable is out, or",
        "          the other end is down (on spark-a)",
    ]
    assert said[-2] == "  spark-a  enp1s0f1np1  no carrier  9000  0 of 2 up  RDMA  1.5 GiB/s  2.4 MiB/s"
    assert text(replace(CUT, state=State.SERVING, reasons=()), 80)[-1] == f"  spark-a {UNPLUGGED}"


def test_a_degraded_deployment_says_why_and_shows_last_words():
    assert text(DEAD, 80) == [
        "demo is degraded   boot 20261130T173000Z-3f9a",
        "  http://10.77.0.1:8888/v1   model demo-mul",
        "  because rank 1 ended with exit code 0",
        "          /health still answers 200",
        "  health 200   completion 0.21 s   running 1   waiting 0   tokens 1 234 567",
        "  locked  by ana: start",
        "",
        "  RANK  NODE     STATE    FOR        PROCS  MEMORY",
        "  0     spark-a  running  2 h 4 min  4      101.0 GiB",
        "  1     spark-b  exited",
        "",
        *MEMORY,
        "",
        FABRIC[0],
        FABRIC[1],
        FABRIC[2].replace("RDMA", "    "),
        "",
        "  rank 1  exit code 0; last words last words last words last words last words",
        "          last words last words last words",
    ]


def test_a_node_that_does_not_answer_is_not_called_dead():
    assert text(AWAY, 80) == [
        "demo: cannot tell   boot 20261130T173000Z-3f9a",
        "  http://10.77.0.1:8888/v1   model demo-mul",
        "  because spark-b does not answer",
        "  health 200   completion 0.21 s   running 1   waiting 0",
        "",
        "  RANK  NODE     STATE    FOR        PROCS  MEMORY",
        "  0     spark-a  running  2 h 4 min  4      101.0 GiB",
        "  1     spark-b  unknown",
        "",
        "  NODE     AVAILABLE          FREE     CACHE    SWAP IN USE",
        "  spark-a  12.0 of 120.0 GiB  9.0 GiB  3.0 GiB  0 B",
        "  spark-b  no answer",
        "",
        *FABRIC[:2],
        "",
        "  spark-b does not answer: no route to host",
    ]


def test_an_absent_deployment_still_shows_its_nodes():
    assert text(ABSENT, 80) == [
        "demo is absent",
        "  because no rank runs",
        "",
        *MEMORY,
        "",
        *(
            line.replace("  NCCL", "").replace("  RDMA  ", "  ") if at else line.replace("  NCCL", "")
            for at, line in enumerate(FABRIC)
        ),
    ]


@pytest.mark.parametrize("report", [SERVING, CUT, DEAD, AWAY, ABSENT], ids=lambda report: report.state.value)
@pytest.mark.parametrize("width", [80, 100, 120])
def test_every_state_fits_its_terminal(report, width):
    assert max(cells(one) for one in text(report, width)) <= width


@pytest.mark.parametrize("since", ["", "yesterday", "2026-11-30T17:50:00.000Z", "2026-11-30T17:30:00"])
def test_a_start_that_makes_no_sense_gives_no_age(since):
    report = replace(SERVING, ranks=(RankStatus(0, "spark-a", "running", since=since),), nodes=())
    assert text(report, 80)[-2:] == ["  RANK  NODE     STATE", "  0     spark-a  running"]


def test_one_line_tells_of_a_cut_fabric_once():
    ranks = "rank 0 running, rank 1 running"
    assert watch_line(CUT) == f"demo hung; {ranks}; the fabric is cut: {UNPLUGGED} (on spark-a)"
    assert watch_line(replace(CUT, state=State.SERVING, reasons=())) == f"demo serving; {ranks}; spark-a: {UNPLUGGED}"


def test_one_line_says_what_a_person_acts_on():
    assert [watch_line(one) for one in (SERVING, DEAD, AWAY, ABSENT)] == [
        "demo serving; rank 0 running, rank 1 running",
        "demo degraded; rank 0 running, rank 1 exited; rank 1 ended with exit code 0; locked: by ana: start",
        "demo cannot-tell; rank 0 running, rank 1 unknown; spark-b does not answer; spark-b does not answer",
        "demo absent; no rank runs",
    ]
