"""What may go: only what sparkctl has fetched, and nobody needs."""

import json
from dataclasses import replace

import pytest

from cluster.errors import Unreadable
from cluster.model.weights import HeldFolder
from cluster.plan.weights_life import may_go, parse_holdings, preview

OLD = HeldFolder("head", "/data/old", "org/m", "0123abc", 2, 600, 7)


def test_nothing_goes_that_somebody_needs():
    needed = [
        replace(OLD, claims=("vllm (pid 7)",)),
        replace(OLD, pin="to compare"),
        replace(OLD, lease="`sparkctl fetch` by ann"),
        replace(OLD, repo=""),
    ]
    assert [may_go(one) for one in (OLD, *needed)] == [True, False, False, False, False]


def test_a_preview_says_what_it_would_free_and_may_be_of_one_folder():
    other = replace(OLD, path="/data/other")
    assert [one.freed for one in preview((OLD, other))] == [607, 607]
    assert [one.freed for one in preview((OLD, other), "/data/other")] == [None, 607]


def test_settings_that_name_a_folder_claim_it_and_absent_folders_are_left_out():
    said = {
        "path": "/data/m",
        "present": True,
        "named": True,
        "repo": "org/m",
        "revision": "0123abc",
        "files": 1,
        "size": 2,
        "partial": 0,
        "pin": "",
        "lease": "",
        "claims": ["vllm (pid 7)"],
        "blind": 3,
    }
    text = json.dumps([said, said | {"present": False}])
    assert parse_holdings("head", text, "demo") == (
        HeldFolder(
            "head", "/data/m", "org/m", "0123abc", 1, 2, claims=("the settings of demo", "vllm (pid 7)"), blind=3
        ),
    )


def test_a_damaged_answer_is_told_as_such():
    with pytest.raises(Unreadable):
        parse_holdings("head", '[{"path": 1}]', "demo")
