"""`status` for a person: 80 columns, 120 columns, a pipe, and one line per change."""

from dataclasses import replace

import pytest

from cluster.model.deployment import State
from cluster.model.events import NodeStatus, RankStatus, StatusReport
from cluster.report.layout import cells, paint
from cluster.report.status import status_lines, watch_line

GIB = 2**30
NODES = (NodeStatus("spark-a", True, 120 * GIB, 12 * GIB), NodeStatus("spark-b", True, 120 * GIB, 512 * 2**20))
RANKS = (
    RankStatus(0, "spark-a", "running", "", 41234, 4, 101 * GIB, "2026-11-30T15:36:00.000Z"),
    RankStatus(1, "spark-b", "running", "", 3345, 2, 100 * GIB, "2026-11-30T17:39:28.000Z"),
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


def test_a_serving_deployment_in_80_columns():
    assert text(SERVING, 80) == [
        "demo is serving   boot 20261130T173000Z-3f9a",
        "  http://10.77.0.1:8888/v1   model demo-mul",
        "  health 200   completion 0.21 s   running 1   waiting 0   tokens 1 234 567",
        "",
        "  RANK  NODE     STATE    FOR        PROCS  MEMORY     FREE ON NODE",
        "  0     spark-a  running  2 h 4 min  4      101.0 GiB  12.0 of 120.0 GiB",
        "  1     spark-b  running  32 s       2      100.0 GiB  512.0 MiB of 120.0 GiB",
    ]


def test_there_is_room_for_pids_in_120_columns():
    assert text(SERVING, 120)[-2:] == [
        "  0     spark-a  running  2 h 4 min  4      101.0 GiB  12.0 of 120.0 GiB       41234",
        "  1     spark-b  running  32 s       2      100.0 GiB  512.0 MiB of 120.0 GiB  3345",
    ]


def test_a_degraded_deployment_says_why_and_shows_last_words():
    assert text(DEAD, 80) == [
        "demo is degraded   boot 20261130T173000Z-3f9a",
        "  http://10.77.0.1:8888/v1   model demo-mul",
        "  because rank 1 ended with exit code 0",
        "          /health still answers 200",
        "  health 200   completion 0.21 s   running 1   waiting 0   tokens 1 234 567",
        "  locked  by ana: start",
        "",
        "  RANK  NODE     STATE    FOR        PROCS  MEMORY     FREE ON NODE",
        "  0     spark-a  running  2 h 4 min  4      101.0 GiB  12.0 of 120.0 GiB",
        "  1     spark-b  exited                                512.0 MiB of 120.0 GiB",
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
        "  RANK  NODE     STATE    FOR        PROCS  MEMORY     FREE ON NODE",
        "  0     spark-a  running  2 h 4 min  4      101.0 GiB  12.0 of 120.0 GiB",
        "  1     spark-b  unknown",
        "",
        "  spark-b does not answer: no route to host",
    ]


def test_an_absent_deployment_still_shows_the_memory_of_its_nodes():
    assert text(ABSENT, 80) == [
        "demo is absent",
        "  because no rank runs",
        "",
        "  RANK  NODE     STATE    FREE ON NODE",
        "  -     spark-a  no rank  12.0 of 120.0 GiB",
        "  -     spark-b  no rank  512.0 MiB of 120.0 GiB",
    ]


@pytest.mark.parametrize("report", [SERVING, DEAD, AWAY, ABSENT], ids=lambda report: report.state.value)
@pytest.mark.parametrize("width", [80, 100, 120])
def test_every_state_fits_its_terminal(report, width):
    assert max(cells(one) for one in text(report, width)) <= width


@pytest.mark.parametrize("since", ["", "yesterday", "2026-11-30T17:50:00.000Z", "2026-11-30T17:30:00"])
def test_a_start_that_makes_no_sense_gives_no_age(since):
    report = replace(SERVING, ranks=(RankStatus(0, "spark-a", "running", since=since),), nodes=())
    assert text(report, 80)[-2:] == ["  RANK  NODE     STATE", "  0     spark-a  running"]


def test_one_line_says_what_a_person_acts_on():
    assert [watch_line(one) for one in (SERVING, DEAD, AWAY, ABSENT)] == [
        "demo serving; rank 0 running, rank 1 running",
        "demo degraded; rank 0 running, rank 1 exited; rank 1 ended with exit code 0; locked: by ana: start",
        "demo cannot-tell; rank 0 running, rank 1 unknown; spark-b does not answer; spark-b does not answer",
        "demo absent; no rank runs",
    ]
