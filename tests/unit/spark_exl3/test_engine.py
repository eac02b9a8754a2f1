"""The order of requests, and what becomes of them when the model fails."""

from collections.abc import Generator
from queue import Queue
from threading import Event
from typing import Any

import pytest

from spark_exl3.answers import Counts
from spark_exl3.engine import Done, End, Engine, Piece, State, Wish
from spark_exl3.wishes import Refused, Sampling

LIMIT = 10.0
END = End("stop", Counts(1, 1))


class Paced:
    """A model that says each wish's own text once it is let."""

    def __init__(self) -> None:
        self.let: Queue[Exception | None] = Queue()
        self.begun: list[str] = []

    def tokens(self, text: str, begin: bool) -> tuple[Any, int]:
        return text, len(text)

    def room(self, length: int) -> int:
        return 100 - length

    def answer(self, wish: Wish) -> Generator[Piece | End]:
        self.begun.append(wish.tokens)
        for letter in wish.tokens:
            if error := self.let.get(timeout=LIMIT):
                raise error
            yield Piece(letter)
        yield END


def wish(text: str) -> Wish:
    return Wish(text, len(text), 10, Sampling(), ())


def started(model: Paced, waiting: int = 4) -> tuple[Engine, Event]:
    loaded, broke = Event(), Event()

    def load() -> Paced:
        loaded.set()
        return model

    engine = Engine(load, waiting, broke.set)
    with pytest.raises(Refused, match="not ready: loading"):
        engine.ask(wish("a"))
    engine.start()
    assert loaded.wait(LIMIT)
    while engine.state is State.LOADING:
        pass
    return engine, broke


def test_one_request_is_answered_at_a_time_in_the_order_they_came():
    model = Paced()
    engine, _ = started(model)
    turns = [engine.ask(wish(text)) for text in ("ab", "c", "d")]
    for _ in range(2):
        model.let.put(None)
    assert [turns[0].pieces.get(timeout=LIMIT) for _ in range(3)] == [Piece("a"), Piece("b"), END]
    assert turns[2].pieces.empty()
    for _ in range(2):
        model.let.put(None)
    assert [turns[2].pieces.get(timeout=LIMIT) for _ in range(2)] == [Piece("d"), END]
    assert model.begun == ["ab", "c", "d"]


def test_a_client_that_left_costs_nothing_more():
    model = Paced()
    engine, _ = started(model)
    first, second, third = (engine.ask(wish(text)) for text in ("abc", "d", "e"))
    first.left.set()
    second.left.set()
    for _ in range(2):
        model.let.put(None)
    assert [third.pieces.get(timeout=LIMIT) for _ in range(2)] == [Piece("e"), END]
    assert "d" not in model.begun


def test_more_than_may_wait_are_refused():
    model = Paced()
    engine, _ = started(model, waiting=1)
    engine.ask(wish("a"))
    while not model.begun:
        pass
    engine.ask(wish("b"))
    with pytest.raises(Refused) as caught:
        engine.ask(wish("c"))
    assert (caught.value.status, caught.value.message) == (429, "1 requests wait already")
    for _ in range(2):
        model.let.put(None)


def test_when_the_model_fails_everybody_is_told_and_nobody_is_taken_any_more(capsys):
    model = Paced()
    engine, broke = started(model)
    turns = [engine.ask(wish(text)) for text in ("a", "b")]
    model.let.put(RuntimeError("illegal memory access"))
    for turn in turns:
        told = turn.pieces.get(timeout=LIMIT)
        assert isinstance(told, Refused)
        assert (told.status, told.message) == (500, "the engine failed; its log says why")
    assert broke.wait(LIMIT)
    with pytest.raises(Refused, match="not ready: failed"):
        engine.ask(wish("c"))
    assert "illegal memory access" in capsys.readouterr().err


def test_a_request_that_is_refused_leaves_the_engine_as_it_was():
    model = Paced()
    engine, _ = started(model)
    turns = [engine.ask(wish(text)) for text in ("a", "b")]
    model.let.put(Refused(400, "no"))
    model.let.put(None)
    told = turns[0].pieces.get(timeout=LIMIT)
    assert isinstance(told, Refused)
    assert [turns[1].pieces.get(timeout=LIMIT) for _ in range(2)] == [Piece("b"), END]


def test_what_is_done_is_counted_while_it_is_done():
    model = Paced()
    engine, _ = started(model)
    turn = engine.ask(wish("ab"))
    model.let.put(None)
    assert turn.pieces.get(timeout=LIMIT) == Piece("a")
    assert engine.done == Done(running=1, steps=1, prompt=2, generated=1)
    engine.ask(wish("c"))
    assert engine.waiting == 1
    model.let.put(None)
    assert [turn.pieces.get(timeout=LIMIT) for _ in range(2)] == [Piece("b"), END]
    model.let.put(None)
    until_idle(engine)
    assert engine.done == Done(running=0, steps=5, prompt=3, generated=2)


def until_idle(engine: Engine) -> None:
    while engine.done.running or engine.waiting:
        pass
