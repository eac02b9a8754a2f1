"""One thread that loads the model and then answers one request after the other, in the order they came.

All that touches the GPU happens there: what a CUDA library keeps for a thread is then always at hand, and two requests
never meet, which a drafter does not survive.
"""

import traceback
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum
from queue import Empty, Full, Queue
from threading import Event, Lock, Thread
from typing import Any, Protocol

from spark_exl3.answers import Counts
from spark_exl3.wishes import Refused, Sampling


@dataclass(frozen=True, slots=True)
class Wish:
    """What to go on with: `tokens` as the model's library wants them, `length` of them, and at most `most` new ones."""

    tokens: Any
    length: int
    most: int
    sampling: Sampling
    stops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A step of the model: its text, empty while a prompt is still read."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    finish: str
    counts: Counts


class Model(Protocol):
    """`tokens` and `room` may be asked from any thread; `answer` from the engine's alone."""

    def tokens(self, text: str, begin: bool) -> tuple[Any, int]: ...

    def room(self, length: int) -> int: ...

    def answer(self, wish: Wish) -> Generator[Piece | End]: ...


class State(Enum):
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Turn:
    """One request that waits or is answered; `left` is set once nobody reads the pieces any more."""

    wish: Wish
    pieces: "Queue[Piece | End | Refused]" = field(default_factory=Queue)
    left: Event = field(default_factory=Event)


@dataclass(slots=True)
class Done:
    """What was done so far; written by the engine's thread, read by all."""

    running: int = 0
    steps: int = 0
    prompt: int = 0
    generated: int = 0


class Engine:
    """`broke` is called once if the model does not load or fails: nothing will be answered after that."""

    def __init__(self, load: Callable[[], Model], waiting: int, broke: Callable[[], None]) -> None:
        self._load, self._broke = load, broke
        self._turns: Queue[Turn] = Queue(waiting)
        self._lock = Lock()
        self._model: Model | None = None
        self.state = State.LOADING
        self.done = Done()

    @property
    def waiting(self) -> int:
        return self._turns.qsize()

    def start(self) -> None:
        Thread(target=self._run, name="engine", daemon=True).start()

    @property
    def model(self) -> Model:
        if self._model is None or self.state is not State.READY:
            raise Refused(503, f"the model is not ready: {self.state.value}", code="not_ready")
        return self._model

    def ask(self, wish: Wish) -> Turn:
        """Its pieces come when it is its turn. Raises Refused when too many wait already."""
        turn = Turn(wish)
        with self._lock:
            if self.state is not State.READY:
                raise Refused(503, f"the model is not ready: {self.state.value}", code="not_ready")
            try:
                self._turns.put_nowait(turn)
            except Full:
                raise Refused(429, f"{self._turns.maxsize} requests wait already", code="queue_full") from None
        return turn

    def _run(self) -> None:
        now: Turn | None = None
        try:
            self._model = self._load()
            with self._lock:
                self.state = State.READY
            while True:
                now = self._turns.get()
                self.done.running = 1
                _answer(self._model, now, self.done)
                self.done.running = 0
                now = None
        except Exception:  # the root of this thread
            traceback.print_exc()
            self._fail(now)
            self._broke()

    def _fail(self, now: Turn | None) -> None:
        """Nobody waits for an answer that will not come."""
        failed = [now] if now else []
        with self._lock:
            self.state = State.FAILED
            while True:
                try:
                    failed.append(self._turns.get_nowait())
                except Empty:
                    break
        for turn in failed:
            turn.pieces.put(Refused(500, "the engine failed; its log says why", code="engine_failed"))


def _answer(model: Model, turn: Turn, done: Done) -> None:
    if turn.left.is_set():
        return
    before = done.generated
    done.prompt += turn.wish.length
    try:
        with closing(model.answer(turn.wish)) as pieces:
            for piece in pieces:
                done.steps += 1
                if isinstance(piece, End):
                    done.running, done.generated = 0, before + piece.counts.new
                elif piece.text:
                    done.generated += 1
                if isinstance(piece, End) or piece.text:
                    turn.pieces.put(piece)
                if turn.left.is_set():
                    return
    except Refused as refused:
        turn.pieces.put(refused)
