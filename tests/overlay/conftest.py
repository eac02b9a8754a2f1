"""Overlay tests run where torch is: the server's environment. Elsewhere they say so and are skipped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "overlay"))


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
