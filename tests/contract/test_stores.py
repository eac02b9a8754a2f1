"""Images between an engine with overlay2 and one with containerd's store, both directions: only what is missing."""

from dataclasses import replace

import pytest

from cluster.app.image import hold
from cluster.model.events import Told
from cluster.model.kit import Ship
from tests.contract import dockerd, other_engine, registry, sshd
from tests.contract.other_engine import ContainerdStore
from tests.contract.test_ship import LAYER, Pair, archive
from tests.wrong_images import note

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(dockerd.missing() is not None, reason=f"not run: {dockerd.missing()}"),
    pytest.mark.skipif(other_engine.missing() is not None, reason=f"not run: {other_engine.missing()}"),
]


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("st")
    with dockerd.Dockerd(folder / "old") as old, ContainerdStore(folder / "new") as new:
        yield old, new


@pytest.mark.parametrize("direction", ["overlay2 to containerd", "containerd to overlay2"])
def test_a_changed_layer_is_all_that_is_sent_between_two_kinds_of_store(engines, direction, tmp_path):
    old, new = engines
    head, worker = (old, new) if direction.startswith("overlay2") else (new, old)
    for engine in engines:
        for name in engine.run("images", "-aq").stdout.decode().split():
            engine.run("rmi", "-f", name, check=False)
    for version in ("1", "2"):
        head.run("load", data=archive(version))
    with sshd.Sshd(tmp_path / "sshd") as server:
        pair = Pair(head, worker, server, tmp_path)
        pair.head, pair.worker = (seen_from_here(side, new) for side in (pair.head, pair.worker))
        assert {side.seen.containerd_store for side in (pair.head, pair.worker)} == {True, False}
        first, second = pair.send("1"), pair.send("2")
        assert (first.layers, second.layers) == (4, 1)
        assert LAYER <= second.sent < LAYER * 1.01
        there = pair.worker.engine.image("sparkctl-ship:2")
        assert there is not None
        assert there.layers == pair.image("2").layers
        assert not [one for one in pair.events if isinstance(one, Told)]
        pair.close()


@pytest.mark.skipif(registry.missing() is not None, reason=f"not run: {registry.missing()}")
@pytest.mark.parametrize("direction", ["overlay2 to containerd", "containerd to overlay2"])
def test_a_registry_carries_an_image_between_two_kinds_of_store(engines, direction, tmp_path):
    old, new = engines
    head, worker = (old, new) if direction.startswith("overlay2") else (new, old)
    for engine in engines:
        for name in engine.run("images", "-aq").stdout.decode().split():
            engine.run("rmi", "-f", name, check=False)
    head.run("load", data=archive("1"))
    with sshd.Sshd(tmp_path / "sshd") as server:
        pair = Pair(head, worker, server, tmp_path)
        pair.head, pair.worker = (seen_from_here(side, new) for side in (pair.head, pair.worker))
        pair.way = replace(pair.way, ship=Ship.REGISTRY, port=sshd.free_port(), registry=str(tmp_path / "registry"))
        assert pair.send("1").how == "registry", pair.events
        there = pair.worker.engine.image("sparkctl-ship:1")
        assert there is not None
        assert (there.layers, there.tags) == (pair.image("1").layers, ("sparkctl-ship:1",))
        assert pair.image("1").tags == ("sparkctl-ship:1",)
        pair.close()


def test_an_image_that_the_engine_shows_and_cannot_run_is_no_image_and_the_next_shipment_mends_it(engines, tmp_path):
    """What a load that failed leaves in containerd's store."""
    old, new = engines
    for engine in engines:
        for name in engine.run("images", "-aq").stdout.decode().split():
            engine.run("rmi", "-f", name, check=False)
    old.run("load", data=archive("1"))
    with sshd.Sshd(tmp_path / "sshd") as server:
        pair = Pair(old, new, server, tmp_path)
        pair.worker = seen_from_here(pair.worker, new)
        new.run("load", data=dockerd.without_last_layer(archive("1"), "sparkctl-ship:1"), check=False)
        shown = pair.worker.engine.image("sparkctl-ship:1")
        assert shown is not None
        assert shown.layers == pair.image("1").layers
        held = hold(pair.worker.engine, "sparkctl-ship:1")
        assert held.image is None
        assert "cannot run it" in held.broken
        note("the worker's engine shows an image that it cannot run", "image verify", held.broken, 4, "it, as it was",
             "sparkctl image ship")  # fmt: skip
        assert pair.send("1").layers == 1
        assert hold(pair.worker.engine, "sparkctl-ship:1").broken == ""
        pair.close()


def seen_from_here(side, new: ContainerdStore):
    """The engine in the chroot calls its folder by another name."""
    return replace(side, seen=replace(side.seen, root=str(new.data))) if side.seen.containerd_store else side
