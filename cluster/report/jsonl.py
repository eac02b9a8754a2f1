"""Events for programs: one JSON object per line on stdout, as published under docs/schema/."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock
from types import TracebackType
from typing import Self, TextIO

from cluster.model.events import Event
from cluster.report.redact import Redactor, map_text
from cluster.report.schema import to_json

_HALVES = re.compile("[\ud800-\udfff]")


def utc_now() -> datetime:
    return datetime.now(UTC)


class JsonLines:
    """Nothing is left out and nothing is shortened; each line is flushed, so a reader sees it when it happens."""

    def __init__(self, out: TextIO, redactor: Redactor, clock: Callable[[], datetime] = utc_now) -> None:
        self._out = out
        self._redactor = redactor
        self._clock = clock
        self._one_at_a_time = Lock()

    def __call__(self, event: Event) -> None:
        shown = self._redactor.event(map_text(event, _encodable))
        line = json.dumps(to_json(shown, self._clock()), allow_nan=False)
        with self._one_at_a_time:
            self._out.write(line + "\n")
            self._out.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def _encodable(text: str) -> str:
    """Half characters (a log's undecodable bytes) become the replacement character: strict readers refuse them."""
    return _HALVES.sub("\ufffd", text)
