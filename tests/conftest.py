"""For all tests: programs that they start hear Ctrl-C, and what shares a machine's time well runs side by side."""

import signal

import pytest

# A shell lets what it starts in the background ignore SIGINT, and every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

SERVES_REAL_VLLM = ("test_container", "test_served_faults", "test_story", "test_systemd", "test_vllm_by_hand")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `-n`, a file's tests stay together, and one pair of vLLM ranks runs at a time."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            group = "vllm" if item.path.parent.name == "lab" and item.path.stem in SERVES_REAL_VLLM else str(item.path)
            item.add_marker(pytest.mark.xdist_group(group))
