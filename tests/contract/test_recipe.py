"""Which files of a real folder or checkout count for an image's stamp, as the node's program lists them."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from cluster.agent.recipe import recipe
from cluster.plan.image import RecipeFile, belongs, stamp

pytestmark = pytest.mark.contract


def listed(folder: Path, under: list[str] | None = None) -> dict[str, Any]:
    return recipe({"folder": str(folder), "file": "Dockerfile", "under": under})


def stamp_of(folder: Path, under: list[str] | None = None) -> str:
    files = listed(folder, under)["files"]
    return stamp(RecipeFile(one["path"], one["mode"], one["digest"]) for one in files if belongs(one["path"]))


def git(folder: Path, *words: str) -> None:
    subprocess.run(("git", "-C", folder, *words), check=True, capture_output=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "steps").mkdir()
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    (tmp_path / "steps/one.sh").write_text("#!/bin/sh\n")
    (tmp_path / "steps/one.sh").chmod(0o755)
    (tmp_path / "README.md").write_text("read me")
    return tmp_path


@pytest.fixture
def checkout(folder: Path) -> Path:
    git(folder, "init", "-q")
    git(folder, "add", ".")
    return folder


def names(found: dict[str, Any]) -> list[str]:
    return sorted(one["path"] for one in found["files"])


def test_a_checkout_and_a_plain_copy_of_it_have_one_stamp(folder):
    plain = stamp_of(folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    assert stamp_of(folder) == plain


@pytest.mark.parametrize("junk", ["steps/__pycache__/a.pyc", "steps/a.so", ".git/x", "steps/one.sh~", "steps/.one.swp"])
def test_junk_does_not_move_the_stamp_of_a_plain_folder(folder, junk):
    before = stamp_of(folder)
    (folder / junk).parent.mkdir(exist_ok=True)
    (folder / junk).write_text("junk")
    assert stamp_of(folder) == before


def test_what_git_does_not_know_does_not_move_the_stamp_and_is_named(checkout):
    before = stamp_of(checkout)
    (checkout / "steps/notes.txt").write_text("mine")
    (checkout / ".gitignore").write_text("*.log\n")
    (checkout / "steps/a.log").write_text("ignored, and not worth a word")
    assert stamp_of(checkout) == before
    assert listed(checkout, ["steps"])["untracked"] == ["steps/notes.txt"]


def test_an_edit_that_is_not_committed_moves_the_stamp(checkout):
    before = stamp_of(checkout)
    (checkout / "steps/one.sh").write_text("#!/bin/sh\necho\n")
    assert stamp_of(checkout) != before


def test_the_x_bit_moves_the_stamp_and_the_umask_does_not(checkout):
    before = stamp_of(checkout)
    (checkout / "steps/one.sh").chmod(0o700)
    (checkout / "Dockerfile").chmod(0o600)
    assert stamp_of(checkout) == before
    (checkout / "steps/one.sh").chmod(0o644)
    assert stamp_of(checkout) != before


def test_only_what_counts_is_listed_and_a_deleted_file_is_not(checkout):
    assert names(listed(checkout, ["steps"])) == ["Dockerfile", "steps/one.sh"]
    (checkout / "steps/one.sh").unlink()
    assert names(listed(checkout, ["steps"])) == ["Dockerfile"]
    assert names(listed(checkout)) == ["Dockerfile", "README.md"]


def test_a_link_counts_by_where_it_leads(checkout):
    (checkout / "steps/two.sh").symlink_to("one.sh")
    git(checkout, "add", ".")
    before = stamp_of(checkout)
    (checkout / "steps/two.sh").unlink()
    (checkout / "steps/two.sh").symlink_to("../README.md")
    assert stamp_of(checkout) != before


def test_a_checkout_of_another_account_is_one_all_the_same(checkout):
    """git refuses to look at it unless it is told that it may."""
    before = stamp_of(checkout)
    (checkout / "steps/notes.txt").write_text("mine")
    try:
        subprocess.run(("chown", "-R", "65534:65534", checkout), check=True, capture_output=True)
    except subprocess.CalledProcessError:
        pytest.skip("not run: only root can give a folder away")
    assert stamp_of(checkout) == before
