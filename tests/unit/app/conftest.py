"""What the tests of the use cases share."""

from pathlib import Path

import pytest

from cluster.model.settings import Watch
from cluster.model.units import Seconds
from tests.build import pair
from tests.fakes.cluster import FakeCluster


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evidence goes to the folder one works in."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cluster() -> FakeCluster:
    """Two nodes on which nothing runs."""
    return FakeCluster(pair(watch=Watch(hang_seconds=Seconds(20), ready_timeout=Seconds(60))))


@pytest.fixture
def serving(cluster: FakeCluster) -> FakeCluster:
    """Two ranks that were started by us and serve; what was said and done until then is forgotten."""
    cluster.start()
    return cluster
