"""Tables in files, from a pack to a token: real vLLM with the overlay as its plugin, and wrong packs refused."""

from __future__ import annotations

import subprocess
import tomllib
from typing import TYPE_CHECKING

import pytest

from cluster.weights.packed import Fault
from tests.contract.checkpoint import write_checkpoint
from tests.lab.cli import Cli
from tests.lab.nodes import Lab
from tests.lab.specification import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.lab

MODEL = REPOSITORY / "scripts" / "demo_model" / "model"
ROWS = "/var/engram"
OVERLAY = REPOSITORY / "overlay"
PROOF = "active in vLLM 0.32.0: engram=file"


@pytest.fixture(scope="module")
def ground(vllm_venv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with tables, and two environments of vLLM with the overlay, one of which does not load it."""
    folder = tmp_path_factory.mktemp("engram")
    write_checkpoint(folder / "tables")
    for name in ("venv", "silent"):
        make_venv(folder / name, vllm_venv)
    next((folder / "silent").glob("lib/*/site-packages/*.dist-info/entry_points.txt")).unlink()
    return folder


def make_venv(venv: Path, server: Path) -> None:
    subprocess.run((server / "bin" / "python", "-m", "venv", "--without-pip", venv), check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (theirs,) = server.glob("lib/python*/site-packages")
    (site / "server.pth").write_text(f"{theirs}\n")
    script = (server / "bin" / "vllm").read_text().split("\n", 1)[1]
    (venv / "bin" / "vllm").write_text(f"#!{venv}/bin/python\n{script}")
    (venv / "bin" / "vllm").chmod(0o755)
    install_overlay(site)


def install_overlay(site: Path) -> None:
    """What its wheel holds: the package with the compiled row store, its name and its entry points."""
    project = tomllib.loads((OVERLAY / "pyproject.toml").read_text())["project"]
    subprocess.run(("cp", "-r", OVERLAY / "spark_overlay", site), check=True)
    subprocess.run(("make", "-s", "-C", OVERLAY / "csrc", f"BUILD={site / 'spark_overlay'}"), check=True)
    about = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{a} = {b}\n" for a, b in names.items()) for group, names in points.items()]
    (about / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def lab(lab_ground: None, ground: Path) -> Iterator[Lab]:
    with Lab.up(lent=(ground,), small_disk_size="320m") as nodes:  # sparkctl wants 256 MiB for logs
        yield nodes


def command(lab: Lab, ground: Path, venv: str) -> Cli:
    places = {"ENGRAM_DIR": f"{ground}/tables", "WORKER_ENGRAM_DIR": f"{ground}/tables"}
    rows = {"HEAD_PACKED_DIR": ROWS, "WORKER_PACKED_DIR": ROWS}
    nodes = {"HEAD_IP": "10.77.0.1", "WORKER_IP": "10.77.0.2", "WORKER_SSH": "spark-b", "HOST": "fabric"}
    served = {"RECIPE": "demo", "MODEL_DIR": str(MODEL), "VENV": f"{ground}/{venv}", "STOP_GRACE": "60s"}
    return Cli(lab.a, served | nodes | places | rows)


def test_a_pack_that_is_wrong_is_refused_by_name_before_any_rank_starts(lab: Lab, ground: Path) -> None:
    sparkctl = command(lab, ground, "venv")
    packed = sparkctl("pack", "--reserve", "0")
    assert packed.code == 0, packed.events[-1]
    right = lab.b.path(f"{ROWS}/engram-l14-r1of2.bin")
    kept = right.read_bytes()
    for wrong, fault in (
        (kept[:-1], Fault.TRUNCATED),
        (lab.a.path(f"{ROWS}/engram-l14-r0of2.bin").read_bytes(), Fault.WRONG_ROWS),
        (lab.b.path(f"{ROWS}/engram-l1-r1of2.bin").read_bytes(), Fault.WRONG_LAYER),
        (bytes([kept[0] ^ 1]) + kept[1:], Fault.NOT_PACKED),
        (kept[:2000] + b"\1" + kept[2001:], Fault.DAMAGED_HEADER),
    ):
        right.write_bytes(wrong)
        refused = sparkctl("start")
        assert refused.code == 4, str(refused.result)
        said = [one for one in refused.failed["evidence"] if "engram-l14-r1of2.bin" in one]
        assert [fault.value in one for one in said] == [True], str(refused.failed)
        assert (lab.a.processes(), lab.b.processes()) == ((), ())
    right.write_bytes(kept[:50_000] + bytes([kept[50_000] ^ 1]) + kept[50_001:])
    refused = sparkctl("start")
    assert (
        refused.code,
        [one for one in refused.failed["evidence"] if "engram-l14-r1of2.bin was written to" in one] != [],
    ) == (4, True)
    assert (lab.a.processes(), lab.b.processes()) == ((), ())
    assert sparkctl("pack", "--check").code == 4
    assert sparkctl("pack", "--reserve", "0").code == 0
    assert right.read_bytes() == kept


def test_a_start_serves_once_every_rank_has_said_that_the_overlay_is_active(lab: Lab, ground: Path) -> None:
    sparkctl = command(lab, ground, "venv")
    assert sparkctl("pack", "--reserve", "0").code == 0
    served = sparkctl("start")
    assert (served.code, served.result["event"]) == (0, "served"), str(served.result)
    log = sparkctl("logs", "--lines", "100000").events
    assert {one["rank"] for one in log if PROOF in str(one)} == {0, 1}
    assert sparkctl("stop").code == 0
    assert (lab.a.processes(), lab.b.processes()) == ((), ())


def test_a_server_that_does_not_load_the_overlay_never_counts_as_serving(lab: Lab, ground: Path) -> None:
    """It would answer all the same: the tables in its memory, or wrong."""
    sparkctl = command(lab, ground, "silent")
    assert sparkctl("pack", "--reserve", "0").code == 0
    ended = sparkctl("start")
    assert (ended.code, ended.failed["error"]) == (6, "RankDied"), str(ended.result)
    missing = "no line `spark_overlay ... active in vLLM ...: engram=file`"
    assert ended.failed["evidence"] == [f"rank {rank}: {missing}" for rank in (0, 1)]
    assert (lab.a.processes(), lab.b.processes()) == ((), ())
