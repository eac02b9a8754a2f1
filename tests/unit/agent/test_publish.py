"""Trees of hard links: made whole, and taken away without the last copy of anything that nobody replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.agent import publish

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "m"
    (folder / "sub").mkdir(parents=True)
    for name in ("config.json", "one.safetensors", "sub/two.safetensors"):
        (folder / name).write_text(name)
    publish.main({"source": str(folder), "root": str(folder / ".sparkctl/export"), "tree": "m.1"})
    return folder


def take_away(source: Path) -> None:
    root = source / ".sparkctl/export"
    publish.main({"source": str(source), "root": str(root), "gone": ["m.1"], "folders": [str(root), str(root.parent)]})


def files(folder: Path) -> dict[str, str]:
    return {str(each.relative_to(folder)): each.read_text() for each in folder.rglob("*") if each.is_file()}


def test_a_tree_is_of_links_to_the_files(source: Path) -> None:
    tree = source / ".sparkctl/export/m.1"
    assert files(tree) == {name: name for name in ("config.json", "one.safetensors", "sub/two.safetensors")}
    assert all((tree / name).samefile(source / name) for name in files(tree))
    assert list(tree.parent.iterdir()) == [tree]


def test_a_tree_that_is_taken_away_leaves_the_files_alone(source: Path) -> None:
    take_away(source)
    assert files(source) == {name: name for name in ("config.json", "one.safetensors", "sub/two.safetensors")}
    assert not (source / ".sparkctl").exists()


def test_a_file_that_was_replaced_since_goes_with_its_tree(source: Path) -> None:
    (source / "new").write_text("other")
    (source / "new").rename(source / "sub/two.safetensors")
    take_away(source)
    assert files(source) == {
        "config.json": "config.json",
        "one.safetensors": "one.safetensors",
        "sub/two.safetensors": "other",
    }
    assert not (source / ".sparkctl").exists()


def test_a_file_that_was_removed_since_stays_in_its_tree_and_is_told(source: Path) -> None:
    (source / "sub/two.safetensors").unlink()
    top = source / ".sparkctl/export/m.1"
    with pytest.raises(SystemExit) as told:
        take_away(source)
    assert told.value.code == (
        f"{top}: 1 files are nowhere else any more (sub/two.safetensors), and stay there: "
        f"move them back to {source}, or remove them"
    )
    assert files(top) == {"sub/two.safetensors": "sub/two.safetensors"}
