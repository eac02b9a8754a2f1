"""The `Reporter` protocol."""

from types import TracebackType
from typing import Protocol, Self

from cluster.model.events import Event


class Reporter(Protocol):
    """Takes every event of a verb. Used as a context manager so that a live display is always taken down."""

    def __call__(self, event: Event) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
