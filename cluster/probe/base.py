"""A probe is a question to a node and the pure parser of its answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cluster.errors import Unreadable

TIMED_OUT = 124  # what `agent/ask.py` answers for a question that it gave up waiting for

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """A command (argv) or, when `file` is set, a file to read whole. Both are answered in one round trip per node."""

    argv: tuple[str, ...] = ()
    file: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """`exit` is None when the tool or the file is absent; then, as when time ran out, `err` says why."""

    exit: int | None
    out: str = ""
    err: str = ""


@dataclass(frozen=True, slots=True)
class Probe(Generic[T]):
    """`parse` raises Unreadable with the offending line; `absent` is the value when there was nothing to ask."""

    name: str
    ask: Ask
    parse: Callable[[str], T]
    absent: T

    def read(self, answer: Answer) -> T:
        """Silence is no answer: a device that was not told of in time is not a device that is not there."""
        if answer.exit == TIMED_OUT:
            raise Unreadable(
                "a question to the node was not answered in time",
                evidence=[answer.err],
                fix="see what keeps the node busy, e.g. with `top`, then try again",
            )
        return self.absent if answer.exit is None else self.parse(answer.out)
