"""Plain lines: nothing moves, nothing is said twice, and not more often than a reader wants."""

import io

from cluster.model.deployment import State
from cluster.model.events import (
    Finding,
    Progress,
    Severity,
    StageEnded,
    StageStarted,
    StatusReport,
    StepStarted,
    Told,
)
from cluster.report.layout import Span, Tone, line
from cluster.report.plain import QUIET, Page, PlainProgress, PlainWatch


def said(*events, verbosity=0):
    """What is written for events, each with the second it happens at."""
    stream = io.StringIO()
    seconds = iter([now for now, event in events if isinstance(event, Progress)])
    progress = PlainProgress(Page(stream), verbosity, clock=lambda: next(seconds))
    for _, event in events:
        progress.show(event)
    progress.settle()
    return stream.getvalue().splitlines()


def part(done, **more):
    return Progress("load", "a", done, 100, "shards", text="loading weights", **more)


def test_a_stage_is_a_line_at_its_beginning_and_end():
    assert said((0, StageStarted("connect", ("a", "b"))), (0, StageEnded("connect", 0.41, True))) == [
        "connect on a, b",
        "connect done in 0.4 s",
    ]


def test_steps_and_their_commands_are_for_the_verbose():
    step = StepStarted("launch", "b", "starting rank 1", "vllm serve")
    assert (said((0, step)), said((0, step), verbosity=1)) == ([], ["  b: starting rank 1", "    $ vllm serve"])


def test_progress_is_said_every_ten_seconds():
    lines = said(*((second, part(second / 10)) for second in range(25)))
    assert lines == [
        "load: a: loading weights, 0 of 100 shards (0 %)",
        "load: a: loading weights, 1 of 100 shards (1 %)",
        "load: a: loading weights, 2 of 100 shards (2 %)",
    ]


def test_progress_is_said_every_twentieth_but_not_twice_a_second():
    lines = said((0, part(0)), (0.5, part(6)), (1.2, part(7)), (2.4, part(9)), (3.6, part(13)))
    assert lines == [
        "load: a: loading weights, 0 of 100 shards (0 %)",
        "load: a: loading weights, 7 of 100 shards (7 %)",
        "load: a: loading weights, 13 of 100 shards (13 %)",
    ]


def test_a_new_phase_is_said_at_once_but_a_new_number_in_it_is_not():
    texts = ("shard 1 of 9", "shard 2 of 9", "capturing graphs")
    assert said(*((0.1 * at, Progress("load", "a", 0, None, "", text=text)) for at, text in enumerate(texts))) == [
        "load: a: shard 1 of 9",
        "load: a: capturing graphs",
    ]


def test_each_rank_on_one_node_is_its_own():
    assert said((0, part(1, rank=0)), (0, part(1, rank=1))) == [
        "load: a rank 0: loading weights, 1 of 100 shards (1 %)",
        "load: a rank 1: loading weights, 1 of 100 shards (1 %)",
    ]


def test_a_heartbeat_is_said_every_half_minute():
    lines = said((0, part(1)), *((second, part(1, heartbeat=True)) for second in range(5, 70, 5)))
    assert lines == [
        "load: a: loading weights, 1 of 100 shards (1 %)",
        "load: a: loading weights, 1 of 100 shards (1 %), nothing new, still watching",
        "load: a: loading weights, 1 of 100 shards (1 %), nothing new, still watching",
    ]


CHECKS = (
    (0, Finding("SSH", Severity.OK, "a", "logged in")),
    (0, Finding("PORT", Severity.REFUSAL, "a", "held")),
    (0, Finding("CLOCK", Severity.WARNING, "b", "late")),
    (0, StageEnded("preflight", 1.2, False)),
)


def test_findings_stand_under_the_end_of_their_stage():
    assert said(*CHECKS) == [
        "preflight failed after 1.2 s: 1 refused, 1 warning, 1 ok",
        "  refused  a  PORT   held",
        "  warning  b  CLOCK  late",
    ]


def test_the_verbose_see_what_passed_too():
    assert said(*CHECKS, verbosity=1)[-1] == "  ok       a  SSH    logged in"


def test_quiet_leaves_what_stops_the_verb():
    told = (0, Told(Severity.WARNING, "the clock is late"))
    assert said((0, StageStarted("preflight", ("a",))), told, (0, part(1)), *CHECKS, verbosity=QUIET) == [
        "  refused  a  PORT  held"
    ]


def test_findings_of_a_stage_that_never_ended_are_shown_in_the_end():
    assert said(*CHECKS[:2]) == ["  refused  a  PORT  held"]


def look(state, at):
    return StatusReport("demo", state, "", "", (), (), (), at=at)


def test_watching_writes_a_line_only_when_something_changed():
    stream = io.StringIO()
    watch = PlainWatch(Page(stream))
    for at, state in enumerate((State.LOADING, State.LOADING, State.SERVING, State.SERVING)):
        watch.show(look(state, f"17:00:0{at}"))
    assert stream.getvalue().splitlines() == ["17:00:00 demo loading", "17:00:02 demo serving"]


def test_a_simple_encoding_gets_simple_signs():
    raw = io.BytesIO()
    page = Page(io.TextIOWrapper(raw, encoding="ascii"), color=True)
    page.write([line("└ ", Span("日…", Tone.BAD))])
    assert raw.getvalue() == b"` \x1b[1;31m\\u65e5...\x1b[0m\n"


def test_a_stream_that_is_no_terminal_has_no_width():
    assert Page(io.StringIO()).width is None
