import json

import pytest

from cluster.errors import Refused, Unreadable
from cluster.model.kit import Weights
from cluster.model.nodes import NodeSettings
from cluster.model.steps import Plan
from cluster.share.base import Folder, ReadThrough, Want
from cluster.share.inplace import InplaceShare

FOLDER = Folder("the model", "model", "/data/m", {"b": "/mnt/shared/m"})
WANT = Want("demo", NodeSettings(name="a"), (NodeSettings(name="b"),), (FOLDER,), Weights())
SHARE = InplaceShare(lambda *parts: " ".join(parts).encode())


def seen(problem: str = "", kind: str = "fuse.sshfs"):
    there = {"path": "/mnt/shared/m", "kind": kind, "problem": problem}
    head = {"path": "/data/m", "kind": "ext4", "problem": ""}
    said = {"a": {"model": head}, "b": {"model": there}}
    return {node: SHARE.read(WANT, node, json.dumps(one)) for node, one in said.items()}


def test_every_node_is_asked_about_its_own_path():
    asked = SHARE.look(WANT)
    assert {node: json.loads(one.argv[-1]) for node, one in asked.items()} == {
        "a": {"paths": {"model": "/data/m"}},
        "b": {"paths": {"model": "/mnt/shared/m"}},
    }


def test_nothing_is_done_and_the_file_system_is_told():
    assert SHARE.attach(WANT, seen()) == SHARE.detach(WANT, seen()) == Plan(())
    assert SHARE.how(WANT, FOLDER, "b", seen(), ReadThrough("fuse.sshfs")) == "in place, on fuse.sshfs"
    assert SHARE.notes(WANT, seen()) == ()


def test_a_folder_that_cannot_be_read_is_a_refusal():
    with pytest.raises(Refused) as refused:
        SHARE.attach(WANT, seen("the file server does not answer"))
    assert refused.value.evidence == ("b:/mnt/shared/m: the file server does not answer",)


def test_words_that_are_no_answer_are_told_as_such():
    with pytest.raises(Unreadable):
        SHARE.read(WANT, "b", "Traceback")
