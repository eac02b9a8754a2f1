"""Evicting a model's files from the page cache, on a real one; what stays in memory is counted page by page."""

import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cluster.agent import drop
from cluster.app.agents import source

pytestmark = pytest.mark.contract
MIB = 1 << 20


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two shards and a file beside them, written through and read, so that all their pages are in memory."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name, size in (("a.safetensors", MIB), ("b.safetensors", MIB), ("tokenizer.json", MIB), ("odd.safetensors", 5)):
        path = folder / name
        path.write_bytes(os.urandom(size))
        with path.open("rb") as file:
            os.fsync(file.fileno())
            file.read()
    if not drop.resident(str(folder / "a.safetensors")):
        pytest.skip("not run: the file system here keeps no page cache")
    return folder


def resident(folder: Path) -> dict[str, int | None]:
    return {one.name: drop.resident(str(one)) for one in sorted(folder.iterdir())}


def run(**want):
    program = [sys.executable, "-I", "-", json.dumps({"all": False, "price": False} | want)]
    done = subprocess.run(program, input=source("drop"), capture_output=True, check=True)
    return json.loads(done.stdout)


def test_only_the_named_folders_shards_leave_the_page_cache(model, tmp_path):
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"x" * MIB)
    before = {"a.safetensors": MIB, "b.safetensors": MIB, "odd.safetensors": 5, "tokenizer.json": MIB}
    assert resident(model) == before
    said = run(folders=[str(model)])
    assert resident(model) == {"a.safetensors": 0, "b.safetensors": 0, "odd.safetensors": 0, "tokenizer.json": MIB}
    assert drop.resident(str(other)) == MIB
    assert (said["files"], said["size"], said["resident_before"]) == (3, 2 * MIB + 5, 2 * MIB + 5)
    assert (said["resident_after"], said["kept"], said["rate"]) == (0, [], None)


def test_hard_links_share_their_pages_so_that_what_is_served_goes_too(model, tmp_path):
    served = tmp_path / "export"
    served.mkdir()
    os.link(model / "a.safetensors", served / "a.safetensors")
    run(folders=[str(model)])
    assert drop.resident(str(served / "a.safetensors")) == 0


def test_links_of_a_download_cache_are_followed(model, tmp_path):
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "a.safetensors").symlink_to(model / "a.safetensors")
    assert run(folders=[str(snapshot)])["resident_before"] == MIB
    assert (drop.resident(str(model / "a.safetensors")), drop.resident(str(model / "b.safetensors"))) == (0, MIB)


def test_a_file_that_somebody_maps_keeps_its_pages_and_is_named(model):
    with (model / "a.safetensors").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert sum(mapped[at] for at in range(0, MIB, 4096)) >= 0
        said = run(folders=[str(model)])
    assert (said["kept"], said["resident_after"]) == (["a.safetensors"], MIB)


def test_the_price_is_measured_and_leaves_nothing_behind(model):
    said = run(folders=[str(model)], price=True)
    assert said["rate"] > 0
    assert resident(model)["a.safetensors"] == 0


def test_a_stranger_is_not_told_how_much_is_in_memory():
    """Linux tells who may not write a file that all of it is resident; that is no answer."""
    python = "/usr/bin/python3"  # that of a virtual environment may lie where strangers cannot look
    if os.geteuid() != 0 or shutil.which("setpriv") is None or not Path(python).exists():
        pytest.skip("not run: needs root, setpriv and /usr/bin/python3, to become somebody else")
    become = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", python, "-I", "-")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # where others may look, unlike pytest's own
        Path(folder).chmod(0o755)
        (Path(folder) / "a.safetensors").write_bytes(b"x" * MIB)
        argv = [*become, json.dumps({"folders": [folder], "all": False, "price": False})]
        done = subprocess.run(argv, input=source("drop"), capture_output=True, check=True)
    said = json.loads(done.stdout)
    assert (said["files"], said["resident_before"], said["kept"]) == (1, None, [])
