"""The program that keeps compiled graphs only for what they were compiled of."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.app.agents import source

pytestmark = pytest.mark.contract


def renew(folder: Path, *files: Path, **said: str | None) -> list[str]:
    want = {"folders": [str(folder)], "files": [str(one) for one in files], "said": said}
    argv = (sys.executable, "-IS", "-", json.dumps(want))
    done = subprocess.run(argv, input=source("graphs"), capture_output=True, check=True)
    removed: list[str] = json.loads(done.stdout)["removed"]
    return removed


def compile_graph(folder: Path) -> Path:
    graph = folder / "vllm/torch_compile_cache/0a1b/rank_0_0/backbone.py"
    graph.parent.mkdir(parents=True, exist_ok=True)
    graph.write_text("compiled")
    return graph


def test_graphs_stay_as_long_as_nothing_changes(tmp_path):
    assert renew(tmp_path / "cache", image="sha256:1", KV_FP8_ROPE="0") == []
    graph = compile_graph(tmp_path / "cache")
    assert renew(tmp_path / "cache", image="sha256:1", KV_FP8_ROPE="0") == []
    assert graph.exists()


def test_another_value_another_image_and_another_file_each_empty_them(tmp_path):
    cache, fix = tmp_path / "cache", tmp_path / "fix.py"
    fix.write_text("one")
    said: dict[str, str | None] = {"image": "sha256:1", "ABLATE": None}
    renew(cache, fix, **said)
    for change in ("ABLATE", "image", "file"):
        kept = cache / "vllm/triton/kernel.cubin"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.touch()
        graph = compile_graph(cache)
        if change == "file":
            fix.write_text("two")
        else:
            said[change] = "new"
        assert renew(cache, fix, **said) == [str(cache / "vllm/torch_compile_cache")], change
        assert not graph.exists()
        assert kept.exists()


def test_graphs_of_which_nothing_is_known_are_not_trusted(tmp_path):
    graph = compile_graph(tmp_path)
    assert renew(tmp_path, image="sha256:1") == [str(tmp_path / "vllm/torch_compile_cache")]
    assert not graph.exists()


def test_a_removal_that_was_cut_off_is_done_again(tmp_path):
    renew(tmp_path, image="sha256:1")
    compile_graph(tmp_path)
    (tmp_path / ".sparkctl-graphs.new").write_text("half")
    assert renew(tmp_path, image="sha256:2") == [str(tmp_path / "vllm/torch_compile_cache")]
    assert renew(tmp_path, image="sha256:2") == []
