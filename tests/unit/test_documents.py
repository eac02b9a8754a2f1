"""What people read says what is so: links lead somewhere, verbs have pages, what is missing is named as missing."""

import re
from pathlib import Path

import pytest

from cluster.cli.commands import VERBS
from cluster.errors import Exit

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "cluster" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_every_verb_has_a_page_that_the_readme_names():
    readme = (ROOT / "README.md").read_text()
    pages = [f"docs/{verb.name}.md" for verb in VERBS]
    assert [page for page in pages if not (ROOT / page).exists() or f"({page})" not in readme] == []


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    pages = sorted(page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md")
    assert [page for page in pages if f"({page})" not in index] == []


def test_every_exit_code_is_on_its_page():
    page = (ROOT / "docs" / "exit-codes.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \| `(\w+)`", page, re.MULTILINE))
    assert rows == {str(int(code)): code.name for code in Exit}


def test_the_map_names_every_folder_and_no_file_that_is_not_there():
    text = (ROOT / "cluster" / "README.md").read_text()
    folders = [one.name for one in (ROOT / "cluster").iterdir() if (one / "__init__.py").exists()]
    named = re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?|\w+\.py)`", text.partition("## Where the built shape")[0])
    assert [name for name in folders if f"`{name}/`" not in text] == []
    assert [name for name in named if not (ROOT / "cluster" / name).exists() and not (ROOT / name).exists()] == []
