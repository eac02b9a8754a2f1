"""`export k8s`: read back as a cluster would read it, and held against the published form of LLMKube's resources.

The schemas in tests/golden/llmkube restate the fields of its types; what they do not name is refused.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from cluster.config.load import load
from cluster.config.texts import Option
from cluster.errors import SettingsError
from cluster.plan.kubernetes import Cluster, manifests
from cluster.plan.yaml_text import documents, scalar

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "llmkube"
SAGE = ("RECIPE=dsv41-sage-exl3-1x",)
VISION = ("RECIPE=dsv4-vision-exl3-1x", "MODEL_DIR=/srv/models/vision", "VENV=/v", "IMAGE=reg/vllm:1")
SPARKINFER = ("RECIPE=dsv4-sparkinfer-1x", "MODEL_HOST=/srv/models/tp1", "MOUNTS=/srv/draft:/models/draft")
PAIR = (
    "RECIPE=dsv41-exl3-2x",
    "HEAD_IP=10.40.0.1",
    "WORKER_IP=10.40.0.2",
    "HEAD_CX7_IF=enp1s0f1np1",
    "WORKER_CX7_IF=enp1s0f0np0",
    "HEAD_CX7_IB=rocep1s0f1",
    "WORKER_CX7_IB=rocep1s0f0",
    "NCCL_IB_GID_INDEX=3",
    "MODEL_HOST=/srv/models/dsv41",
    "WORKER_MODEL_DIR=/srv/models/dsv41",
)
ONE, TWO = Cluster(("spark-a",)), Cluster(("spark-a", "spark-b"))
CASES = {"sage": (SAGE, ONE), "vision": (VISION, ONE), "sparkinfer": (SPARKINFER, ONE), "pair": (PAIR, TWO)}


def settings_of(*said: str):
    options = [Option(*one.partition("=")[::2], "test") for one in said]
    return load(Path("/nowhere"), environ={}, options=options).settings


def read_back(said, cluster) -> dict[str, Any]:
    """The objects by kind, as YAML gives them back."""
    found: dict[str, Any] = {}
    for one in yaml.safe_load_all(documents(manifests(settings_of(*said), cluster))):
        found.setdefault(one["kind"], []).append(one)
    return found


def refused(said, cluster) -> str:
    with pytest.raises(SettingsError) as caught:
        manifests(settings_of(*said), cluster)
    return "\n".join((str(caught.value), *caught.value.evidence))


@pytest.mark.parametrize("case", CASES)
def test_what_is_written_is_what_is_read_back(case):
    said, cluster = CASES[case]
    made = manifests(settings_of(*said), cluster)
    assert list(yaml.safe_load_all(documents(made))) == json.loads(json.dumps(made))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["Model", "InferenceService"])
def test_resources_have_only_fields_that_there_are(case, kind):
    schema = json.loads((GOLDEN / f"{kind}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    (found,) = read_back(*CASES[case])[kind]
    assert [one.message for one in Draft202012Validator(schema).iter_errors(found)] == []


@pytest.mark.parametrize("field", ["memory", "secret"])
def test_the_restated_schema_refuses_a_field_that_it_does_not_know(field):
    (found,) = read_back(*CASES["sage"])["InferenceService"]
    found["spec"][field] = "1"
    schema = json.loads((GOLDEN / "InferenceService.schema.json").read_text())
    assert not Draft202012Validator(schema).is_valid(found)


@pytest.mark.parametrize("case", CASES)
def test_no_object_says_memory_and_every_variable_is_a_text(case):
    objects = read_back(*CASES[case])
    (service,) = objects["InferenceService"]
    assert "memory" not in {key for each in objects.values() for key in keys(each)}
    assert {type(one["value"]) for one in service["spec"]["env"]} == {str}


def keys(value) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(key for one in value.values() for key in keys(one))]
    return [key for one in value for key in keys(one)] if isinstance(value, list) else []


@pytest.mark.parametrize("case", CASES)
def test_any_value_of_the_gpu_taint_is_tolerated_and_liveness_left_alone(case):
    spec = read_back(*CASES[case])["InferenceService"][0]["spec"]
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert set(spec["probeOverrides"]) == {"startup", "readiness"}


def test_the_native_server_gets_its_expression_whole_and_its_pack_where_it_was_staged():
    objects = read_back(SAGE, ONE)
    spec = objects["InferenceService"][0]["spec"]
    variables = {one["name"]: one["value"] for one in spec["env"]}
    assert variables["EXL3_ATS_COPY"] == r"^(?!mtp\.)"
    assert spec["args"][3:5] == ["--model", "/srv/models/dsv41-flash-sage-exl3-1.59bpw-a64"]
    assert spec["extraVolumeMounts"][0] == {"name": "pack", "mountPath": "/srv/models", "readOnly": True}
    assert objects["PersistentVolume"][0]["spec"]["hostPath"]["path"] == "/srv/models"
    assert objects["Model"][0]["spec"]["source"] == (
        f"pvc://{objects['PersistentVolumeClaim'][0]['metadata']['name']}/dsv41-flash-sage-exl3-1.59bpw-a64"
    )
    assert [spec["probeOverrides"][one]["httpGet"]["path"] for one in ("startup", "readiness")] == ["/health", "/ready"]
    assert "command" not in spec


def test_an_empty_expression_survives_too():
    spec = read_back((*SAGE, "EXL3_PROFILE=aliased"), ONE)["InferenceService"][0]["spec"]
    assert {"name": "EXL3_ATS_COPY", "value": ""} in spec["env"]


@pytest.mark.parametrize(("case", "jobs"), [("sage", 0), ("sparkinfer", 0), ("vision", 1), ("pair", 2)])
def test_the_page_cache_is_dropped_for_vllm_alone(case, jobs):
    assert len(read_back(*CASES[case]).get("Job", [])) == jobs


def test_two_nodes_are_members_in_rank_order_each_with_a_claim_of_its_own():
    objects = read_back(PAIR, TWO)
    spec = objects["InferenceService"][0]["spec"]
    assert spec["multiNode"] == {
        "rdmaResource": "rdma/rdma_shared_device_a",
        "ibGIDIndex": 3,
        "members": [
            {
                "node": "spark-a",
                "fabric": {"address": "10.40.0.1", "socketInterface": "enp1s0f1np1", "ibHCA": "rocep1s0f1"},
                "modelCache": {"claimName": "dsv41-exl3-2x-0"},
            },
            {
                "node": "spark-b",
                "fabric": {"address": "10.40.0.2", "socketInterface": "enp1s0f0np0", "ibHCA": "rocep1s0f0"},
                "modelCache": {"claimName": "dsv41-exl3-2x-1"},
            },
        ],
    }
    assert spec["vllmConfig"] == {"tensorParallelSize": 2, "pipelineParallelSize": 1, "maxModelLen": 600000}
    assert "--tensor-parallel-size" not in spec["extraArgs"]
    assert [one["metadata"]["name"] for one in objects["PersistentVolumeClaim"]] == [
        "dsv41-exl3-2x-0",
        "dsv41-exl3-2x-1",
    ]
    assert "nodeSelector" not in spec


@pytest.mark.parametrize(
    ("said", "cluster", "words"),
    [
        (SAGE, Cluster(()), "1 node(s), and 0 named"),
        (SAGE, Cluster(("Spark_A",)), "'Spark_A' is no name"),
        (SAGE, Cluster(("spark-a",), claim="-x"), "claim '-x' is no name"),
        (SAGE, Cluster(("spark-a",), storage="400 GB"), "is no quantity"),
        ((*SAGE, "MODEL_HOST=/data/pack"), ONE, "its links are absolute and would lead nowhere"),
        ((*SAGE, "MODEL_DIR=~/pack"), ONE, "no absolute path"),
        (VISION[:-1], ONE, "IMAGE is not set"),
        ((*SPARKINFER[:-1], "MOUNTS=~/draft:/d"), ONE, "Kubernetes knows no home"),
        ((*PAIR, "WORKER_GID=5"), TWO, "GID indices differ (head 3, worker 5)"),
        (tuple(one for one in PAIR if "WORKER_CX7_IB" not in one), TWO, "its RDMA device is not set"),
    ],
)
def test_what_a_cluster_could_not_run_is_refused(said, cluster, words):
    assert words in refused(said, cluster)


ODD = "yes|No|on|null|~|1|1e3|0x1|2026-09-30|a: b|#a|'|x'y|-|=|!x|&x|{a}|a b|é|^(?!mtp\\.)"


@pytest.mark.parametrize("text", ["", "a\nb", *ODD.split("|")])
def test_every_text_comes_back_as_the_text_it_was(text):
    assert yaml.safe_load(scalar(text)) == text
