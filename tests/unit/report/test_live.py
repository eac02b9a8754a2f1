"""The live display at one moment."""

from cluster.model.events import Bound, Progress, StageStarted, StepStarted
from cluster.report.layout import cells, paint
from cluster.report.live import advanced, began, live_lines, looked

GIB = 2**30


def text(running, now, width=80):
    return [paint(one, color=False) for one in live_lines((running,), now, width)]


def after(*events):
    """A stage on two nodes that began at 0, and events at their seconds."""
    running = began(StageStarted("load", ("spark-a", "spark-b")), 0.0)
    for now, event in events:
        running = advanced(running, event, now)
    return running


def phase(node, rank, said, **more):
    return Progress("load", node, 0, None, "", text=said, rank=rank, **more)


def test_nodes_that_have_nothing_to_say_take_no_room():
    assert text(after(), 1.0) == ["⠇ load  1 s"]


def test_a_step_shows_what_is_done_where():
    assert text(after((1.0, StepStarted("load", "spark-b", "starting rank 1"))), 3.0)[1:] == [
        "    spark-b  starting rank 1  2 s"
    ]


def test_the_phase_of_each_rank_has_its_own_time():
    running = after((0, phase("spark-a", 0, "importing vLLM")), (2, phase("spark-b", 1, "importing vLLM")))
    running = advanced(running, phase("spark-a", 0, "waiting for rank 1"), 12.0)
    assert text(running, 14.0)[1:] == [
        "    spark-a rank 0  waiting for rank 1  2 s",
        "    spark-b rank 1  importing vLLM      12 s",
    ]


def test_quiet_time_grows_through_heartbeats():
    running = after((0, phase("spark-a", 0, "waiting for rank 1")))
    running = advanced(running, phase("spark-a", 0, "", heartbeat=True), 40.0)
    assert text(running, 41.0)[1:] == ["    spark-a rank 0  waiting for rank 1  nothing new for 41 s"]


WEIGHTS = Progress("load", "spark-a", 50 * GIB, 100 * GIB, "bytes", rate=2 * GIB, text="loading weights", rank=0)


def test_a_bar_shows_how_far_where_the_end_is_known():
    assert text(after((0, WEIGHTS)), 1.0)[1:] == [
        "    spark-a rank 0  loading weights  ━━━━━─────  50.0 of 100.0 GiB  25 s left"
    ]


def test_a_wide_terminal_shows_the_rate():
    assert text(after((0, WEIGHTS)), 1.0, 120)[1:] == [
        "    spark-a rank 0  loading weights  ━━━━━━━━━━━━────────────  50.0 of 100.0 GiB  2.0 GiB/s  25 s left"
    ]


def test_the_bar_gives_way_to_the_words():
    most = Progress(
        "load", "spark-b", 1, 48, "shards", Bound.UPPER, 0.7, text="loading weights (model-00003-of-00048)", rank=1
    )
    assert text(after((0, WEIGHTS), (0, most)), 1.0)[1:] == [
        "    spark-a rank 0  loading weights           50.0 of 100.0 GiB  25 s left",
        "    spark-b rank 1  loading weights (model-…  1 of at most 48 shards  67 s left",
    ]


def test_every_line_fits_a_narrow_terminal():
    long = Progress("load", "a-node-with-a-long-name", 1, 480, "shards", text="words " * 20, rate=1, rank=10)
    assert max(cells(one) for one in text(after((0, WEIGHTS), (0, long)), 1.0)) <= 80


def test_a_stage_that_nobody_announced_appears_with_its_progress():
    running = advanced(began(StageStarted("load"), 0.0), Progress("load", "", 1, 4, "files"), 0.0)
    assert text(running, 0.0)[1:] == ["    load    ━━────────  1 of 4 files  0 s"]


def test_a_picture_that_gets_old_says_so():
    at = "2026-11-30T17:40:00.000Z"
    assert [paint(looked(at, age), color=False) for age in (0.5, 72.2)] == [
        "looked at 17:40:00; Ctrl-C ends watching",
        "looked at 17:40:00, 72 s ago; Ctrl-C ends watching",
    ]
