"""For all tests: programs that they start hear Ctrl-C, and what shares a machine's time well runs side by side."""

from __future__ import annotations

import signal
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from xdist.scheduler.protocol import Scheduling

# A shell lets what it starts in the background ignore SIGINT, and every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("untimed", deadline=None)  # machines are noisy; speed is `scripts/bench`'s
hypothesis.settings.load_profile("untimed")

SERVES_REAL_VLLM = (
    "test_container",
    "test_engram",
    "test_one_spark",
    "test_served_faults",
    "test_story",
    "test_systemd",
    "test_vllm_by_hand",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    """With `-n`, a file's tests stay together, and one pair of vLLM ranks runs at a time."""
    from xdist.scheduler import LoadScopeScheduling  # the overlay's environment has none

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # it comes without types
        def _split_scope(self, nodeid: str) -> str:
            file = PurePosixPath(nodeid.partition("::")[0])
            return "vllm" if file.parent.name == "lab" and file.stem in SERVES_REAL_VLLM else str(file)

    return ByFile(config, log)
