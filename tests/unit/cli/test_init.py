"""`init`: shows what it would write, asks, and never replaces a file unasked."""

import io
from pathlib import Path

import pytest

from cluster.errors import Exit, Unreachable
from cluster.model.nodes import NodeSettings
from cluster.node.base import Node
from tests.fakes.cluster import FakeCluster


class Person(io.StringIO):
    """Somebody at a terminal, who has typed something."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def open_one():
    """This machine and a worker, as `init` names them."""
    cluster = FakeCluster()

    def opened(node: NodeSettings) -> Node:
        known = {"local": 0, "op@spark-b": 1}
        if node.control not in known:
            raise Unreachable("no route to host", where=node.name)
        return cluster.open(cluster.settings.nodes[known[node.control]])

    return opened


@pytest.fixture
def says(monkeypatch):
    """What a person types at the question."""
    return lambda text: monkeypatch.setattr("sys.stdin", Person(text))


@pytest.fixture(autouse=True)
def _nobody(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())


def test_with_a_worker_it_writes_both_nodes(sparkctl, open_one):
    ran = sparkctl("init", "op@spark-b", "--yes", open_one=open_one)
    written = Path(".env").read_text()
    assert (ran.code, ran.out) == (0, written)
    for line in ("HEAD_SSH=local", "HEAD_IP=10.40.0.1", "WORKER_SSH=op@spark-b", "WORKER_IP=10.40.0.2"):
        assert line in written
    assert "HEAD_CX7_IF=enp1s0f1np1" in written


def test_what_it_writes_is_for_its_owner_alone(sparkctl, open_one):
    sparkctl("init", "--yes", open_one=open_one)
    assert Path(".env").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in Path().iterdir()] == [".env"]


def test_what_it_writes_can_be_read_back(sparkctl, open_one):
    sparkctl("init", "op@spark-b", "--yes", open_one=open_one)
    ran = sparkctl("config", "--origin")
    assert ran.code == 0
    assert "10.40.0.2" in ran.out


def test_alone_it_proposes_the_demo(sparkctl, open_one):
    sparkctl("init", "--yes", open_one=open_one)
    assert "RECIPE=demo" in Path(".env").read_text()


def test_a_person_is_asked_and_may_say_no(sparkctl, open_one, says):
    says("n\n")
    ran = sparkctl("init", open_one=open_one)
    assert (ran.code, Path(".env").exists()) == (0, False)
    assert "Write .env?" in ran.err
    assert "nothing was written" in ran.err


def test_a_person_is_asked_and_may_say_yes(sparkctl, open_one, says):
    says("y\n")
    assert sparkctl("init", open_one=open_one).code == 0
    assert "RECIPE=demo" in Path(".env").read_text()


def test_only_return_means_no(sparkctl, open_one, says):
    says("\n")
    sparkctl("init", open_one=open_one)
    assert not Path(".env").exists()


def test_the_end_of_the_input_is_an_interruption_and_no_bug(sparkctl, open_one, says):
    says("")
    ran = sparkctl("init", open_one=open_one)
    assert (ran.code, "bug" in ran.err) == (Exit.INTERRUPTED, False)
    assert not Path(".env").exists()


def test_without_a_person_nothing_is_written_unasked(sparkctl, open_one):
    ran = sparkctl("init", open_one=open_one)
    assert (ran.code, Path(".env").exists()) == (Exit.SETTINGS, False)
    assert "sparkctl init --yes" in ran.err
    assert "RECIPE=demo" in ran.out, "it is shown all the same"


def test_a_file_that_is_there_is_never_replaced_unasked(sparkctl, open_one):
    Path(".env").write_text("PORT=9\n")
    ran = sparkctl("init", "--yes", open_one=open_one)
    assert (ran.code, Path(".env").read_text()) == (Exit.SETTINGS, "PORT=9\n")
    assert ".env exists" in ran.err


def test_a_person_may_let_a_file_be_replaced(sparkctl, open_one, says):
    Path(".env").write_text("PORT=9\n")
    says("y\n")
    ran = sparkctl("init", "--yes", open_one=open_one)
    assert "Replace .env?" in ran.err
    assert "RECIPE=demo" in Path(".env").read_text()


def test_another_file_may_be_named(sparkctl, open_one):
    assert sparkctl("init", "--yes", "-o", "two.env", open_one=open_one).code == 0
    assert (Path("two.env").exists(), Path(".env").exists()) == (True, False)


def test_a_folder_that_is_not_there_is_told_and_no_bug(sparkctl, open_one):
    ran = sparkctl("init", "--yes", "-o", "nowhere/two.env", open_one=open_one)
    assert (ran.code, "cannot write it: No such file or directory" in ran.err) == (Exit.SETTINGS, True)


def test_a_worker_that_cannot_be_reached_ends_it(sparkctl, open_one):
    ran = sparkctl("init", "op@spark-z", "--yes", open_one=open_one)
    assert (ran.code, Path(".env").exists()) == (Exit.UNREACHABLE, False)


def test_in_json_the_proposal_stays_out_of_stdout(sparkctl, open_one):
    ran = sparkctl("init", "--yes", "--json", open_one=open_one)
    assert [line["event"] for line in ran.events] == ["told"]
    assert "RECIPE=demo" in ran.err
