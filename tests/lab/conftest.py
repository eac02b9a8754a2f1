"""Fixtures of the lab: two nodes for each test, the vLLM to run on them, and a model to serve."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.nodes import Lab, missing, sweep_stale
from tests.lab.specification import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def lab_ground() -> None:
    """Skips where no lab can stand; clears what killed runs have left."""
    if reason := missing():
        pytest.skip(f"not run: {reason}")
    sweep_stale()


@pytest.fixture
def lent() -> tuple[Path, ...]:
    """Folders of the host that both nodes see; a test module overrides this to lend its own."""
    return ()


@pytest.fixture
def lab(lab_ground: None, lent: tuple[Path, ...]) -> Iterator[Lab]:
    with Lab.up(lent=lent) as nodes:
        yield nodes


@pytest.fixture
def systemd_lab(lab_ground: None, lent: tuple[Path, ...]) -> Iterator[Lab]:
    """The same two nodes, each with a real systemd as process 1."""
    if reason := missing(systemd=True):
        pytest.skip(f"not run: {reason}")
    with Lab.up(lent=lent, systemd=True) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def vllm_venv() -> Path:
    """The environment with the real vLLM; the nodes see it at the same path."""
    venv = REPOSITORY / ".venv-vllm"
    if not (venv / "provisioned.json").is_file():
        pytest.skip("not run: no CPU vLLM here; `python3 scripts/provision.py vllm` installs it")
    return venv


@pytest.fixture(scope="session")
def tiny_model(vllm_venv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    writer = Path(__file__).with_name("tiny_model.py")
    subprocess.run((str(vllm_venv / "bin" / "python"), str(writer), str(folder)), check=True, timeout=120)
    return folder
