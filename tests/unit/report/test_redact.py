"""Secrets are masked by value and by shape, and nothing else is."""

import pytest

from cluster.model.events import LogLine, PlannedStep, Progress, SettingShown
from cluster.report.redact import Redactor

TOKEN = "hf_" + "aB3" * 12
KEY = "sk-" + "x9Y" * 8


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"loading with {TOKEN}.", "loading with ***."),
        (f"key {KEY} refused", "key *** refused"),
        ("vllm serve m --api-key abc --port 1", "vllm serve m --api-key *** --port 1"),
        ("vllm serve m --api-key=abc", "vllm serve m --api-key=***"),
        ("vllm serve m --api-key 'a b' -x", "vllm serve m --api-key *** -x"),
        ("Authorization: Bearer abc", "Authorization: Bearer ***"),
        ('{"authorization": "Bearer abc"}', '{"authorization": "Bearer ***"}'),
        ("curl -H 'Authorization: abc'", "curl -H 'Authorization: ***'"),
        ("sent Bearer abcdefgh", "sent Bearer ***"),
        ("HF_TOKEN=abc VLLM_API_KEY='d e' x", "HF_TOKEN=*** VLLM_API_KEY=*** x"),
        ("args: {'api_key': ['abc'], 'port': 1}", "args: {'api_key': [***], 'port': 1}"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text, shown):
    assert Redactor().text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "task-scheduler-with-a-long-name disk-usage-of-the-node",
        "--api-key-file /etc/key",
        "API_KEY_FILE=/etc/key MAX_TOKENS=12",
        "hf_transfer is not installed; hf_overrides={}",
        "the bearer of this",
        "12 tokens/s",
    ],
)
def test_what_only_resembles_a_secret_stays(text):
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        ("pass word", "x pass word y 'pass word' pass%20word", "x *** y *** ***"),
        ("a'b", """echo 'a'"'"'b'""", "echo ***"),
        ('q"q"q', r'{"key": "q\"q\"q"}', '{"key": "***"}'),
        ("abc", "abc abcd x=abc", "*** abcd x=***"),
        ("key-1234", "prefixkey-1234suffix", "prefix***suffix"),
        ("  ", "a   b", "a   b"),
        ("a.c*", "abc a.c*", "abc ***"),
    ],
)
def test_a_registered_value_is_masked_in_the_forms_it_is_written_in(secret, text, shown):
    assert Redactor(secret).text(text) == shown


def test_a_value_counts_from_the_moment_it_is_added():
    redactor = Redactor()
    before = redactor.text("key-1234")
    redactor.add("key-1234")
    assert (before, redactor.text("key-1234")) == ("key-1234", "***")


def test_an_argv_hides_the_word_after_the_flag():
    step = PlannedStep("a", "", ("vllm", "--api-key", "abc", "--port", "1"), (("HF_TOKEN", "abc"), ("PATH", "abc")))
    shown = PlannedStep("a", "", ("vllm", "--api-key", "***", "--port", "1"), (("HF_TOKEN", "***"), ("PATH", "abc")))
    assert Redactor().event(step) == shown


def test_names_and_values_of_an_environment_are_read_as_pairs():
    shown = Redactor().event(SettingShown("launch.environment", (("MY_PASSWORD", "abc"), ("TOKEN", ""))))
    assert shown == SettingShown("launch.environment", (("MY_PASSWORD", "***"), ("TOKEN", "")))


def test_choices_are_never_masked():
    progress = Progress("exact", "exact", 1, 2, "exact")
    assert Redactor("exact").event(progress) == Progress("***", "***", 1, 2, "***")


def test_an_event_without_secrets_is_the_same():
    line = LogLine(1, "spark-b", "2026-11-30T17:31:02.123Z", "Application startup complete.")
    assert Redactor("key-1234").event(line) == line
