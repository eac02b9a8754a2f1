"""The stages of a verb: said when they begin and end, timed for the receipt."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cluster.errors import Refused, SparkctlError
from cluster.model.events import Emit, StageEnded, StageStarted, StageTime


class Stages:
    """Times each stage, and says when it begins and ends."""

    def __init__(self, emit: Emit, clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self.done: list[StageTime] = []

    @contextmanager
    def stage(self, name: str, nodes: tuple[str, ...] = ()) -> Iterator[None]:
        began = self._clock()
        try:
            self._emit(StageStarted(name, nodes))  # inside: who reads it may interrupt us at once
            yield
        except BaseException as error:
            detail = _said(error)
            self._emit(StageEnded(name, self._clock() - began, ok=False, detail=detail))
            raise
        seconds = self._clock() - began
        self.done.append(StageTime(name, seconds))
        self._emit(StageEnded(name, seconds, ok=True))


def _said(error: BaseException) -> str:
    match error:
        case Refused():
            return ""  # the findings say it
        case SparkctlError():
            return error.what
        case BaseExceptionGroup():
            return "; ".join(_said(one) for one in error.exceptions)
        case KeyboardInterrupt():
            return "interrupted"
        case _:
            return type(error).__name__
