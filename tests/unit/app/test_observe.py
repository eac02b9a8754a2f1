"""Questions to nodes and what is made of the answers."""

import json

import pytest

from cluster.app.agents import agent
from cluster.app.look_around import look_around
from cluster.app.observe import PROBES, facts_and, facts_of
from cluster.app.ranks import age
from cluster.errors import StepFailed, TimedOut, Unreachable, Unreadable
from cluster.model.nodes import NodeSettings
from cluster.node.base import Node, Result
from tests.build import GIB
from tests.fakes.cluster import FakeCluster


def seen(cluster: FakeCluster):
    return facts_of(cluster.open(cluster.settings.head))


def test_facts_come_in_one_round_trip(cluster):
    facts = seen(cluster)
    assert [(one.interface, one.address) for one in facts.addresses] == [("enp1s0f1np1", "10.40.0.1")]
    assert (facts.memory.total, facts.memory.available) == (128 * GIB, 100 * GIB)
    assert len(cluster["spark-a"].commands) == 1


def test_programs_of_ours_are_asked_in_the_same_round_trip(cluster):
    node = cluster.open(cluster.settings.head)
    facts, (memory, shape) = facts_and(node, PROBES, (agent("memory", {"most": 3}), agent("headers", {"model": "/m"})))
    assert facts == seen(cluster)
    assert (json.loads(memory)["machine"], json.loads(shape)["files"]) == ("boot of spark-a", 1)
    assert len(cluster["spark-a"].commands) == 2  # ours, and that of `seen`


@pytest.mark.parametrize(
    ("result", "error", "evidence"),
    [
        (Result(3, b"", b"MemoryError"), StepFailed, ("MemoryError",)),
        (Result(124, b"", b"no answer in 30 s"), TimedOut, ("no answer in 30 s",)),
    ],
)
def test_a_program_that_fails_among_others_is_told(cluster, result, error, evidence):
    cluster["spark-a"].fails["memory"] = result
    with pytest.raises(error) as caught:
        facts_and(cluster.open(cluster.settings.head), PROBES, (agent("memory", {"most": 3}),))
    assert (type(caught.value), caught.value.where, caught.value.evidence) == (error, "spark-a", evidence)


def test_listeners_are_seen_with_their_holders(cluster):
    cluster["spark-a"].listening = "*:8888 nginx, 127.0.0.1:22"
    assert [(one.address, one.port, one.holder) for one in seen(cluster).listeners] == [
        ("*", 8888, "nginx (pid 77)"),
        ("127.0.0.1", 22, ""),
    ]


def test_an_answer_that_cannot_be_parsed_names_node_and_probe(cluster):
    answers = json.loads(cluster["spark-a"].answer(_question(cluster)).out)
    answers[0]["out"] = "Cannot open netlink socket"
    cluster["spark-a"].fails["ask"] = Result(0, json.dumps(answers).encode(), b"")
    with pytest.raises(Unreadable) as caught:
        seen(cluster)
    assert (caught.value.where, caught.value.evidence) == ("spark-a, addresses", ("Cannot open netlink socket",))


def _question(cluster: FakeCluster):
    seen(cluster)
    return cluster["spark-a"].commands[-1]


def test_a_program_that_fails_is_quoted_with_its_last_words(cluster):
    cluster["spark-a"].fails["ask"] = Result(1, b"", "\n".join(map(str, range(9))).encode())
    with pytest.raises(StepFailed) as caught:
        seen(cluster)
    assert caught.value.what == "a question to the node failed with exit code 1"
    assert caught.value.evidence == ("4", "5", "6", "7", "8")


def test_the_sentence_of_a_program_that_gives_up_is_quoted(cluster):
    cluster["spark-a"].fails["ask"] = Result(2, b'{"error": "cannot read /proc"}', b"")
    with pytest.raises(StepFailed) as caught:
        seen(cluster)
    assert caught.value.evidence == ("cannot read /proc",)


def test_looking_around_sees_every_node_and_closes_it(cluster):
    opened: list[Node] = []

    def open_one(node: NodeSettings) -> Node:
        opened.append(cluster.open(node))
        return opened[-1]

    found = look_around(cluster.settings.nodes, open_one)
    assert [(one.control, one.addresses[0].address) for one in found] == [
        ("local", "10.40.0.1"),
        ("op@spark-b", "10.40.0.2"),
    ]
    assert all(one.closed for host in cluster.hosts.values() for one in host.connections)


def test_looking_around_ends_with_the_node_that_cannot_be_reached(cluster):
    cluster["spark-b"].go()
    with pytest.raises(Unreachable):
        look_around(cluster.settings.nodes, cluster.open)


@pytest.mark.parametrize(
    ("at", "seconds"),
    [
        ("2026-11-30T17:00:00.000Z", 10.0),
        ("2026-11-30T17:00:09.500Z", 0.5),
        ("2026-11-30T17:00:20.000Z", 0.0),
        ("", 0.0),
        ("Traceback", 0.0),
    ],
)
def test_the_age_of_a_line_is_measured_on_its_nodes_own_clock(at, seconds):
    assert age(at, 1796058010.0) == pytest.approx(seconds, abs=0.001)
