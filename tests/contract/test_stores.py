"""Images between engines of two ages and two kinds of store: only what is missing is sent, and it runs there."""

import contextlib
import subprocess
from dataclasses import replace
from itertools import product

import pytest

from cluster.app.image import hold
from cluster.errors import Refused
from cluster.model.containers import ContainerSpec
from cluster.model.events import Told
from cluster.model.kit import Ship
from tests.contract import dockerd, engine_kinds, registry, sshd
from tests.contract.engine_kinds import Kind
from tests.contract.test_ship import LAYER, Pair, archive
from tests.wrong_images import note

pytestmark = pytest.mark.contract

DIRECTIONS = [(head, worker) for head, worker in product(Kind, Kind) if Kind.CONTAINERD in (head, worker)]
# A registry speaks to both stores; what differs is who pushes and who pulls.
BY_REGISTRY = [(Kind.INSTALLED, Kind.CONTAINERD), (Kind.CONTAINERD, Kind.INSTALLED)]


def needed(kind):
    if reason := engine_kinds.missing(kind):
        pytest.skip(f"not run: {reason}")


@pytest.fixture(scope="module")
def engine_of(tmp_path_factory):
    """An engine of that kind, and another one of the same as the worker's; each starts once."""
    folder, running = tmp_path_factory.mktemp("st"), {}
    with contextlib.ExitStack() as stack:

        def start(kind, number):
            needed(kind)
            if (kind, number) not in running:
                engine = dockerd.Dockerd(folder / f"{kind}{number}", kind)
                running[kind, number] = stack.enter_context(engine)
            return running[kind, number]

        yield start


@pytest.fixture
def pair(request, engine_of, tmp_path):
    """The two of a direction, with nothing in them but version 1 and 2 on the head."""
    ours, theirs = request.param
    head, worker = engine_of(ours, 0), engine_of(theirs, int(ours is theirs))
    for engine in (head, worker):
        for name in engine.run("images", "-aq").stdout.decode().split():
            engine.run("rmi", "-f", name, check=False)
    for version in ("1", "2"):
        head.run("load", data=archive(version))
    with sshd.Sshd(tmp_path / "sshd") as server:
        made = Pair(head, worker, server, tmp_path)
        assert [side.seen.containerd_store for side in (made.head, made.worker)] == [
            kind is Kind.CONTAINERD for kind in request.param
        ]
        yield made
        made.close()


def directions(pairs):
    return pytest.mark.parametrize("pair", pairs, indirect=True, ids=" to ".join)


def said_inside(pair, version):
    """What a container of it says on the worker, made and started as a rank's is."""
    engine = pair.worker.engine
    words = ("sh", "-c", "echo it runs; ls /data1 /data2 /data3")
    identity = engine.create(ContainerSpec("sparkctl-there", engine.image(f"sparkctl-ship:{version}").id, words))
    engine.start(identity)
    code = engine.wait(identity, 60)
    said = engine.output(identity)
    engine.remove(identity)
    return code, said


@directions(DIRECTIONS)
def test_a_changed_layer_is_all_that_is_sent_between_two_kinds_of_store(pair):
    first, second = pair.send("1"), pair.send("2")
    assert (first.how, first.layers, second.how, second.layers) == ("store", 4, "store", 1)
    assert LAYER <= second.sent < LAYER * 1.01
    there = pair.worker.engine.image("sparkctl-ship:2")
    assert (there.layers, there.tags) == (pair.image("2").layers, ("sparkctl-ship:2",))
    assert not [one for one in pair.events if isinstance(one, Told)]
    assert said_inside(pair, "2") == (0, "it runs\n/data1\n/data2\n/data3\n")


@pytest.mark.skipif(registry.missing() is not None, reason=f"not run: {registry.missing()}")
@directions(BY_REGISTRY)
def test_a_registry_carries_an_image_between_two_kinds_of_store(pair, tmp_path):
    pair.way = replace(pair.way, ship=Ship.REGISTRY, port=sshd.free_port(), registry=str(tmp_path / "registry"))
    assert pair.send("1").how == "registry", pair.events
    there = pair.worker.engine.image("sparkctl-ship:1")
    assert (there.layers, there.tags) == (pair.image("1").layers, ("sparkctl-ship:1",))
    assert pair.image("1").tags == ("sparkctl-ship:1",)
    assert said_inside(pair, "1") == (0, "it runs\n/data1\n/data2\n/data3\n")


def test_room_is_measured_where_the_engine_s_own_containerd_keeps_its_blobs(engine_of, tmp_path_factory):
    """Not on the disk of the system's containerd, which has room."""
    needed(Kind.CONTAINERD)
    folder = tmp_path_factory.mktemp("full")
    small = folder / "small"
    small.mkdir()
    head = engine_of(Kind.INSTALLED, 0)
    head.run("load", data=archive("1"))
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=40m", "small", str(small)), check=True)
    try:
        with sshd.Sshd(folder / "sshd") as server, dockerd.Dockerd(small, Kind.CONTAINERD) as full:
            pair = Pair(head, full, server, folder)
            with pytest.raises(Refused, match="no room for the image"):
                pair.send("1")
            pair.close()
    finally:
        subprocess.run(("umount", "--lazy", str(small)), check=True)


@directions([(Kind.INSTALLED, Kind.CONTAINERD)])
def test_an_image_that_the_engine_shows_and_cannot_run_is_no_image_and_the_next_shipment_mends_it(pair, engine_of):
    """What a load that failed leaves in containerd's store."""
    broken = dockerd.without_last_layer(archive("1"), "sparkctl-ship:1")
    engine_of(Kind.CONTAINERD, 0).run("load", data=broken, check=False)
    assert pair.worker.engine.image("sparkctl-ship:1").tags == ("sparkctl-ship:1",)
    held = hold(pair.worker.engine, "sparkctl-ship:1")
    assert held.image is None
    assert "cannot run it" in held.broken
    note("the worker's engine shows an image that it cannot run", "image verify", held.broken, 4, "it, as it was",
         "sparkctl image ship")  # fmt: skip
    assert pair.send("1").layers == 1
    assert hold(pair.worker.engine, "sparkctl-ship:1").broken == ""
    assert said_inside(pair, "1")[0] == 0
