"""Which reporter is chosen, and what each stream gets."""

import io
import json

import pytest

from cluster.model.events import Failed, Finding, LogLine, Served, Severity, StageStarted, StatusReport
from cluster.report import Redactor, make_reporter
from tests.fakes.events import filled

SERVED = Served("demo", "b", "http://a:1/v1", "m", (), "")
REFUSED = Failed("Refused", "1 check refuses", "", ("a: port 8888 is held", "and more"), "", 4)
HELD = Finding("PORT", Severity.REFUSAL, "a", "port 8888 is held")


def streams(*events, redactor=None, **choice):
    """What stdout and stderr get."""
    options = {"json": False, "quiet": False, "verbose": 0, "color": True} | choice
    out, err = io.StringIO(), io.StringIO()
    with make_reporter(**options, out=out, err=err, redactor=redactor, environ={"TERM": "xterm"}) as report:
        for event in events:
            report(event)
    return out.getvalue(), err.getvalue()


def test_what_goes_on_is_on_stderr_and_results_are_on_stdout():
    assert streams(StageStarted("load"), SERVED) == ("serving m at http://a:1/v1\n", "load\n")


def test_programs_get_everything_on_stdout():
    out, err = streams(StageStarted("load"), REFUSED, json=True)
    assert ([json.loads(one)["event"] for one in out.splitlines()], err) == (["stage-started", "failed"], "")


def test_quiet_leaves_results_and_errors():
    out, err = streams(StageStarted("load"), SERVED, REFUSED, quiet=True)
    assert (out, err) == (
        "serving m at http://a:1/v1\n",
        "error: 1 check refuses\n  seen    a: port 8888 is held\n          and more\n",
    )


def test_a_refusal_does_not_repeat_the_findings_above_it():
    out, err = streams(HELD, REFUSED)
    assert (out, err) == (
        "",
        "  refused  a  PORT  port 8888 is held\nerror: 1 check refuses\n  seen    and more\n",
    )


def test_an_exception_still_shows_what_the_checks_found():
    err = io.StringIO()

    def interrupted() -> None:
        with make_reporter(json=False, quiet=False, verbose=0, color=True, out=err, err=err) as report:
            report(HELD)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert err.getvalue() == "  refused  a  PORT  port 8888 is held\n"


def test_watching_through_a_pipe_writes_one_line_per_look():
    look = filled(StatusReport, "x")
    assert streams(look, look, watch=True)[0].count("\n") == 1


def test_foreign_text_is_made_harmless_before_it_is_masked():
    line = LogLine(0, "a", "", "key-\x1b[31m12\x1b[0m34")
    assert streams(line, redactor=Redactor("key-1234"))[0] == " a r0 | ***\n"
