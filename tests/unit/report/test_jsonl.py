"""One JSON object per line, whole and masked."""

import io
import json
from datetime import UTC, datetime

from cluster.model.events import LogLine
from cluster.report.jsonl import JsonLines
from cluster.report.redact import Redactor


class Flushed(io.StringIO):
    """Remembers what a reader could have read."""

    seen = ""

    def flush(self):
        self.seen = self.getvalue()


def test_each_line_is_an_object_that_is_there_at_once():
    out = Flushed()
    at = datetime(2026, 11, 30, 17, 31, 2, 5000, tzinfo=UTC)
    with JsonLines(out, Redactor("key-1234"), clock=lambda: at) as report:
        report(LogLine(1, "b", "2026-11-30T17:31:01.000Z", "a\nb \x1b[31m日 key-1234 \udc80"))
    assert out.seen.count("\n") == 1
    assert out.seen.isascii()
    assert json.loads(out.seen) == {
        "schema": "sparkctl/1",
        "event": "log-line",
        "time": "2026-11-30T17:31:02.005Z",
        "rank": 1,
        "node": "b",
        "at": "2026-11-30T17:31:01.000Z",
        "text": "a\nb \x1b[31m日 *** \ufffd",
    }
