"""How time passes for a verb, and how it watches: real for people, made up in tests."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster.app.session import Session
from cluster.app.watch import Watch, Watching


@dataclass(frozen=True, slots=True)
class Pace:
    """`clock` counts seconds from anywhere; `watch` opens the watch of one boot."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    watch: Callable[[Session, str], Watching] = Watch


REAL = Pace()
