"""The EXL3 plugin of vLLM and what it needs, by the versions that lie in an environment."""

from dataclasses import replace

import pytest

from cluster.model.events import Severity
from cluster.model.settings import Launch, RuntimeKind, Serve
from cluster.plan.plugin import check_plugin
from tests.build import identity, pair

SETTINGS = pair(serve=Serve(model="/m", quantization="exl3"))
TOOLS = (("ninja", "/v/bin/ninja"), ("nvcc", "/usr/local/cuda/bin/nvcc"))
WHOLE = {"vllm": "0.28.1", "vllm-exl3": "0.3.0", "exllamav3": "1.4.5+cu130"}


def checked(packages, tools=TOOLS, settings=SETTINGS):
    return [
        (one.severity, one.observed)
        for one in check_plugin(settings, "spark", identity(packages=tuple(packages.items()), tools=tools))
    ]


@pytest.mark.parametrize(
    ("packages", "tools", "severity", "observed"),
    [
        (WHOLE, TOOLS, Severity.OK, "vllm-exl3 0.3.0, exllamav3 1.4.5+cu130"),
        ({"vllm": "1"}, TOOLS, Severity.REFUSAL, "there is no vllm-exl3, no exllamav3"),
        (WHOLE, (TOOLS[0], ("nvcc", "")), Severity.REFUSAL, "there is no nvcc"),
        (
            WHOLE | {"vllm-exl3": "0.3.1"},
            TOOLS,
            Severity.WARNING,
            "vllm-exl3 0.3.1, exllamav3 1.4.5+cu130: this plugin does not import",
        ),
        (
            WHOLE | {"exllamav3": "1.4.1"},
            TOOLS,
            Severity.WARNING,
            "vllm-exl3 0.3.0, exllamav3 1.4.1: the plugin is made for 1.4.5",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_named(packages, tools, severity, observed):
    assert checked(packages, tools) == [(severity, observed)]


@pytest.mark.parametrize(
    "settings",
    [
        pair(),
        replace(SETTINGS, launch=Launch(runtime=RuntimeKind.CONTAINER)),
        replace(SETTINGS, launch=Launch(command=("serve",))),
    ],
)
def test_nobody_else_needs_it(settings):
    assert checked({}, (), settings) == []
