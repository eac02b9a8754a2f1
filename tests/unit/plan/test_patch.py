"""Anchors found by structure, patches planned as a whole, states told from the files themselves."""

import ast
from dataclasses import replace

import pytest

from cluster.errors import Refused, SettingsError
from cluster.model.packs import PatchState
from cluster.plan.anchors import Anchor, NotPython, Place, nearest, places
from cluster.plan.patch import (
    PatchSet,
    Standing,
    Versions,
    changed_lines,
    must_be_for,
    overall,
    plan_apply,
    plan_revert,
    standing,
)
from cluster.plan.patch_file import parse_set
from cluster.plan.patched import Patch, Put, applied

SOURCE = '''\
import torch
from ops import fused

def fused_call(x):
    return fused(x, 1)

class First:
    def project(self, o, positions):
        return fused(
            o,
            positions,
            groups=self.groups,
        )

class Second:
    def project(self, o, positions):
        """Doc."""
        return fused(o, positions, groups=self.groups)

    def load(self, weights):
        for name, weight in weights:
            if is_missing(name, self):
                continue
            param = self.params[name]
'''
PROJECT = Patch(
    "dense", "m.py", "why", Put.BEFORE, "if o.is_dense:\n    return plain(o)\n",
    Anchor("return fused(..., groups=self.groups)", within="*.project"), count=2,
)  # fmt: skip
LOAD = Patch(
    "bias", "m.py", "why", Put.AFTER, "if name == 'bias':\n    continue",
    Anchor("if is_missing(name, self):\n    continue", then="param = self.params[name]"),
)  # fmt: skip
HELPER = Patch("helper", "m.py", "why", Put.END, "def helper():\n    return torch.ones(1)\n", needs=("import torch",))
OTHER = Patch("other", "n.py", "why", Put.REPLACE, "LIMIT = 4", Anchor("LIMIT = ..."))
SET = PatchSet("set", "pack", Versions("0.28", "0.33"), (PROJECT, LOAD, HELPER, OTHER))
FILES = {"m.py": SOURCE, "n.py": "LIMIT = 2\n"}


def planned(files=FILES, found=SET, receipts=(), expected=None):
    return plan_apply(found, files, receipts, expected or {}, "here")


def after(files: dict[str, str] = FILES) -> dict[str, str]:
    return {**files, **{one.file: one.after for one in planned(files)}}


@pytest.mark.parametrize(
    ("anchor", "lines"),
    [
        (Anchor("return fused(..., groups=self.groups)"), [9, 18]),
        (Anchor("return fused(...)"), [5, 9, 18]),
        (Anchor("return fused(...)", within="*.project"), [9, 18]),
        (Anchor("return fused(...)", within="First.*"), [9]),
        (Anchor("return fused(o, ...)"), [9, 18]),
        (Anchor("return fused(x, 1)"), [5]),
        (Anchor("return fused(x)"), []),
        (Anchor("def project(self, o, positions):"), [8, 16]),
        (Anchor("if is_missing(name, self):"), [22]),
        (Anchor("if is_missing(...):\n    continue", then="param = ..."), [22]),
        (Anchor("if is_missing(...):\n    continue", then="return"), []),
        (Anchor("class First:"), [7]),
        (Anchor("continue"), [23]),
    ],
)
def test_an_anchor_is_found_by_its_structure(anchor, lines):
    assert [one.first for one in places(SOURCE, anchor)] == lines


def test_a_place_has_all_its_lines_and_its_indent():
    assert places(SOURCE, Anchor("return fused(...)", within="First.*")) == (Place(9, 13, "        "),)


def test_decorators_belong_to_a_place():
    assert places("@a\n@b\ndef f():\n    pass\n", Anchor("def f():")) == (Place(1, 4, ""),)


def test_lines_of_other_languages_are_found_whatever_their_indent():
    source = "int f() {\n    _mm_pause();\n}\n"
    assert places(source, Anchor("_mm_pause();", lines=True)) == (Place(2, 2, "    "),)


@pytest.mark.parametrize("pattern", ["a = 1\nb = 2", "return (", ""])
def test_a_pattern_is_one_statement(pattern):
    with pytest.raises(NotPython):
        places(SOURCE, Anchor(pattern))


def test_what_an_anchor_may_have_become_is_named():
    assert nearest(SOURCE, Anchor("param = self.parameters[name]"))[0] == "line 24: param = self.params[name]"


def test_every_place_is_patched_and_the_file_still_parses():
    text = after()["m.py"]
    ast.parse(text)
    assert (
        text.count("        # sparkctl patch dense: begin\n        if o.is_dense:\n            return plain(o)\n") == 2
    )
    assert (
        "                continue\n            # sparkctl patch bias: begin\n            if name == 'bias':\n" in text
    )
    assert text.endswith(
        "\n\n\n# sparkctl patch helper: begin\ndef helper():\n    return torch.ones(1)\n# sparkctl patch helper: end\n"
    )
    assert after()["n.py"] == "# sparkctl patch other: begin\nLIMIT = 4\n# sparkctl patch other: end\n"


def test_receipts_chain_the_patches_of_a_file():
    edit = planned()[0]
    assert [one.id for one in edit.receipts] == ["dense", "bias", "helper"]
    assert [one.after for one in edit.receipts][:-1] == [one.before for one in edit.receipts][1:]
    assert edit.steps[0] == SOURCE


def test_what_is_patched_needs_no_edit():
    assert planned(after()) == ()


def test_a_file_says_how_it_stands():
    ids = ("dense", "bias", "helper")
    assert standing("m.py", SOURCE, SET.patches) == Standing("m.py", PatchState.PRISTINE, (), ids)
    assert standing("m.py", after()["m.py"], SET.patches) == Standing("m.py", PatchState.PATCHED, ids, ())
    some = applied(LOAD, SOURCE)
    assert standing("m.py", some, SET.patches) == Standing("m.py", PatchState.PARTIAL, ("bias",), ("dense", "helper"))
    assert standing("m.py", None, SET.patches).state is PatchState.MISSING


def test_a_set_that_was_ended_between_two_files_is_finished():
    half = {**FILES, "m.py": after()["m.py"]}
    assert [one.file for one in planned(half)] == ["n.py"]
    assert overall([PatchState.PATCHED, PatchState.PRISTINE]) is PatchState.PARTIAL


def half_patched() -> str:
    """The first of two places only."""
    begin, end = "        # sparkctl patch dense: begin\n", "        # sparkctl patch dense: end\n"
    text = after()["m.py"]
    first = text.index(begin)
    return text[:first] + text[text.index(end) + len(end) :]


WRONG: dict[str, tuple[dict[str, str | None], str]] = {
    "anchor gone": (
        {"m.py": SOURCE.replace("self.params", "self.others")},
        "m.py: bias: its anchor must be there once, and is not there",
    ),
    "anchor once": (
        {"m.py": SOURCE.replace("def project", "def other", 1)},
        "m.py: dense: its anchor must be there 2 times, and is there once (line 18)",
    ),
    "anchor three times": (
        {"m.py": SOURCE + SOURCE[SOURCE.index("class First") : SOURCE.index("class Second")]},
        "m.py: dense: its anchor must be there 2 times, and is there 3 times (line 9; line 18; line 27)",
    ),
    "half patched": ({"m.py": half_patched()}, "m.py: dense: 1 of 2 places are patched"),
    "block edited": (
        {"m.py": applied(LOAD, SOURCE).replace("== 'bias'", "== 'other'")},
        "m.py: bias: 0 of 1 places are patched, 1 blocks are not as they were written",
    ),
    "file gone": ({"n.py": None}, "n.py: the file is not there"),
    "needs gone": (
        {"m.py": SOURCE.replace("import torch\n", "")},
        "m.py: helper: wants “import torch” at the top level",
    ),
    "no Python": ({"m.py": "def f(:\n"}, "m.py: dense: line 1 does not parse"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_one_patch_that_does_not_fit_refuses_the_set(wrong):
    change, told = WRONG[wrong]
    with pytest.raises(Refused) as error:
        planned({**FILES, **change})
    assert error.value.what == "set does not fit these files, and nothing was changed"
    assert any(one.startswith(told) for one in error.value.evidence), error.value.evidence


def test_a_patch_that_breaks_the_syntax_is_refused():
    bad = replace(SET, patches=(replace(HELPER, text="def helper(:"),))
    with pytest.raises(Refused) as error:
        planned(found=bad)
    assert error.value.evidence[0].startswith("m.py: would not parse any more, line 28")


def receipts(files=FILES):
    return tuple(receipt for edit in planned(files) for receipt in edit.receipts)


def test_a_file_that_somebody_changed_is_refused_with_the_lines():
    changed = (
        after()["m.py"]
        .replace("return torch.ones(1)", "return torch.ones(2)")
        .replace("import torch", "import torch\nimport os")
    )
    with pytest.raises(Refused) as error:
        plan_revert(receipts(), {**after(), "m.py": changed}, "set", {"m.py": after()["m.py"]}, "here")
    assert error.value.evidence == (
        "m.py: somebody changed it after helper was applied",
        "m.py: line 2: + import os",
        "m.py: line 42: -     return torch.ones(1)",
        "m.py: line 42: +     return torch.ones(2)",
    )


def test_patches_are_taken_back_the_newest_first():
    back = plan_revert(receipts(), after(), "set", {}, "here")
    assert [one.id for one in back] == ["other", "helper", "bias", "dense"]


def test_a_set_below_another_one_is_not_taken_back():
    mine = receipts()
    later = replace(mine[2], patches="later", id="z", before=mine[2].after, after="0")
    files = {**after()}
    with pytest.raises(Refused) as error:
        plan_revert((*mine, later), files, "set", {}, "here")
    assert error.value.evidence[0] == "m.py: later was applied after it; revert that first"


def test_a_receipt_of_a_file_that_was_never_written_is_no_drift():
    assert [one.file for one in planned(FILES, receipts=receipts())] == ["m.py", "n.py"]


def test_lines_that_changed_are_numbered_as_the_file_has_them():
    assert changed_lines("a\nb\nc\n", "a\nx\nc\nd\n") == ("line 2: - b", "line 2: + x", "line 4: + d")


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("0.28.0", True),
        ("0.28.1rc1.dev324+ga56654d6d", True),
        ("0.32.0+cpu", True),
        ("0.27.9", False),
        ("0.33", False),
        ("", False),
    ],
)
def test_a_set_is_for_some_versions(version, fits):
    if fits:
        must_be_for(SET, version, "here")
    else:
        with pytest.raises(Refused, match=r"set is for pack from 0\.28 and below 0\.33, installed is"):
            must_be_for(SET, version, "here")


GOOD = {"id": "a", "file": "m.py", "reason": "r", "put": "before", "find": "x = 1", "text": "y = 2\n"}


def test_a_set_is_read_from_a_file():
    tree = {
        "package": "p",
        "versions": {"from": "1"},
        "patches": [GOOD, {**GOOD, "id": "b", "count": "3", "needs": ["import a"]}],
    }
    assert parse_set("s", tree, "f") == PatchSet(
        "s", "p", Versions("1"),
        (
            Patch("a", "m.py", "r", Put.BEFORE, "y = 2\n", Anchor("x = 1")),
            Patch("b", "m.py", "r", Put.BEFORE, "y = 2\n", Anchor("x = 1"), 3, ("import a",)),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("patches", "told"),
    [
        ([], "a set has a list of patches"),
        ([GOOD, GOOD], "two patches have the same id: a, a"),
        ([{**GOOD, "colour": "x"}], "a patch has no colour"),
        ([{**GOOD, "put": "beside"}], "put is one of before, after, replace, end, not beside"),
        ([{**GOOD, "find": ""}], "find is missing"),
        ([{**GOOD, "reason": ""}], "reason is missing"),
        ([{**GOOD, "count": "0"}], "count is a number from 1 on, not 0"),
        ([{**GOOD, "file": "../m.py"}], "a file is named relative to the package, not ../m.py"),
        (["text"], "patches maps names to values"),
    ],
)
def test_a_wrong_set_is_named(patches, told):
    with pytest.raises(SettingsError) as error:
        parse_set("s", {"package": "p", "patches": patches}, "f")
    assert error.value.what == told
