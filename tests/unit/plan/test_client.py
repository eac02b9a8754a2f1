"""Snippets for clients: of what the server says, never with a key in them."""

import json
from dataclasses import replace

import pytest

from cluster.model.settings import Serve
from cluster.plan.client import Form, Served, hints, snippet
from cluster.report.redact import Redactor
from tests.build import pair


def settings_of(**serve):
    return pair(serve=Serve(model="/m", host="loopback", port=8888, **serve))


def test_pi_gets_the_served_id_and_context():
    served = Served("DSV4", 65536)
    flags = (("reasoning-parser", ("deepseek_v4",)),)
    made = json.loads(snippet(settings_of(flags=flags, limit_mm='{"image":4}'), served, Form.PI))
    assert made == {
        "providers": {
            "demo-local": {
                "baseUrl": "http://127.0.0.1:8888/v1",
                "api": "openai-completions",
                "apiKey": "none",
                "models": [
                    {
                        "id": "DSV4",
                        "name": "DSV4",
                        "reasoning": True,
                        "input": ["text", "image"],
                        "contextWindow": 65536,
                        "maxTokens": 32768,
                        "thinkingLevelMap": {
                            "minimal": None,
                            "low": None,
                            "medium": None,
                            "high": "high",
                            "max": "max",
                        },
                        "compat": {
                            "supportsDeveloperRole": False,
                            "supportsReasoningEffort": True,
                            "maxTokensField": "max_tokens",
                            "requiresReasoningContentOnAssistantMessages": True,
                            "thinkingFormat": "deepseek",
                        },
                    }
                ],
            }
        }
    }


@pytest.mark.parametrize(
    ("context", "setting", "told"), [(1024, 2048, (1024, 512)), (None, 2048, (2048, 1024)), (None, None, (None, None))]
)
def test_the_servers_own_context_comes_first(context, setting, told):
    made = json.loads(snippet(settings_of(max_model_len=setting), Served("m", context), Form.PI))
    (model,) = made["providers"]["demo-local"]["models"]
    assert (model.get("contextWindow"), model.get("maxTokens")) == told


def test_a_shell_gets_variables_in_quotes():
    text = snippet(settings_of(), Served("my model", None), Form.ENV)
    assert text.splitlines() == [
        "export OPENAI_BASE_URL=http://127.0.0.1:8888/v1",
        "export OPENAI_API_BASE_URL=http://127.0.0.1:8888/v1",
        'export "OPENAI_API_KEY"=none',
        "export OPENAI_MODEL='my model'",
    ]


@pytest.mark.parametrize("form", list(Form))
def test_nothing_in_it_is_masked_on_its_way_out(form):
    text = snippet(settings_of(max_model_len=1024), Served("m", None), form)
    assert Redactor().text(text) == text


@pytest.mark.parametrize("form", list(Form))
def test_a_key_is_only_named(form):
    settings = settings_of(api_key_file="~/key")
    assert "none" not in snippet(settings, Served("m", None), form)
    assert hints(settings)[0].startswith("the key is in ~/key on spark-a")


def test_a_tunnel_is_told_for_an_api_on_a_loopback_elsewhere():
    settings = settings_of()
    far = replace(settings, nodes=(replace(settings.head, control="op@spark-a"), *settings.workers))
    assert hints(settings) == ()
    tunnel = "ssh -N -o ExitOnForwardFailure=yes -L 8888:127.0.0.1:8888 op@spark-a"
    assert hints(far) == (f"it listens on the loopback of spark-a only: {tunnel}",)
