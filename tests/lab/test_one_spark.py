"""The recipe for one Spark with vLLM in a virtual environment, on a node without a GPU: the demo model, patches off."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.lab.cli import WORK, Cli
from tests.lab.nodes import Lab
from tests.lab.specification import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.lab

MODEL = str(REPOSITORY / "scripts" / "demo_model" / "model")
# All that the recipe asks of the model or of a GPU is taken back; all else stays as it is.
WITHOUT = {
    "deployment": "vision",
    "serve": {
        "quantization": None,
        "kv_cache_dtype": None,
        "speculation": "none",
        "max_model_len": 1024,
        "kv_cache_memory_bytes": "64MiB",
        "enforce_eager": True,
        "flags": {"tool-call-parser": None, "reasoning-parser": None, "enable-auto-tool-choice": False},
    },
    "launch": {
        "environment": {
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": 1,
            "VLLM_CPU_CI_ENV": 1,
            "TORCHDYNAMO_DISABLE": 1,
        }
    },
}


@pytest.fixture(scope="module")
def lab(lab_ground: None) -> Iterator[Lab]:
    with Lab.up(small_disk_size="320m") as nodes:
        yield nodes


def test_the_recipe_for_a_virtual_environment_starts_answers_and_stops_on_a_cpu(lab: Lab, vllm_venv: Path) -> None:
    folder = WORK / "vision"
    sparkctl = Cli(lab.a, {"RECIPE": "dsv4-vision-exl3-1x", "MODEL_DIR": MODEL, "VENV": str(vllm_venv)}, folder)
    (lab.a.path(folder) / "cluster.yaml").write_text(json.dumps(WITHOUT))  # JSON is YAML
    started = sparkctl("start", timeout=600)
    assert started.code == 0, (started.result, started.err)
    assert (started.result["url"], [one["rank"] for one in sparkctl("status").result["ranks"]]) == (
        "http://127.0.0.1:8899",
        [0],
    )
    asked = sparkctl("smoke")
    assert (asked.code, asked.result["model"], asked.result["ok"]) == (0, "DSV4-Flash", True)
    ended = sparkctl("stop")
    assert (ended.code, ended.result["event"]) == (0, "stopped")
    assert lab.a.processes() == ()
