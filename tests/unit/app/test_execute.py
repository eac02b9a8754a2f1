"""Acting on a stage: order, what is undone, how a command is shown."""

import shlex
from pathlib import PurePosixPath

import pytest

from cluster.app.execute import Transaction, render
from cluster.app.session import Session
from cluster.errors import StepFailed
from cluster.model.events import Event, Severity, StepStarted, Told
from cluster.model.settings import NodeSettings
from cluster.model.steps import Command, Run, Stage, Write
from cluster.node.base import Result
from tests.build import pair
from tests.fakes.node import FakeNode


class Two:
    """spark-a and spark-b, which do what they are told, in one list of what was done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.events: list[Event] = []
        self.fails: dict[str, Result] = {}
        self.nodes = {
            name: FakeNode(name, {("do",): self._act(name), ("undo",): self._act(name)})
            for name in ("spark-a", "spark-b")
        }
        self.session = Session(pair(), self._open).open()
        self.transaction = Transaction(self.session, self.events.append)

    def _open(self, node: NodeSettings) -> FakeNode:
        return self.nodes[node.name]

    def _act(self, name: str):
        def act(command: Command) -> Result:
            what = " ".join((name, *command.argv))
            self.done.append(what)
            return self.fails.get(what, Result(0, b"ok", b""))

        return act


def step(node: str, word: str, *, undo: bool = True) -> Run:
    return Run(node, f"do {word}", Command(("do", word)), undo=Command(("undo", word)) if undo else None)


ORDERED = Stage("launch", (step("spark-b", "1"), step("spark-a", "2"), step("spark-b", "3")), in_order=True)


def test_steps_in_order_wait_for_each_other_across_nodes():
    two = Two()
    results = two.transaction.run(ORDERED)
    assert two.done == ["spark-b do 1", "spark-a do 2", "spark-b do 3"]
    assert {name: len(found) for name, found in results.items()} == {"spark-b": 2, "spark-a": 1}


def test_steps_of_one_node_keep_their_order_beside_the_other_nodes():
    two = Two()
    two.transaction.run(Stage("prepare", ORDERED.steps))
    assert [what for what in two.done if what.startswith("spark-b")] == ["spark-b do 1", "spark-b do 3"]


def test_undo_goes_backwards():
    two = Two()
    two.transaction.run(ORDERED)
    assert two.transaction.undo() == ()
    assert two.done[3:] == ["spark-b undo 3", "spark-a undo 2", "spark-b undo 1"]


def test_what_is_undone_is_undone_once():
    two = Two()
    two.transaction.run(ORDERED)
    two.transaction.undo()
    two.transaction.undo()
    assert len(two.done) == 6


def test_the_step_that_failed_is_undone_too_and_later_ones_never_begin():
    two = Two()
    two.fails["spark-a do 2"] = Result(3, b"", b"line 1\nno space left")
    with pytest.raises(StepFailed) as caught:
        two.transaction.run(ORDERED)
    assert (caught.value.what, caught.value.where, caught.value.evidence) == (
        "do 2 failed with exit code 3",
        "spark-a",
        ("line 1", "no space left"),
    )
    two.transaction.undo()
    assert two.done == ["spark-b do 1", "spark-a do 2", "spark-a undo 2", "spark-b undo 1"]


def test_what_is_kept_is_not_undone():
    two = Two()
    two.transaction.run(ORDERED)
    two.transaction.keep()
    two.transaction.undo()
    assert len(two.done) == 3


def test_an_undo_that_fails_is_told_and_the_rest_goes_on():
    two = Two()
    two.fails["spark-a undo 2"] = Result(5, b"{}", b"a process is left")
    two.transaction.run(ORDERED)
    (failure,) = two.transaction.undo()
    assert failure.what == "undoing: do 2 failed with exit code 5"
    assert two.events[-1] == Told(
        Severity.WARNING, "could not undo “do 2”: undoing: do 2 failed with exit code 5", "spark-a"
    )
    assert two.done[-1] == "spark-b undo 1"


def test_a_step_without_an_undo_is_left():
    two = Two()
    two.transaction.run(Stage("launch", (step("spark-a", "1", undo=False),), in_order=True))
    two.transaction.undo()
    assert two.done == ["spark-a do 1"]


def test_a_file_is_written_with_its_mode_and_each_step_is_told():
    two = Two()
    write = Write("spark-b", "write it", PurePosixPath("~/spec.json"), b"{}", 0o600)
    two.transaction.run(Stage("prepare", (write,)))
    assert two.nodes["spark-b"].files == {"/home/fake/spec.json": b"{}"}
    assert two.nodes["spark-b"].modes == {"/home/fake/spec.json": 0o600}
    assert two.events == [StepStarted("prepare", "spark-b", "write it")]


def test_a_command_is_shown_as_it_could_be_pasted():
    command = Command(("run", "two words"), env=(("A", "b c"),), stdin=b"12345")
    assert render(command, shlex.quote) == "A='b c' run 'two words' < (5 bytes)"
