"""Compose files of the recipes for one Spark, as far as they are known without asking it, beside those on record.

A wanted change: SPARKCTL_UPDATE_GOLDEN=1 pytest tests/unit/plan/test_compose_recipes.py, then read the difference.
"""

import os
from pathlib import Path

import pytest
import yaml

from cluster.config.load import load
from cluster.config.texts import Option
from cluster.model.deployment import DeploymentId
from cluster.plan.boxes import planned_box
from cluster.plan.compose import BOOT, compose_file
from cluster.plan.launch import Wiring, api_url, launch_spec

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "compose"
TP1 = ("RECIPE=dsv4-sparkinfer-1x", "MODEL_HOST=/srv/models/tp1", "MOUNTS=/srv/models/draft:/models/dspark-draft-k64")
PATCHED = """
launch: {environment: {VLLM_DSV4_PADDED_NVFP4: 0, KV_FP8_ROPE: 0}}
container:
  mounts:
    - /srv/models/draft:/models/dspark-draft-k64
    - /srv/patch/prefill.py:/opt/sparkinfer/sparkinfer/attention/_shared/mla/prefill.py
"""
CASES = {
    "sparkinfer-padded": (TP1, ""),
    "sparkinfer-stock432": (TP1[:2], PATCHED),
    "sage": (("RECIPE=dsv41-sage-exl3-1x",), ""),
}


def composed(said, cluster: str, folder: Path) -> str:
    (folder / "cluster.yaml").write_text(cluster)
    options = [Option(name, value, "test") for name, _, value in (one.partition("=") for one in said)]
    settings = load(folder, environ={}, options=options).settings
    which = DeploymentId(settings.deployment, BOOT)
    wiring, box = Wiring(settings.head.address, "lo"), planned_box(settings, settings.head)
    (rank,) = launch_spec(settings, which, (wiring,), (box,)).ranks
    return compose_file(which, rank, f"{api_url(settings)}{settings.watch.ready_path}")


@pytest.mark.parametrize("case", CASES)
def test_the_file_of_a_recipe_is_the_one_on_record(case, tmp_path):
    found, path = composed(*CASES[case], tmp_path), GOLDEN / f"{case}.yaml"
    if os.environ.get("SPARKCTL_UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("case", "records"), [("sparkinfer-padded", ("1", "0")), ("sparkinfer-stock432", ("0", "0"))])
def test_both_forms_of_the_kv_record_can_be_written(case, records, tmp_path):
    (service,) = yaml.safe_load(composed(*CASES[case], tmp_path))["services"].values()
    given = service["environment"]
    assert (given["VLLM_DSV4_PADDED_NVFP4"], given["KV_FP8_ROPE"]) == records
    assert "HF_TOKEN" not in given
    assert all(one["bind"] == {"create_host_path": False} for one in service["volumes"])
