"""All nodes side by side: what becomes of failures, of Ctrl-C, of connections."""

from threading import Barrier

import pytest

from cluster.app.session import Session, locate
from cluster.errors import HostKeyUnknown, SettingsError, StepFailed, Unreachable
from cluster.model.events import Event, Severity, Told
from cluster.model.settings import NodeSettings
from cluster.model.steps import Command
from cluster.node.base import Node
from tests.build import pair
from tests.fakes.node import FakeNode

LOOK = Command(("look",))


class Machines:
    """Named fake nodes; `wrong` names those that cannot be opened."""

    def __init__(self, **wrong: Exception) -> None:
        self.wrong = {name.replace("_", "-"): error for name, error in wrong.items()}
        self.opened: list[FakeNode] = []

    def open(self, node: NodeSettings) -> Node:
        if node.name in self.wrong:
            raise self.wrong[node.name]
        self.opened.append(FakeNode(node.name, {("look",): f"{node.name} looked"}))
        return self.opened[-1]


def looked(node: Node) -> str:
    return node.run(LOOK).text


def test_every_node_is_asked_and_answers_come_by_name():
    with Session(pair(), Machines().open) as session:
        assert session.each(looked) == {"spark-a": "spark-a looked", "spark-b": "spark-b looked"}


def test_leaving_it_closes_every_node():
    machines = Machines()
    with Session(pair(), machines.open):
        assert [node.closed for node in machines.opened] == [False, False]
    assert [node.closed for node in machines.opened] == [True, True]


def test_a_node_that_cannot_be_reached_is_missing_and_the_others_are_there():
    error = Unreachable("no route to host", where="spark-b")
    with Session(pair(), Machines(spark_b=error).open) as session:
        assert (list(session.nodes), session.missing) == (["spark-a"], {"spark-b": error})
        assert session.attempt(looked) == {"spark-a": "spark-a looked", "spark-b": error}
        with pytest.raises(Unreachable):
            session.need_all()
        with pytest.raises(Unreachable):
            session.node("spark-b")


def test_both_failures_of_opening_are_told():
    wrong = {name: HostKeyUnknown("never seen", where=name) for name in ("spark_a", "spark_b")}
    session = Session(pair(), Machines(**wrong).open).open()
    with pytest.raises(BaseExceptionGroup) as caught:
        session.need_all()
    assert len(caught.value.exceptions) == 2


def test_an_error_that_is_not_the_nodes_ends_it_and_closes_what_was_opened():
    machines = Machines(spark_a=SettingsError("no such ssh_config"))
    with pytest.raises(SettingsError):
        Session(pair(), machines.open).open()
    assert [node.closed for node in machines.opened] == [True]


def test_all_failures_of_a_question_are_told_and_all_were_asked():
    def fail(node: Node) -> str:
        raise StepFailed("did not work", where=node.name)

    with Session(pair(), Machines().open) as session, pytest.raises(BaseExceptionGroup) as caught:
        session.each(fail)
    assert [str(one) for one in caught.value.exceptions] == ["spark-a: did not work", "spark-b: did not work"]


def test_one_failure_comes_as_itself():
    def fail(node: Node) -> str:
        if node.name == "spark-b":
            raise StepFailed("did not work", where=node.name)
        return looked(node)

    with Session(pair(), Machines().open) as session, pytest.raises(StepFailed):
        session.each(fail)


def test_an_attempt_forgives_only_what_a_connection_does():
    def fail(node: Node) -> str:
        raise StepFailed("did not work", where=node.name)

    with Session(pair(), Machines().open) as session, pytest.raises(BaseExceptionGroup):
        session.attempt(fail)


def test_ctrl_c_closes_the_nodes_and_the_next_use_connects_again():
    def interrupted(node: Node) -> str:
        raise KeyboardInterrupt

    machines = Machines()
    with Session(pair(), machines.open) as session:
        with pytest.raises(KeyboardInterrupt):
            session.each(interrupted)
        assert [node.closed for node in machines.opened] == [True, True]
        assert session.each(looked) == {"spark-a": "spark-a looked", "spark-b": "spark-b looked"}
        assert len(machines.opened) == 4


def test_a_missing_node_may_come_back():
    machines = Machines(spark_b=Unreachable("no route to host", where="spark-b"))
    with Session(pair(), machines.open) as session:
        session.retry_missing()
        assert list(session.missing) == ["spark-b"]
        machines.wrong.clear()
        session.retry_missing()
        assert session.missing == {}
        assert list(session.each(looked)) == ["spark-a", "spark-b"]


def test_a_noisy_login_shell_is_told_once():
    told: list[Event] = []
    machines = Machines()
    with Session(pair(), machines.open, told.append) as session:
        machines.opened[0].noise = b"Welcome!"
        session.close()
    ((severity, node),) = [(one.severity, one.node) for one in told if isinstance(one, Told)]
    assert (severity, node) == (Severity.WARNING, machines.opened[0].name)


# ---- where nodes are


def test_the_head_is_this_machine_when_its_address_is_one_of_ours():
    nodes = (NodeSettings(address="10.40.0.1"), NodeSettings(address="10.40.0.2", control="op@b"))
    located = locate(pair(nodes=nodes), lambda address: address == "10.40.0.1")
    assert [(one.name, one.control) for one in located.nodes] == [("head", "local"), ("worker", "op@b")]


def test_a_node_that_nothing_leads_to_is_refused_with_what_to_set():
    nodes = (NodeSettings(address="10.40.0.1"), NodeSettings(address="10.40.0.2"))
    with pytest.raises(SettingsError) as caught:
        locate(pair(nodes=nodes), lambda address: address == "10.40.0.1")
    assert (caught.value.where, caught.value.fix) == (
        "worker",
        "set WORKER_SSH=user@host, or run sparkctl on the head",
    )


def test_a_third_node_has_a_name_of_its_own():
    nodes = tuple(NodeSettings(address=f"10.40.0.{n}", control="local") for n in (1, 2, 3))
    assert [one.name for one in locate(pair(nodes=nodes), lambda address: False).nodes] == ["head", "worker", "worker2"]


def test_two_nodes_of_one_name_are_refused():
    nodes = (NodeSettings(name="worker", address="1", control="local"), NodeSettings(address="2", control="b"))
    with pytest.raises(SettingsError, match="two nodes have the same name"):
        locate(pair(nodes=nodes), lambda address: False)


def test_questions_go_side_by_side_and_a_lost_node_is_told_once():
    both = Barrier(2, timeout=10)

    def lost() -> None:
        raise Unreachable("the connection was lost", where="spark-b")

    with Session(pair(), Machines().open) as session:
        assert session.at_once(lambda: (both.wait(), 1)[1], lambda: (both.wait(), 2)[1]) == [1, 2]
        with pytest.raises(Unreachable, match="the connection was lost"):
            session.at_once(lost, lost, lambda: 3)
