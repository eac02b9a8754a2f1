"""How far, how fast, how long; and the table of findings."""

import pytest

from cluster.model.events import Bound, Finding, Progress, Severity, StageEnded, Told
from cluster.report.layout import Span, paint
from cluster.report.progress import Findings, ended_lines, progress_text, told_lines, whole_seconds

GIB = 2**30


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (
            Progress("load", "a", 41.2 * GIB, 99.5 * GIB, "bytes", rate=2 * GIB, text="loading weights", rank=0),
            "a rank 0: loading weights, 41.2 of 99.5 GiB (41 %), 2.0 GiB/s, 29 s left",
        ),
        (Progress("load", "a", 512 * 2**20, 2 * GIB, "bytes"), "a: 512.0 MiB of 2.0 GiB (25 %)"),
        (Progress("load", "a", 3, 48, "shards", bound=Bound.UPPER), "a: 3 of at most 48 shards (6 %)"),
        (Progress("load", "a", 12, None, "files", rate=0.5), "a: 12 files, 0.5 files/s"),
        (Progress("load", "a", 0, None, "", text="importing vLLM"), "a: importing vLLM"),
        (Progress("load", "", 0, None, "", text="waiting", heartbeat=True), "waiting, nothing new, still watching"),
        (Progress("load", "a", 50, 48, "shards", rate=1), "a: 50 of 48 shards (100 %), 1 shards/s"),
        (Progress("load", "a", 0, 0, "shards"), "a: 0 of 0 shards"),
    ],
)
def test_progress_is_one_sentence(progress, text):
    assert progress_text(progress) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0 s"), (9.7, "10 s"), (72.4, "72 s"), (119.8, "2 min")])
def test_running_time_has_no_tenths(seconds, text):
    assert whole_seconds(seconds) == text


FINDINGS = (
    Finding("SSH.LOGIN", Severity.OK, "a", "logged in", "a login", "nothing"),
    Finding("CLOCK", Severity.NOTE, "b", "0.3 s apart"),
    Finding("PORT.FREE", Severity.REFUSAL, "a", "held by python3", "free", "sparkctl start --port 8889"),
)


def table(shown, width=None):
    findings = Findings()
    for one in FINDINGS:
        findings.add(one)
    counts = findings.counts()
    return counts, [paint(one, color=False) for one in findings.take(frozenset(shown), width)], findings.counts()


def test_findings_are_shown_worst_first_and_those_that_passed_are_counted():
    assert table(set(Severity) - {Severity.OK}) == (
        "1 refused, 1 note, 1 ok",
        [
            "  refused  a  PORT.FREE  held by python3; expected free",
            "              try        sparkctl start --port 8889",
            "  note     b  CLOCK      0.3 s apart",
        ],
        "",
    )


def test_a_passed_check_is_shown_without_what_to_do():
    assert table({Severity.OK})[1] == ["  ok  a  SSH.LOGIN  logged in"]


def test_a_stage_ends_with_what_it_took_and_found():
    lines = ended_lines(StageEnded("preflight", 1.24, False, "nothing was changed"), "1 refused", None, Span("✗ "))
    assert [paint(one, color=False) for one in lines] == [
        "✗ preflight failed after 1.2 s: nothing was changed, 1 refused"
    ]


def test_what_is_told_names_its_node():
    lines = told_lines(Told(Severity.WARNING, "the clock is late", "spark-b"), None)
    assert [paint(one, color=False) for one in lines] == ["warning: spark-b: the clock is late"]
