"""Overlay tests run where torch is: the server's environment. Elsewhere they say so and are skipped."""

import os
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "overlay"))
# Read when a kernel is defined: kernels then run on the CPU, statement by statement.
os.environ["TRITON_INTERPRET"] = "1"


def build(goal: tuple[str, ...], folder: Path) -> None:
    done = subprocess.run(
        ["make", "-s", "-C", str(ROOT / "overlay" / "csrc"), f"BUILD={folder}", *goal],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"the row store does not compile:\n{done.stdout}{done.stderr}")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The row store, compiled from what is in the tree, and made known to the binding."""
    given = os.environ.get("SPARK_ROW_STORE")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("csrc")
    build((), folder)
    os.environ["SPARK_ROW_STORE"] = str(folder / "librow_store.so")
    return folder / "librow_store.so"


@pytest.fixture(scope="session")
def vllm_engram() -> Any:
    """vLLM's own Engram module with its kernels, the oracle of these tests."""
    backends = pytest.importorskip("triton.backends", reason="triton is not installed here")
    pytest.importorskip("vllm", reason="vLLM is not installed here")
    # vLLM's build for the CPU turns Triton off unless it has this backend; the interpreter needs none.
    backends.backends.setdefault("cpu", SimpleNamespace(driver=None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the server's own making
        return import_module("vllm.models.deepseek_v41.common.engram")
