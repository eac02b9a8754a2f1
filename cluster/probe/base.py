"""A probe is a question to a node and the pure parser of its answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """A command (argv) or, when `file` is set, a file to read whole. Both are answered in one round trip per node."""

    argv: tuple[str, ...] = ()
    file: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """`exit` is None when the tool or the file is absent; then `out` is empty and `err` says why."""

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
        return self.absent if answer.exit is None else self.parse(answer.out)
