"""Dropping a model's files from the page cache, on a real one."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from cluster.app.agents import source

pytestmark = pytest.mark.contract


def cached(path) -> int:
    """Bytes of it in the page cache; the kernel tells only the owner, or root."""
    done = subprocess.run(["fincore", "-nb", "-o", "RES", str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_the_models_own_files_leave_the_page_cache_and_others_stay(tmp_path):
    if shutil.which("fincore") is None:
        pytest.skip("not run: no fincore (util-linux)")
    model, other = tmp_path / "model.safetensors", tmp_path / "notes.txt"
    for path in (model, other):
        path.write_bytes(os.urandom(1 << 20))
        with path.open("rb") as file:
            os.fsync(file.fileno())
            file.read()
    if not cached(model):
        pytest.skip("not run: the file system here keeps no page cache")
    program = [sys.executable, "-I", "-", json.dumps({"model": str(tmp_path)})]
    done = subprocess.run(program, input=source("drop"), capture_output=True, check=True)
    assert json.loads(done.stdout)["files"] == 1
    assert (cached(model), cached(other)) == (0, 1 << 20)
