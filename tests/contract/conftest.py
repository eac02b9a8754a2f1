"""Fixtures that several suites share: a deployment of the native runtime on a real node."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.app.agents import source
from cluster.model.deployment import DeploymentId
from cluster.node.base import Node
from cluster.node.local import LocalNode
from cluster.node.open import open_node
from cluster.runtime.native import NativeRuntime
from tests.contract.bench import Bench
from tests.contract.sshd import Sshd

BOOT = "20261130T000000Z-0001"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield from bench_on(LocalNode("here"), tmp_path)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(params=["local", "ssh"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """The same on this machine and behind a real sshd."""
    if request.param == "local":
        yield from bench_on(LocalNode("here"), tmp_path)
    else:
        server: Sshd = request.getfixturevalue("server")
        yield from bench_on(open_node("there", "node", ssh_config=server.ssh_config), tmp_path)


def bench_on(node: Node, folder: Path) -> Iterator[Bench]:
    bench = Bench(node, folder / "state", NativeRuntime(source), DeploymentId("bench", BOOT))
    yield bench
    left = replace(bench, ranks=None).stop(0.2)
    bench.node.close()
    assert [rank.left for rank in left.ranks if rank.left] == []
