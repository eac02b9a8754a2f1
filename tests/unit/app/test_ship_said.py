"""Whose fault it was that an image did not arrive."""

import pytest

from cluster.app.ship_said import NotTaken, Said, placed
from cluster.errors import StepFailed, Unreachable
from cluster.node.failures import NoSpace


@pytest.mark.parametrize(
    ("kind", "words", "means", "what"),
    [
        ("ssh", "Connection closed", Unreachable, "the way from head broke"),
        ("cut", "the head ended in the middle of a layer", Unreachable, "the way from head broke"),
        ("load", "write /var/lib/x: no space left on device", NoSpace, "no space left for the image"),
        ("no_space", "", NoSpace, "no space left for the image"),
        ("digest", "sha256:1 arrived as sha256:2", StepFailed, "a layer arrived damaged and was thrown away"),
        ("busy", "another receiver holds it", StepFailed, "another shipment is at work there"),
        ("load", "error during connect: EOF", StepFailed, "the engine ended while it loaded"),
        ("load", "content digest sha256:1: not found", NotTaken, "the engine did not take the image"),
        ("receiver", "exit code 1", NotTaken, "the engine did not take the image"),
    ],
)
def test_the_last_words_tell_whose_fault_it_was(kind, words, means, what):
    said = Said("the image could not be sent", where="head", evidence=[words])
    said.kind = kind
    told = placed(said, "head", "worker")
    assert (type(told), told.what, told.where, told.evidence) == (means, what, "worker", (words,))


def test_what_the_head_itself_could_not_do_stays_the_heads():
    said = Said("the image could not be sent", where="head", evidence=["No such image: x"])
    said.kind = "save"
    assert placed(said, "head", "worker") is said
