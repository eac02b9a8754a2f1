"""Give memory that torch keeps for later back to the machine after a long prefill, when the machine is short of it.

Where CPU and GPU share the memory, what the allocator holds is missing everywhere else. Giving it back after every
chunk costs a fifth of the prefill's pace, so that it happens only below a limit.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from spark_overlay.load_phases import STEP
from spark_overlay.memory_lines import GIB, meminfo

CHUNK = 64  # scheduled tokens of one request beyond which a step is a prefill

logger = logging.getLogger("vllm.spark_overlay")


class Release:
    name = "release"
    phases = (STEP,)

    def __init__(self, from_tokens: int, below: int) -> None:
        self._from_tokens = from_tokens
        self._below = below
        self._times = 0

    @contextmanager
    def around(self, worker: Any, phase: str, arguments: tuple[Any, ...]) -> Iterator[None]:
        yield
        if not (arguments and longest_prefill(arguments[0]) >= self._from_tokens):
            return
        available = meminfo()["MemAvailable"]
        if self._below and available >= self._below:
            return
        torch.cuda.empty_cache()
        self._times += 1
        if self._times & (self._times - 1) == 0:  # the 1st, 2nd, 4th, 8th ...
            after = meminfo()["MemAvailable"]
            text = "spark_overlay: release %d after a long prefill, available memory %.2f -> %.2f GiB"
            logger.info(text, self._times, available / GIB, after / GIB)


def longest_prefill(scheduled: Any) -> int:
    """Tokens that the longest sequence of a step has after it; 0 when the step holds no chunk of a prefill."""
    tokens: dict[str, int] = scheduled.num_scheduled_tokens
    if not tokens or max(tokens.values()) <= CHUNK:
        return 0
    cached = scheduled.scheduled_cached_reqs
    before = {request.req_id: request.num_computed_tokens for request in scheduled.scheduled_new_reqs}
    before.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    longest: int = max(before.get(request, 0) + count for request, count in tokens.items())
    return longest
