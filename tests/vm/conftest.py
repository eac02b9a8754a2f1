"""A pair of virtual machines for the tests of a module; `scripts/vm-lab test` asks for them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.vm import image
from tests.vm.pair import Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 1200  # for one test: two boots of an emulated machine on a busy host


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "vm":
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two machines that are up; the pair SPARKCTL_VM_PAIR names is used, and left, as it is."""
    if not os.environ.get("SPARKCTL_VM_TESTS"):
        pytest.skip("not run: virtual machines take minutes; `scripts/vm-lab test` runs this")
    if reason := image.missing():
        pytest.skip(f"not run: {reason}")
    if standing := os.environ.get("SPARKCTL_VM_PAIR"):
        yield Pair.of(standing)
        return
    name = f"{request.path.stem.removeprefix('test_').replace('_', '-')[:12]}-{os.getpid()}"
    with Pair.up(name, owned=True) as made:
        yield made
