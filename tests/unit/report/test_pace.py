"""What a person sees of a server's pace."""

from dataclasses import replace

from cluster.model.pace import ChatBenchReport, Spread
from cluster.report.pace import pace_lines

FIRST, BETWEEN = Spread(120.0, 180.4, 190.0, 130.0), Spread(8.0, 9.0, 12.0, 8.25)
REPORT = ChatBenchReport(
    "demo", "http://127.0.0.1:8888", "demo", 1, 12, 12, 300, 1536, True, 96.0, 16.0, 17.45, FIRST, BETWEEN
)


def words(report) -> list[str]:
    return [" ".join("".join(span.text for span in line).split()) for line in pace_lines(report, None)]


def test_pace_and_waiting_are_told():
    assert words(REPORT) == [
        "demo at http://127.0.0.1:8888 12 of 12 questions answered, 1 at a time",
        "pace 16.0 a second (llmkube-bench: 17.4, counted from the first answer): 1536 tokens in 96 s",
        "first token p50 120 ms, p95 180 ms, p99 190 ms, mean 130.0 ms",
        "between pieces p50 8 ms, p95 9 ms, p99 12 ms, mean 8.2 ms",
    ]


def test_what_failed_and_what_was_not_counted_is_told():
    report = replace(
        REPORT, answered=0, new_tokens=7, counted=False, llmkube_tps=None, first_token=None, between_pieces=None,
        errors=("HTTP 503: not ready",),
    )  # fmt: skip
    assert words(report) == [
        "demo at http://127.0.0.1:8888 0 of 12 questions answered, 1 at a time",
        "pace 16.0 a second: 7 pieces, for the server counts no tokens, in 96 s",
        "failed HTTP 503: not ready",
    ]
