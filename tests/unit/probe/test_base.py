"""What an answer means before anybody parses it."""

import pytest

from cluster.errors import Unreadable
from cluster.probe.base import Answer, Ask, Probe

WORDS: Probe[list[str]] = Probe("words", Ask(("words",)), lambda text: text.split(), [])


def test_an_answer_is_parsed() -> None:
    assert WORDS.read(Answer(0, "one two")) == ["one", "two"]


def test_a_tool_that_is_not_there_has_nothing_to_say() -> None:
    assert WORDS.read(Answer(None, err="not found: words")) == []


def test_an_answer_that_did_not_come_in_time_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(Unreadable, match="not answered in time") as raised:
        WORDS.read(Answer(124, err="no answer in 15 s"))
    assert raised.value.evidence == ("no answer in 15 s",)
