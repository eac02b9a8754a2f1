"""`patch` on real files in a package that is laid out as an installed one."""

import os
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.app import patch
from cluster.config.load import load
from cluster.errors import Refused, SettingsError, SparkctlError, Unreadable
from cluster.model.need import Need
from cluster.model.packs import PatchState
from cluster.model.settings import NodeSettings
from cluster.node.base import Node
from cluster.node.local import LocalNode

pytestmark = pytest.mark.contract
SETTINGS = load(Path("/nowhere"), environ={}, need=Need.NOTHING).settings
A = "def f(x):\n    return slow(x)\n"
B = "LIMIT = 2\n"
SET = """\
package: demo
versions: {from: "1.0", below: "2"}
patches:
  - id: fast
    file: a.py
    reason: slow is slow
    find: return slow(...)
    put: before
    text: |
      if x:
          return fast(x)
  - id: limit
    file: sub/b.py
    reason: two are too few
    find: LIMIT = 2
    put: replace
    text: LIMIT = 4
"""


def open_here(settings: NodeSettings) -> Node:
    return LocalNode(settings.name)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A virtual environment with a package `demo`, and a set of patches beside it."""
    root = tmp_path / "venv" / "lib" / "python3.12" / "site-packages" / "demo"
    (root / "sub").mkdir(parents=True)
    (root.parent / "demo-1.4.2.dist-info").mkdir()
    (root / "a.py").write_text(A)
    (root / "sub" / "b.py").write_text(B)
    (tmp_path / "set.yaml").write_text(SET)
    (tmp_path / "later.yaml").write_text(
        SET.replace("id: fast", "id: faster").replace("return fast(x)", "return faster(x)").split("  - id: limit")[0]
    )
    return root


def act(what: str, site: Path, name: str = "set.yaml", **more: Any):
    act_on = {"status": patch.status, "apply": patch.apply, "revert": patch.revert}[what]
    venv = site.parents[3]
    settings = replace(SETTINGS, launch=replace(SETTINGS.launch, venv=str(venv)))
    return act_on(settings, open_here, str(venv.parent / name), **more)


def test_apply_status_revert(site):
    assert act("status", site).state is PatchState.PRISTINE
    report = act("apply", site)
    assert (report.state, report.changed, report.version) == (PatchState.PATCHED, 2, "1.4.2")
    assert (site / "a.py").read_text() == textwrap.dedent("""\
        def f(x):
            # sparkctl patch fast: begin
            if x:
                return fast(x)
            # sparkctl patch fast: end
            return slow(x)
        """)
    assert act("status", site).state is PatchState.PATCHED
    assert act("apply", site).changed == 0
    report = act("revert", site)
    assert (report.state, report.changed) == (PatchState.PRISTINE, 2)
    assert ((site / "a.py").read_text(), (site / "sub" / "b.py").read_text()) == (A, B)
    assert act("revert", site).changed == 0


def test_two_sets_on_one_file_go_back_in_reverse_order(site):
    act("apply", site)
    act("apply", site, "later.yaml")
    with pytest.raises(Refused, match="not as the patches left them"):
        act("revert", site)
    act("revert", site, "later.yaml")
    act("revert", site)
    assert (site / "a.py").read_text() == A


def test_a_run_that_was_ended_is_finished_by_the_next(site):
    act("apply", site)
    (site / "sub" / "b.py").write_text(B)  # as if it had ended before this file
    assert act("status", site).state is PatchState.PARTIAL
    assert act("apply", site).changed == 1
    act("revert", site)
    assert (site / "sub" / "b.py").read_text() == B


def test_a_hard_link_into_a_package_cache_is_not_written_through(site, tmp_path):
    os.link(site / "a.py", tmp_path / "cached.py")
    act("apply", site)
    assert (tmp_path / "cached.py").read_text() == A


@pytest.mark.parametrize(
    "wrong", ["drifted", "edited after", "old version", "no package", "no set", "receipts", "half"]
)
def test_what_does_not_fit_changes_nothing(wrong, site):
    kind: type[SparkctlError] = Refused
    what, name = "apply", "set.yaml"
    match wrong:
        case "drifted":
            (site / "sub" / "b.py").write_text("LIMIT = 3\n")
            text = "set does not fit these files"
        case "edited after":
            act("apply", site)
            (site / "a.py").write_text((site / "a.py").read_text() + "import os\n")
            what, text = "revert", "the files are not as the patches left them"
        case "old version":
            (site.parent / "demo-1.4.2.dist-info").rename(site.parent / "demo-0.9.dist-info")
            text = "set is for demo from 1.0 and below 2, installed is 0.9"
        case "no package":
            site.rename(site.with_name("other"))
            kind, text = SettingsError, "demo is not there"
        case "no set":
            kind, name, text = SettingsError, "none.yaml", "cannot be read"
        case "receipts":
            (site / patch.RECEIPTS).write_text("{")
            kind, text = Unreadable, "the receipts of applied patches are damaged"
        case _:
            act("apply", site)
            (site / "a.py").write_text((site / "a.py").read_text().replace("if x:", "if y:"))
            text = "set does not fit these files"
    before = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    with pytest.raises(kind) as error:
        act(what, site, name)
    assert text in error.value.what
    assert {path: path.read_bytes() for path in site.rglob("*") if path.is_file()} == before


def test_another_version_may_be_tried(site):
    (site.parent / "demo-1.4.2.dist-info").rename(site.parent / "demo-7.dist-info")
    assert act("apply", site, any_version=True).state is PatchState.PATCHED


@pytest.mark.parametrize("name", patch.patch_sets())
def test_the_sets_that_we_ship_are_read(name):
    assert patch.read_set(name).patches
