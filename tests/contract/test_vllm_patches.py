"""The sets that we ship, on the files that they are for: vLLM 0.28 as published, and a loader like its vision build's.

vLLM itself is no part of this repository. The wheel is taken from $SPARKCTL_VLLM_WHEEL, or from ~/.cache/sparkctl.
"""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.app import patch
from cluster.config.load import load
from cluster.config.texts import Option
from cluster.errors import Refused
from cluster.model.need import Need
from cluster.model.packs import PatchState
from cluster.model.settings import NodeSettings
from cluster.node.base import Node
from cluster.node.local import LocalNode

pytestmark = pytest.mark.contract

TEXT, VISION = "vllm-deepseek-v4", "vllm-deepseek-v4-vision"
MODELS = "vllm/models/deepseek_v4/nvidia/"
# As the vision build loads its weights, in our own words: only the statement that sorts them is what a patch looks for.
VISION_MODEL = """\
class VisionModel:
    def load_weights(self, weights):
        mapped = sorted(self.hf_to_vllm_mapper.apply(weights), key=lambda pair: pair[0])
        return self.loader.load(mapped)
"""


def wheel() -> Path:
    given = os.environ.get("SPARKCTL_VLLM_WHEEL")
    found = [Path(given)] if given else sorted((Path.home() / ".cache/sparkctl").glob("vllm-0.28.*.whl"))
    if given and not found[-1].is_file():
        pytest.fail(f"$SPARKCTL_VLLM_WHEEL names no file: {given}")
    if not found:
        pytest.skip(
            "not run: there is no wheel of vLLM 0.28 in ~/.cache/sparkctl;"
            " pip download --no-deps vllm==0.28.0 -d ~/.cache/sparkctl gets it, 314 MB"
        )
    return found[-1]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = tmp_path / "venv/lib/python3.12/site-packages"
    (site / MODELS).mkdir(parents=True)
    return site


def act(what: str, name: str, site: Path) -> Any:
    venv = Option("VENV", str(site.parents[2]), "test")
    settings = load(Path("/nowhere"), environ={}, options=[venv], need=Need.NOTHING).settings
    return getattr(patch, what)(settings, open_here, name)


def open_here(settings: NodeSettings) -> Node:
    return LocalNode(settings.name)


def texts(site: Path) -> dict[str, str]:
    return {str(one.relative_to(site)): one.read_text() for one in sorted((site / "vllm").rglob("*.py"))}


def test_every_text_patch_fits_the_published_wheel_and_is_taken_back_whole(site):
    with zipfile.ZipFile(wheel()) as archive:
        wanted = [one for one in archive.namelist() if one.startswith(MODELS) or one.endswith(".dist-info/METADATA")]
        archive.extractall(site, wanted)
    before = texts(site)
    assert act("status", TEXT, site).state is PatchState.PRISTINE
    applied = act("apply", TEXT, site)
    assert (applied.state, applied.changed) == (PatchState.PATCHED, 3)
    assert {Path(one.path).name: one.applied for one in applied.files} == {
        "flashinfer_sparse.py": ("dense-o-proj", "wide-window", "wide-window-merge"),
        "model.py": ("gate-bias",),
        "dspark.py": ("draft-vision-bias",),
    }
    changed = texts(site)
    assert changed[f"{MODELS}flashinfer_sparse.py"].count("rocm_inv_rope_einsum(") == 2
    for name, text in changed.items():
        compile(text, name, "exec")
    assert act("apply", TEXT, site).changed == 0
    assert act("revert", TEXT, site).state is PatchState.PRISTINE
    assert texts(site) == before


def test_the_published_wheel_has_no_vision_and_nothing_is_changed_for_it(site):
    with zipfile.ZipFile(wheel()) as archive:
        archive.extractall(site, [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")])
    with pytest.raises(Refused) as caught:
        act("apply", VISION, site)
    assert list(caught.value.evidence) == ["models/deepseek_v4/nvidia/vl_model.py: the file is not there"]


@pytest.fixture
def vision(site: Path) -> Path:
    (site / "vllm-0.28.1rc1.dist-info").mkdir()
    (site / MODELS / "vl_model.py").write_text(VISION_MODEL)
    return site


def test_the_vision_set_lets_the_language_part_pass_as_it_comes(vision):
    assert act("apply", VISION, vision).state is PatchState.PATCHED
    space: dict[str, Any] = {}
    exec(compile(texts(vision)[f"{MODELS}vl_model.py"], "vl_model.py", "exec"), space)
    taken: list[str] = []

    def weights() -> Iterator[tuple[str, int]]:
        for name in ("vision.b", "language_model.b", "language_model.a", "vision.a"):
            taken.append(name)
            yield name, 0

    same = SimpleNamespace(apply=lambda given: given)
    loader = SimpleNamespace(load=lambda given: given)
    model = SimpleNamespace(hf_to_vllm_mapper=same, loader=loader)
    loaded = space["VisionModel"].load_weights(model, weights())
    assert next(loaded)[0] == "language_model.b"
    assert taken == ["vision.b", "language_model.b"]
    assert [name for name, _ in loaded] == ["language_model.a", "vision.a", "vision.b"]
    assert act("revert", VISION, vision).state is PatchState.PRISTINE
    assert texts(vision) == {f"{MODELS}vl_model.py": VISION_MODEL}
