"""The import contracts bite: each wrong import, in a copy of the package, is named by the contract it breaks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract

ROOT = Path(__file__).resolve().parents[2]
WRONG = [
    ("model/units.py", "import os", "The core does no input or output"),
    ("plan/launch.py", "import subprocess", "The core does no input or output"),
    ("probe/base.py", "import time", "The core does no input or output"),
    ("model/receipt.py", "from cluster.node.base import Node", "Layers point one way"),
    ("runtime/base.py", "from cluster.plan.boot import Boot", "Layers point one way"),
    ("report/base.py", "from cluster.cli.options import Options", "Layers point one way"),
    ("node/base.py", "from cluster.probe.base import Probe", "The shell does not decide"),
    ("report/base.py", "from cluster.plan.boot import Boot", "The shell does not decide"),
    ("agent/lock.py", "from cluster.model.units import Bytes", "What is sent to a node stands alone"),
    ("app/logs.py", "import paramiko", "One door to each outside library"),
    ("cli/main.py", "import rich", "One door to each outside library"),
    ("app/session.py", "from cluster.app.start import start", "No cycles anywhere"),
]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """`lint-imports`, with the copy before everything else on the path."""
    tool = Path(sys.executable).with_name("lint-imports")
    if not tool.exists():
        pytest.skip(f"not run: import-linter is not beside {sys.executable}")
    environment = dict(os.environ, PYTHONPATH=str(folder), PYTHONSAFEPATH="1")
    return subprocess.run(
        [tool, "--no-cache"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "cluster", tmp_path / "cluster", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def broken(said: str) -> list[str]:
    """A line is `NAME BROKEN`, and then perhaps how many imports are let pass."""
    return [line.partition(" BROKEN")[0] for line in said.splitlines() if " BROKEN" in line]


def test_the_package_keeps_its_contracts(copy):
    done = lint(copy)
    assert (done.returncode, broken(done.stdout)) == (0, []), done.stdout + done.stderr


@pytest.mark.parametrize(("module", "line", "contract"), WRONG, ids=[f"{one[0]}: {one[1]}" for one in WRONG])
def test_a_wrong_import_is_named_by_the_contract_it_breaks(copy, module, line, contract):
    path = copy / "cluster" / module
    path.write_text(f"{path.read_text()}\n{line}\n")
    done = lint(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert contract in broken(done.stdout)
    assert path.stem in done.stdout.rpartition("Broken contracts")[2]
