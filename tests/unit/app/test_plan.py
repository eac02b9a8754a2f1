"""`plan`: every command of every step as text, compared whole with what lies in tests/golden/plan.

A wanted change: SPARKCTL_UPDATE_GOLDEN=1 pytest tests/unit/app/test_plan.py, then read the difference.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.app.plan import plan
from cluster.app.session import locate
from cluster.config.load import load
from cluster.config.texts import Option
from cluster.model.settings import Settings
from cluster.model.table import Secret
from cluster.report.layout import paint
from cluster.report.results import result_lines
from tests.build import pair

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "plan"
PAIR = (
    "HEAD_IP=10.40.0.1",
    "HEAD_SSH=op@spark-a",
    "HEAD_CX7_IF=enp1s0f1np1",
    "HEAD_CX7_IB=rocep1s0f1",
    "WORKER_IP=10.40.0.2",
    "WORKER_SSH=op@spark-b",
    "WORKER_CX7_IF=enp1s0f1np1",
    "WORKER_CX7_IB=rocep1s0f1",
    "NCCL_IB_GID_INDEX=3",
    "API_KEY_FILE=~/key",
)
DEMO = ("RECIPE=demo", "MODEL_DIR=/srv/demo", "VENV=/opt/vllm")
CASES = {
    "demo": DEMO,
    "dsv41-exl3-2x": ("RECIPE=dsv41-exl3-2x", *PAIR),
    "dsv4-vision-exl3-1x": ("RECIPE=dsv4-vision-exl3-1x", "MODEL_DIR=/srv/pack", "VENV=/opt/vllm"),
    "dsv41-sage-exl3-1x": ("RECIPE=dsv41-sage-exl3-1x",),
    "dsv41-sage-exl3-1x-aliased": ("RECIPE=dsv41-sage-exl3-1x", "EXL3_PROFILE=aliased"),
    "dsv4-sparkinfer-1x": ("RECIPE=dsv4-sparkinfer-1x", "MODEL_HOST=~/models/tp1"),
    "dsv41-exl3-2x-native": ("RECIPE=dsv41-exl3-2x", "RUNTIME=native", "VENV=/opt/vllm", *PAIR),
}


def settings_of(*said: str) -> Settings:
    options = [Option(*one.partition("=")[::2], "test") for one in said]
    resolved = load(Path("/nowhere"), environ={}, options=options)
    return locate(resolved.settings, lambda address: False)


def drawn(settings: Settings) -> str:
    """As a pipe gets it, without what every edit of a node program changes: the launcher's digest, and sizes."""
    text = "".join(paint(one, False) + "\n" for one in result_lines(plan(settings), None))
    return re.sub(
        r"(?<=\.json)   [0-9.]+ KiB|(?<=\.py)   [0-9.]+ KiB",
        "",
        re.sub(r"(rank|guard)-[0-9a-f]{12}", r"\1-PROGRAM", text),
    )


@pytest.mark.parametrize("case", CASES)
def test_the_plan_of_a_recipe_is_the_one_on_record(case):
    found, path = drawn(settings_of(*CASES[case])), GOLDEN / f"{case}.txt"
    if os.environ.get("SPARKCTL_UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


def test_a_plan_contacts_nobody_and_is_the_same_each_time():
    assert plan(pair()) == plan(pair())


def test_what_is_only_known_on_the_nodes_is_said():
    report = plan(pair())
    assert report.notes[0] == "spark-a: the interface is read on the node: the one that carries 10.40.0.1"
    head = next(step for step in report.stages[-1].steps if step.node == "spark-a")
    assert dict(head.environment)["GLOO_SOCKET_IFNAME"] == "<interface of 10.40.0.1>"


def test_a_key_shows_as_the_file_it_will_come_from():
    settings = settings_of(*DEMO, "API_KEY_FILE=~/key")
    shown = [dict(step.environment).get("VLLM_API_KEY") for step in plan(settings).stages[-1].steps]
    assert shown == ["<from ~/key>", None]


def test_a_key_in_the_settings_is_a_step_of_the_plan_and_never_shown():
    settings = pair(serve=replace(pair().serve, api_key=Secret("sesame-0pen")))
    assert "sesame-0pen" not in drawn(settings)
    assert plan(settings).stages[0].steps[0].why == "put the API key there"


def test_stages_of_a_plan_are_those_of_a_start():
    assert [(one.stage, one.in_order) for one in plan(pair()).stages] == [
        ("prepare", False),
        ("launch", True),
        ("ranks", False),
    ]
