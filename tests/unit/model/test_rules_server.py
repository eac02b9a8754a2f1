"""Servers other than vLLM: what their recipes may not be asked for, and why."""

from pathlib import Path

import pytest

from cluster.config.load import load
from cluster.config.texts import Option
from cluster.errors import SettingsError
from cluster.model.exl3 import COPY, Exl3, Profile, copied, exl3_variables
from cluster.model.flags import variables
from cluster.model.kit import Image
from cluster.model.rules_server import image_name
from tests.build import pair

SAGE = ("RECIPE=dsv41-sage-exl3-1x",)
SPARKINFER = ("RECIPE=dsv4-sparkinfer-1x",)
VISION = ("RECIPE=dsv4-vision-exl3-1x", "MODEL_DIR=/m", "VENV=/v")


def settings_of(*said: str, cluster=None, folder=Path("/nowhere")):
    if cluster is not None:
        (folder / "cluster.yaml").write_text(cluster)
    return load(folder, environ={}, options=[Option(*one.partition("=")[::2], "test") for one in said]).settings


def refused(*said, **more) -> str:
    with pytest.raises(SettingsError) as caught:
        settings_of(*said, **more)
    return "\n".join((str(caught.value), *caught.value.evidence, caught.value.fix))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((*SAGE, "DSV41_DROP_PAGE_CACHE=1"), "the weights live in the page cache"),
        ((*SAGE, "PAGE_CACHE=evict-checkpoint"), "the GPU reads its weights in the page cache"),
        ((*VISION, "PAGE_CACHE=keep"), "say the opposite"),
        ((*SAGE, "MAX_NUM_SEQS=2"), "drafts for one request at a time"),
        ((*SAGE, "MAX_MODEL_LEN=6000"), "set 5888"),
        ((*SAGE, "MAX_MODEL_LEN=100"), "set 256"),
        ((*SAGE, "EXL3_ATS_COPY=^(?!mtp"), "is no regular expression"),
        ((*SPARKINFER, "API_KEY_FILE=~/key"), "would answer without the key"),
        ((*SAGE, "EXL3_PROFILE=mesured"), "is not one of none, measured, aliased, nodraft"),
        ((*SAGE, "TP=2"), "makes 2 ranks, for 1 node(s)"),
        ((*SAGE, "READY_PATH=ready"), "a path such as /health or /ready"),
        ((*VISION, "EXL3_PROFILE=measured"), "vLLM would ignore it"),
        ((*SPARKINFER, "MAX_NUM_BATCHED_TOKENS=2048"), "set 8224 or more"),
        ((*SPARKINFER, "GPU_MEM_UTIL=0.95"), "does not boot on a GB10"),
        ((*SPARKINFER, "MOUNTS=models:/models"), "not `source:target`"),
        ((*SPARKINFER, "MOUNTS=/a:/b:x"), "not `source:target`"),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(said, words):
    assert words in refused(*said)


def test_our_own_server_takes_an_api_key():
    assert settings_of(*SAGE, "API_KEY_FILE=~/key").serve.api_key_file.endswith("/key")


def test_a_form_of_the_kv_record_that_is_none_is_refused_with_those_there_are(tmp_path):
    text = refused(*SPARKINFER, cluster="launch: {environment: {KV_FP8_ROPE: 1}}\n", folder=tmp_path)
    assert "is no form of a KV record" in text
    assert "1 and 0: 584 bytes; 0 and 0: 432 bytes; 0 and 1: 368 bytes" in text


def test_two_nodes_under_a_command_of_ones_own_are_refused(tmp_path):
    nodes = "nodes: [{control: local, address: 10.0.0.1}, {control: op@b, address: 10.0.0.2}]\n"
    nodes += "serve: {tensor_parallel: 2}\n"
    assert "runs one rank, and there are 2 nodes" in refused(*SAGE, cluster=nodes, folder=tmp_path)


def test_flags_that_only_vllm_would_get_are_refused(tmp_path):
    text = refused(*SAGE, cluster="serve: {flags: {tool-call-parser: x}}\n", folder=tmp_path)
    assert "tool-call-parser, which only `vllm serve` would get" in text


def test_without_mapping_the_drafter_does_not_fit(tmp_path):
    text = refused(*SAGE, cluster="launch: {environment: {EXL3_ATS_MMAP: 0}}\n", folder=tmp_path)
    assert "the kernel ends it while it loads" in text


@pytest.mark.parametrize(
    ("exl3", "expression"),
    [
        (Exl3(Profile.MEASURED), r"^(?!mtp\.)"),
        (Exl3(Profile.ALIASED), ""),
        (Exl3(Profile.NODRAFT), ".*"),
        (Exl3(Profile.MEASURED, "nothing"), ""),
        (Exl3(Profile.ALIASED, r"^layers\."), r"^layers\."),
    ],
)
def test_a_profile_says_what_is_copied_and_a_setting_says_otherwise(exl3, expression):
    assert copied(exl3) == expression


def test_an_empty_expression_is_a_value_and_no_profile_gives_no_variable():
    assert exl3_variables(Exl3(Profile.ALIASED), None)[COPY] == ""
    assert exl3_variables(Exl3(), 6144) == {}
    assert dict(variables(settings_of(*SAGE, "EXL3_PROFILE=aliased")))[COPY] == ""
    assert COPY not in dict(variables(settings_of(*VISION)))


def test_the_profiles_are_as_measured():
    seen = {one: exl3_variables(Exl3(one), 6144) for one in (Profile.MEASURED, Profile.ALIASED, Profile.NODRAFT)}
    assert {one: (said["EXL3_MTP"], said["CHUNK"], said["CTX"]) for one, said in seen.items()} == {
        Profile.MEASURED: ("1", "2048", "6144"),
        Profile.ALIASED: ("1", "4096", "6144"),
        Profile.NODRAFT: ("0", "2048", "6144"),
    }


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("vllm/vllm-openai:v0.33.0", True),
        ("ghcr.io/miaai-lab/deepseek-v4.1-flash-exl3-2x-dgx-sparks:2.9bpw", True),
        ("127.0.0.1:5055/sparkctl/a@sha256:" + "0" * 64, True),
        ("localhost:5000/a__b/c", True),
        ("Demo:1", False),
        ("demo:a b", False),
        ("demo:", False),
        ("-rm", False),
        ("demo@sha256:12", False),
    ],
)
def test_a_name_that_no_engine_takes_is_refused_before_any_node_is_asked(name, fits):
    settings = pair(image=Image(name=name))
    assert [one.what for one in image_name(settings, {})] == ([] if fits else [f"IMAGE={name} is no name of an image"])
