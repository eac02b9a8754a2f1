"""Images through the standard registry: sent by way of one on the head's loopback, and pulled from one by digest."""

import socket
import threading
import time
from dataclasses import replace

import pytest

from cluster.app.agents import agent
from cluster.app.ship import ship
from cluster.errors import StepFailed, Unreachable
from cluster.model.containers import shipped_name
from cluster.model.events import Progress, Told
from cluster.model.kit import Ship
from cluster.model.table import Secret
from cluster.node.engine import Engine
from cluster.node.local import LocalNode
from tests.contract import dockerd, registry, sshd
from tests.contract.registry import Registry
from tests.contract.sshd import free_port
from tests.contract.test_ship import BIG, LAYER, Pair, archive
from tests.wrong_images import note_error

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(dockerd.missing() is not None, reason=f"not run: {dockerd.missing()}"),
    pytest.mark.skipif(registry.missing() is not None, reason=f"not run: {registry.missing()}"),
]


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reg")
    with dockerd.Dockerd(folder / "head") as head, dockerd.Dockerd(folder / "worker") as worker:
        for version in ("1", "2"):
            head.run("load", data=archive(version))
        yield head, worker


@pytest.fixture
def pair(engines, tmp_path):
    with sshd.Sshd(tmp_path / "sshd") as server:
        head, worker = engines
        made = Pair(head, worker, server, tmp_path)
        made.way = replace(made.way, ship=Ship.REGISTRY, port=free_port(), registry=str(tmp_path / "registry"))
        yield made
        made.close()
    for name in engines[1].run("images", "-aq").stdout.decode().split():
        engines[1].run("rmi", "-f", name, check=False)


def notes(pair):
    return [one.text for one in pair.events if isinstance(one, Told)]


def test_a_rebuilt_layer_is_all_that_goes_through_the_registry_the_second_time(pair, engines, tmp_path):
    first = pair.send("1")
    assert (pair.is_equal("1"), first.how, first.layers) == (True, "registry", 4)
    again = pair.send("2")
    assert (pair.is_equal("2"), again.how, again.layers) == (True, "registry", 1)
    assert LAYER <= again.sent < LAYER * 1.01
    assert notes(pair) == []
    assert [one for one in pair.events if isinstance(one, Progress) and one.node == "head"]
    for engine in engines:  # no name of the registry is left on either side
        shown = engine.run("images", "--digests", "--format", "{{.Repository}}:{{.Tag}}").stdout.decode()
        assert set(shown.splitlines()) == {"sparkctl-ship:1", "sparkctl-ship:2"}
    with socket.socket() as probe:  # nothing of it runs, and its blobs stay for the next time
        assert probe.connect_ex(("127.0.0.1", pair.way.port)) != 0
    kept = tmp_path / "registry"
    assert kept.stat().st_mode & 0o777 == 0o700
    held = sum(one.stat().st_size for one in kept.rglob("blobs/sha256/*/*/data"))
    wanted = {"staging": str(pair.staging), "registry": str(kept)}
    assert int(pair.node.run(agent("unstage", wanted)).text) > held > 4 * LAYER
    assert not kept.exists()


def test_a_registry_that_runs_already_is_used(pair, tmp_path):
    with Registry(tmp_path / "theirs") as theirs:
        pair.way = replace(pair.way, port=int(theirs.address.partition(":")[2]))
        assert pair.send("1").how == "registry"
        assert theirs.blobs()
    assert not (tmp_path / "registry").exists()


def test_where_the_port_is_somebody_elses_the_layers_are_sent_and_it_is_said(pair):
    with socket.create_server(("127.0.0.1", pair.way.port)) as taken:
        threading.Thread(target=answer_nonsense, args=(taken,), daemon=True).start()
        done = pair.send("1")
    assert (pair.is_equal("1"), done.how) == (True, "store")
    why = f"port {pair.way.port} is taken by something that is no registry"
    assert notes(pair) == [f"not by a registry ({why}); sending the missing layers instead"]


def answer_nonsense(server):
    connection, _ = server.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(b"220 mail here\r\n")


def test_where_ssh_forwards_nothing_the_layers_are_sent_and_it_is_said(engines, pair, tmp_path):
    with sshd.Sshd(tmp_path / "closed", options=("DisableForwarding yes",)) as server:
        words = list(pair.way.reach)
        words[words.index("-F") + 1] = str(server.ssh_config)
        pair.way = replace(pair.way, reach=tuple(words))
        done = pair.send("1")
    assert (pair.is_equal("1"), done.how) == (True, "store")
    assert "no way for the worker to it" in notes(pair)[0]


def test_a_cut_link_is_told_and_the_next_run_brings_the_image(pair, engines):
    """A newer engine has a small layer before it tells of it; an older one packs what it pushes, which takes long."""
    size = BIG if pair.worker.seen.containerd_store else LAYER
    engines[0].run("load", data=dockerd.busybox_image("sparkctl-ship:cut", layers=5, size=size))
    cutter = threading.Thread(target=cut_when_pulling, args=(pair,))
    cutter.start()
    with pytest.raises(Unreachable) as caught:
        pair.send("cut")
    cutter.join()
    assert "the way to the head's registry broke" in caught.value.what
    assert pair.worker.engine.image("sparkctl-ship:cut") is None
    assert pair.send("cut").how == "registry"
    assert pair.is_equal("cut")


def cut_when_pulling(pair):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if any(isinstance(one, Progress) and "pulling" in one.text for one in pair.events):
            break
        time.sleep(0.001)
    pair.server.kill_sessions()


@pytest.fixture
def published(engines, tmp_path):
    """An image in a registry, by tag and by digest, that no other test has."""
    head, _ = engines
    with Registry(tmp_path / "public") as public:
        name = f"{public.address}/somebody/image"
        head.run("load", data=dockerd.busybox_image("public:1", layers=4, size=LAYER, salt=tmp_path.name))
        head.run("tag", "public:1", f"{name}:1")
        said = head.run("push", f"{name}:1").stdout.decode()
        digest = said.partition("digest: ")[2].split()[0]
        head.run("rmi", f"{name}:1")
        yield public, name, digest


def test_an_image_is_pulled_by_tag_and_by_digest(engines, published, pair):
    _, name, digest = published
    engine = Engine(pair.node, engines[1].socket)
    seen: list[tuple[str, int, int]] = []
    engine.pull(f"{name}:1", lambda *one: seen.append(one))
    engine.pull(f"{name}@{digest}", lambda *one: seen.append(one))
    found = engine.image(f"{name}@{digest}")
    engine.close()
    assert found is not None
    assert found.layers == pair.head.engine.image("public:1").layers
    assert found.digests == (f"{name}@{digest}",)
    assert all(0 <= done <= total for _, done, total in seen)
    assert len({layer for layer, *_ in seen}) >= 3  # the fourth is other images' too


def test_an_image_that_is_asked_for_by_digest_is_found_where_it_was_sent(engines, published, pair):
    _, name, digest = published
    reference = f"{name}@{digest}"
    pair.head.engine.pull(reference, lambda *_: None)
    image = pair.head.engine.image(reference)
    ship(
        pair.head, pair.worker, image, (shipped_name(reference),), replace(pair.way, ship=Ship.AUTO), pair.events.append
    )
    there = pair.worker.engine.image(reference)
    assert (there.layers, there.tags) == (image.layers, (f"{name}:{digest.replace(':', '-')}",))


def test_a_layer_that_was_changed_in_the_registry_is_never_taken(engines, published, pair):
    public, name, digest = published
    blob = public.blobs()[0]
    blob.write_bytes(blob.read_bytes()[:-100] + b"x" * 100)
    engine = Engine(pair.node, engines[1].socket)
    with pytest.raises(StepFailed) as caught:
        engine.pull(f"{name}@{digest}", lambda *_: None)
    assert engine.image(f"{name}@{digest}") is None
    engine.close()
    assert caught.value.what.endswith("a layer is not what its digest says")
    note_error("a layer was changed in the registry", "image pull", caught.value, "no image")


def test_a_registry_with_a_lock_opens_to_the_login_that_it_knows(engines, tmp_path):
    head, worker = engines
    with Registry(tmp_path / "private") as still_open:
        head.run("tag", "sparkctl-ship:1", f"{still_open.address}/image:1")
        head.run("push", f"{still_open.address}/image:1")
        head.run("rmi", f"{still_open.address}/image:1")
    node = LocalNode("head")
    engine = Engine(node, worker.socket)
    with Registry(tmp_path / "private", closed=True) as closed:
        name = f"{closed.address}/image:1"
        with pytest.raises(StepFailed, match="pulling image") as caught:
            engine.pull(name, lambda *_: None)
        assert "no basic auth credentials" in caught.value.evidence[0]
        note_error("the registry wants a login", "image pull", caught.value, "no image")
        engine.pull(name, lambda *_: None, (registry.USER, Secret(registry.PASSWORD)))
        assert engine.image(name) is not None
        engine.remove_image(name)
    engine.close()
    node.close()
