"""`config`, and where secrets may not come out."""

from pathlib import Path

import pytest

from cluster.errors import Exit
from tests.fakes.cluster import FakeCluster

SECRETS = ("sesame-0pen-for-the-api", "hf_abcdefghijklmnopqrstuvwx", "ghp_registry_0123456789")


@pytest.fixture
def secretive(dotenv: Path) -> FakeCluster:
    """A `.env` with one secret of each kind."""
    names = ("VLLM_API_KEY", "HF_TOKEN", "GHCR_TOKEN")
    lines = "".join(f"{name}={value}\n" for name, value in zip(names, SECRETS, strict=True))
    dotenv.write_text(dotenv.read_text() + lines)
    from tests.fakes.cluster import AT_ONCE

    return FakeCluster(course=AT_ONCE)


def test_config_shows_what_is_set_and_nothing_else(sparkctl, dotenv):
    out = sparkctl("config").out
    assert "serve.model" in out
    assert "/models/demo" in out
    assert ".env:" not in out
    assert "serve.max_model_len" not in out


def test_config_shows_where_each_value_comes_from(sparkctl, dotenv, monkeypatch):
    monkeypatch.setenv("SPARKCTL_PORT", "9001")
    lines = {line.split()[0]: line for line in sparkctl("config", "--origin", "--set", "TP=2").out.splitlines()}
    assert lines["serve.port"].split() == ["serve.port", "9001", "environment", "SPARKCTL_PORT"]
    assert lines["serve.model"].split() == ["serve.model", "/models/demo", ".env:2"]
    assert lines["serve.tensor_parallel"].split() == ["serve.tensor_parallel", "2", "option", "--set", "TP"]


def test_config_of_everything_shows_defaults_too(sparkctl, dotenv):
    out = sparkctl("config", "--all", "--origin").out
    assert "serve.max_model_len" in out
    assert "default" in out


def test_config_where_nothing_is_set_says_so(sparkctl):
    ran = sparkctl("config")
    assert (ran.code, "nothing is set; --all shows the defaults" in ran.err) == (0, True)


def test_config_needs_no_complete_settings(sparkctl):
    assert sparkctl("config", "--set", "TP=8").code == 0


def test_config_tells_a_program_which_values_are_secret(sparkctl, secretive):
    shown = {one["key"]: one for one in sparkctl("config", "--json").events[0]["settings"]}
    assert (shown["serve.api_key"]["value"], shown["serve.api_key"]["secret"]) == ("***", True)
    assert (shown["serve.port"]["value"], shown["serve.port"]["secret"]) == (8888, False)


@pytest.mark.parametrize(
    "words",
    [
        ("config", "--all", "--origin"),
        ("config", "--json"),
        ("plan", "-v"),
        ("plan", "--json"),
        ("start", "-vv"),
        ("start", "--json"),
        ("status", "-vv"),
        ("status", "--json"),
        ("logs", "--json"),
        ("smoke", "--json", "-vv"),
        ("restart", "-v"),
        ("stop", "-vv"),
    ],
)
def test_no_verb_prints_a_secret(sparkctl, secretive, tmp_path, words):
    sparkctl("start", on=secretive)
    ran = sparkctl(*words, on=secretive)
    assert ran.code == 0
    kept = "".join(path.read_text() for path in (tmp_path / "state").rglob("*.log*"))
    assert [secret for secret in SECRETS if secret in ran.out + ran.err + kept] == []


def test_no_secret_stands_in_a_command_or_a_receipt(sparkctl, secretive):
    assert sparkctl("start", on=secretive).code == 0
    asked = [word for host in secretive.hosts.values() for one in host.commands for word in one.argv]
    files = {path: data for host in secretive.hosts.values() for path, data in host.files.items()}
    holding = [path for path, data in files.items() if any(secret.encode() in data for secret in SECRETS)]
    assert [word for word in asked if any(secret in word for secret in SECRETS)] == []
    assert [path.rpartition("/")[2] for path in holding] == ["api-key"]
    assert secretive["spark-a"].modes[holding[0]] == 0o600


def test_a_secret_that_a_rank_writes_into_its_log_is_masked(sparkctl, secretive):
    secretive.plays(0, f"0 says using key {SECRETS[0]}")
    sparkctl("start", on=secretive)
    out = sparkctl("logs", on=secretive).out
    assert "using key ***" in out
    assert SECRETS[0] not in out


def test_a_secret_on_the_command_line_is_refused_and_not_repeated(sparkctl, dotenv):
    ran = sparkctl("plan", "--set", f"VLLM_API_KEY={SECRETS[0]}")
    assert ran.code == Exit.SETTINGS
    assert SECRETS[0] not in ran.out + ran.err


def test_a_wrong_setting_beside_a_secret_does_not_give_it_away(sparkctl, secretive):
    ran = sparkctl("start", "--json", "--port", "0")
    assert ran.code == Exit.SETTINGS
    assert [secret for secret in SECRETS if secret in ran.out + ran.err] == []
