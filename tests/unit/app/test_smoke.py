"""`smoke`: what counts as the right answer."""

import json
from dataclasses import replace

import pytest

from cluster.app.receipts import as_started, write_receipt
from cluster.app.smoke import Wanted, smoke
from cluster.errors import SettingsError, StepFailed, Unreachable
from cluster.model.events import SmokeCheck, SmokeReport
from cluster.model.receipt import Receipt
from cluster.model.settings import Serve
from cluster.node.base import Result
from tests.fakes.cluster import FakeCluster


def answered(cluster: FakeCluster, **reply) -> SmokeReport:
    cluster["spark-a"].reply = reply
    return smoke(cluster.settings, cluster.open)


def test_the_right_answer_is_told_with_its_times(cluster):
    assert answered(cluster) == SmokeReport(
        "demo",
        "http://10.40.0.1:8888",
        "demo",
        True,
        (SmokeCheck("17*19", True, 0.25, "answered “323” (2 tokens, first token after 0.10 s)"),),
    )


@pytest.mark.parametrize("text", ["323", " 323\n", "The answer is 323.", "17*19=323"])
def test_the_number_may_stand_in_a_sentence(cluster, text):
    assert answered(cluster, text=text).ok


@pytest.mark.parametrize("text", ["", "322", "1323", "3230", "32 3"])
def test_another_number_is_wrong(cluster, text):
    assert not answered(cluster, text=text).ok


def test_an_error_of_the_server_is_shown(cluster):
    report = answered(cluster, status=500, text="", error="EngineDeadError", usage=None, first_token=None)
    assert (report.ok, report.checks[0].detail) == (False, "HTTP 500: EngineDeadError")


def test_a_server_that_is_not_there_is_told(cluster):
    report = answered(cluster, status=None, text="", error="Connection refused", usage=None, first_token=None)
    assert (report.ok, report.checks[0].detail) == (False, "Connection refused")


def test_a_long_answer_is_cut(cluster):
    detail = answered(cluster, text="no " * 100).checks[0].detail
    assert len(detail) < 140


def test_only_the_head_is_needed_to_ask(cluster):
    cluster["spark-b"].go()
    assert answered(cluster).ok


def test_without_the_head_it_cannot_ask(cluster):
    cluster["spark-a"].go()
    with pytest.raises(Unreachable):
        answered(cluster)


def test_a_program_that_fails_on_the_head_is_an_error(cluster):
    cluster["spark-a"].fails["chat"] = Result(1, b"", b"PermissionError: /etc/key")
    with pytest.raises(StepFailed) as caught:
        answered(cluster)
    assert caught.value.evidence == ("PermissionError: /etc/key",)


def test_the_key_stays_in_its_file(cluster):
    serve = replace(Serve(), model="/m", served_model_name="demo", api_key_file="~/key")
    smoke(replace(cluster.settings, serve=serve), cluster.open)
    assert '"key_file":"~/key"' in cluster["spark-a"].commands[-1].argv[-1]


def asked_with(cluster: FakeCluster, wanted: Wanted, **reply) -> dict[str, bool]:
    cluster["spark-a"].reply = reply
    return {one.name: one.ok for one in smoke(cluster.settings, cluster.open, wanted).checks}


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        ('{"language":"Python","answer":323,"valid":true}', True),
        ('{"answer": 323, "valid": true, "language": "Python"}', True),
        ('{"language":"Python","answer":"323","valid":true}', False),
        ('{"language":"Python","answer":323,"valid":true} ok', False),
        ("323", False),
    ],
)
def test_a_strict_answer_has_every_prescribed_value_and_nothing_else(cluster, text, ok):
    assert asked_with(cluster, Wanted(schema=True), text=text)["strict schema"] is ok


@pytest.mark.parametrize(
    ("reply", "off", "on"),
    [
        ({"text": "323", "reasoning": ""}, True, False),
        ({"text": "323", "reasoning": "17*20 is 340"}, False, True),
        ({"text": "hm </think> 323", "reasoning": ""}, False, False),
        ({"text": "322", "reasoning": ""}, False, False),
    ],
)
def test_thoughts_come_apart_when_on_and_not_at_all_when_off(cluster, reply, off, on):
    found = asked_with(cluster, Wanted(thinking=True), **reply)
    assert (found["thinking off"], found["thinking on"]) == (off, on)


def test_thinking_is_asked_for_under_both_names(cluster):
    asked_with(cluster, Wanted(thinking=True))
    said = [one.argv[-1] for one in cluster["spark-a"].commands if '"chat_template_kwargs"' in one.argv[-1]]
    assert [one.count('"enable_thinking":true,"thinking":true') for one in said] == [0, 0, 1]


def test_a_needle_is_hidden_at_every_depth_each_time_with_another_phrase_and_beginning(cluster):
    asked_with(cluster, Wanted(needle=500, depths=(10, 90)))
    wants = [json.loads(one.argv[-1]) for one in cluster["spark-a"].commands if '"needle"' in one.argv[-1]]
    needles = [one["needle"] for one in wants]
    assert [(one["tokens"], one["depth"]) for one in needles] == [(500, 10), (500, 90)]
    assert len({one["seed"] for one in needles}) == len({one["phrase"] for one in needles}) == 2


def test_a_missing_phrase_a_cached_prompt_and_another_length_are_told(cluster):
    usage = {"prompt_tokens": 499, "prompt_tokens_details": {"cached_tokens": 64}}
    cluster["spark-a"].reply = {"text": "blue", "finish": "length", "usage": usage}
    needle = smoke(cluster.settings, cluster.open, Wanted(needle=500)).checks[1]
    told = "the phrase is missing; it ended by length; 64 tokens came from the cache; 499 tokens were read"
    assert (needle.name, needle.ok, needle.detail.startswith(told)) == ("needle at 50 % of 500", False, True)


def test_a_needle_that_does_not_fit_the_context_is_refused_before_anything_is_asked(cluster):
    settings = replace(cluster.settings, serve=replace(cluster.settings.serve, max_model_len=1024))
    with pytest.raises(SettingsError, match="do not fit MAX_MODEL_LEN=1024"):
        smoke(settings, cluster.open, Wanted(needle=1000))
    assert cluster["spark-a"].commands == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("A red circle, a blue square, and SPARK.", ""),
        ("A Red circle and the word Spark", "not seen: blue; "),
        ("nothing", "not seen: red, blue, spark; "),
    ],
)
def test_a_model_that_sees_names_all_that_is_on_the_card(cluster, text, told):
    cluster["spark-a"].reply = {"text": text}
    found = smoke(cluster.settings, cluster.open, Wanted(vision=True)).checks[1]
    assert (found.name, found.ok) == ("vision", not told)
    assert found.detail == f"{told}answered “{text}” (2 tokens, first token after 0.10 s); 8.0 tokens a second"
    sent = json.loads(cluster["spark-a"].commands[-1].argv[-1])
    assert sent["image"].startswith("data:image/png;base64,iVBORw0KGgo")


@pytest.mark.parametrize(("context", "tokens"), [(None, 2048), (1024, 512), (65536, 2048)])
def test_thoughts_take_half_of_a_short_context_at_most(cluster, context, tokens):
    settings = replace(cluster.settings, serve=replace(cluster.settings.serve, max_model_len=context))
    cluster["spark-a"].reply = {}
    smoke(settings, cluster.open, Wanted(thinking=True))
    assert json.loads(cluster["spark-a"].commands[-1].argv[-1])["max_tokens"] == tokens


def test_what_runs_is_asked_where_it_was_started_to_listen_until_it_was_stopped(cluster):
    """And by the name it was given; PORT, HOST and SERVED_MODEL_NAME may be others by now."""
    started = Receipt("demo", "b1", "demo", "2026-11-30T17:00:00Z", "http://10.40.0.1:8888", "demo", ())
    changed = replace(cluster.settings.serve, host="loopback", port=9999, served_model_name="other")
    changed = replace(cluster.settings, serve=changed)
    write_receipt(cluster.open(changed.head), changed, started)
    report = smoke(changed, cluster.open)
    assert (report.ok, report.url, report.model) == (True, "http://10.40.0.1:8888", "demo")
    write_receipt(cluster.open(changed.head), changed, replace(started, stopped="2026-11-30T18:00:00Z"))
    report = smoke(changed, cluster.open)
    assert (report.url, report.model) == ("http://127.0.0.1:9999", "other")


def test_a_server_on_all_addresses_stays_one(cluster):
    """The head asks it on its loopback, which is no reason to call it local."""
    wide = replace(cluster.settings, serve=replace(cluster.settings.serve, host="0.0.0.0", port=9999))
    started = Receipt("demo", "b1", "demo", "2026-11-30T17:00:00Z", "http://127.0.0.1:8888", "demo", ())
    assert as_started(wide, started).serve == replace(wide.serve, port=8888)
