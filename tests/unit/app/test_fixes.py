"""A fix changes one value, remembers it, and its undo goes back to exactly that."""

import json

import pytest

from cluster.app.fixes import fix, undo
from cluster.errors import SettingsError
from cluster.model.settings import NodeSettings
from cluster.node.base import Node, Result
from tests.fakes.cluster import FakeCluster
from tests.fakes.node import FakeNode


class Sysctl:
    """The cluster, whose nodes have one kernel value each, and programs to read and set it."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.values = {"spark-a": "67584", "spark-b": "1048576"}
        self.refuses = False

    def open(self, settings: NodeSettings) -> Node:
        node = self.cluster.open(settings)
        assert isinstance(node, FakeNode)
        name = settings.name
        host = f"kernel\t6.17\nuid\t1000\nuser\top\nmin_free\t{self.values[name]}\n"

        def python(command):
            answered = self.cluster[name].answer(command)
            if b"Answer many questions" not in command.stdin:
                return answered
            told = json.loads(answered.out)
            for question, answer in zip(json.loads(command.argv[-1]), told, strict=True):
                if "min_free" in str(question):
                    answer["out"] = host
            return Result(0, json.dumps(told).encode(), b"")

        def sysctl(command):
            if self.refuses:
                return Result(1, b"", b"sudo: a password is required\n")
            self.values[name] = command.argv[-1].partition("=")[2]
            return Result(0, b"", b"")

        node.answers = {
            **node.answers,
            ("python3",): python,
            ("cat",): lambda command: Result(0, self.values[name].encode() + b"\n", b""),
            ("sudo",): sysctl,
        }
        return node

    def record(self) -> list[dict[str, str]]:
        host = self.cluster["spark-a"]
        kept: list[dict[str, str]] = json.loads(host.files["/home/op/.local/state/sparkctl/fixes.json"])
        return kept

    def run(self, act):
        return act(self.cluster.settings, self.open, self.cluster.emit, "HOST.MIN_FREE", self.cluster.pace)


def test_a_fix_changes_the_nodes_that_need_it_and_undo_takes_exactly_that_back():
    nodes = Sysctl()
    done = nodes.run(fix)
    assert [(one.node, one.before, one.after) for one in done.changes] == [("spark-a", "67584", "1048576")]
    assert (nodes.values, len(nodes.record())) == ({"spark-a": "1048576", "spark-b": "1048576"}, 1)
    back = nodes.run(undo)
    assert back.changes == done.changes
    assert (nodes.values, nodes.record()) == ({"spark-a": "67584", "spark-b": "1048576"}, [])


def test_undo_leaves_a_value_alone_that_somebody_changed_since():
    nodes = Sysctl()
    nodes.run(fix)
    nodes.values["spark-a"] = "2097152"
    back = nodes.run(undo)
    assert (back.changes, back.left) == (
        (),
        ("spark-a: vm.min_free_kbytes until the next boot is 2097152 now, not the 1048576 that was set; left alone",),
    )
    assert len(nodes.record()) == 1


def test_a_fix_that_is_not_allowed_changes_nothing_and_leaves_no_record():
    nodes = Sysctl()
    nodes.refuses = True
    done = nodes.run(fix)
    assert (done.changes, nodes.record()) == ((), [])
    assert done.left == (
        "spark-a: `sudo -n sysctl -w vm.min_free_kbytes=1048576` failed: sudo: a password is required",
    )


def test_undo_of_nothing_does_nothing():
    assert Sysctl().run(undo).changes == ()


def test_a_check_without_a_safe_fix_is_refused_with_what_to_do_by_hand():
    cluster = FakeCluster()
    with pytest.raises(SettingsError) as caught:
        fix(cluster.settings, cluster.open, cluster.emit, "FABRIC.MTU", cluster.pace)
    assert caught.value.what == "FABRIC.MTU has no fix that is safe to apply for you"
    with pytest.raises(SettingsError, match=r"did you mean HOST\.KHO"):
        fix(cluster.settings, cluster.open, cluster.emit, "HOST.KHOO", cluster.pace)
