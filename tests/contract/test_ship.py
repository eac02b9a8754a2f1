"""Images between two real engines over a real sshd: only what is missing, nothing twice, nothing half, all proved."""

import contextlib
import fcntl
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from cluster.agent.layers import open_store
from cluster.app.ship import Side, Way, ship
from cluster.errors import Refused, StepFailed, Unreachable
from cluster.model.events import Progress, Told
from cluster.model.kit import Ship
from cluster.node.engine import Engine
from cluster.node.failures import NoSpace
from cluster.node.local import LocalNode
from cluster.plan.image import same_image
from tests.contract import dockerd, sshd
from tests.wrong_images import note_error

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(dockerd.missing() is not None, reason=f"not run: {dockerd.missing()}"),
]

LAYER = 3_000_000
BIG = 40_000_000
CIPHER = ("-c", "aes128-gcm@openssh.com")


def archive(version: str) -> bytes:
    """Four layers; versions differ in the last one alone."""
    return dockerd.busybox_image(f"sparkctl-ship:{version}", layers=4, size=LAYER, salt="", last=version)


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ship")
    with dockerd.Dockerd(folder / "head") as head, dockerd.Dockerd(folder / "worker") as worker:
        head.run("load", data=archive("1"))
        head.run("load", data=archive("2"))
        head.run("load", data=dockerd.busybox_image("sparkctl-ship:big", layers=5, size=BIG))
        yield head, worker


class HasSocket(Protocol):
    socket: str


def _side(node: LocalNode, socket: str) -> Side:
    engine = Engine(node, socket)
    return Side(node, engine, engine.seen(), socket)


class Pair:
    """A head and a worker that are this machine, each with an engine of its own, and an ssh between them."""

    def __init__(self, head: HasSocket, worker: HasSocket, server: sshd.Sshd, home: Path) -> None:
        self.node, self.server = LocalNode("head"), server
        self.head, self.worker = _side(self.node, head.socket), _side(LocalNode("worker"), worker.socket)
        reach = ("ssh", "-F", str(server.ssh_config), "-o", "BatchMode=yes", *CIPHER, "node")
        self.way = Way(reach, staging=str(home / "blobs"))
        self.events: list[object] = []
        self.staging = home / "blobs"

    def image(self, version: str):
        seen = self.head.engine.image(f"sparkctl-ship:{version}")
        assert seen is not None
        return seen

    def send(self, version: str, way: Way | None = None):
        return ship(
            self.head, self.worker, self.image(version), (f"sparkctl-ship:{version}",), way or self.way,
            self.events.append,
        )  # fmt: skip

    def is_equal(self, version: str) -> bool:
        """By its layers; where neither store is containerd's, which names an image by how it came, by its id too."""
        there, here = self.worker.engine.image(f"sparkctl-ship:{version}"), self.image(version)
        if there is None or not same_image(here, there) or there.layers != here.layers:
            return False
        return there.id == here.id or self.head.seen.containerd_store or self.worker.seen.containerd_store

    def store(self, version: str):
        """The head's, as the program that sends reads it."""
        image, seen = self.image(version), self.head.seen
        wanted = {"roots": seen.keeps or (seen.root,), "driver": seen.store, "containerd": seen.containerd_store}
        return open_store({**wanted, "id": image.id, "architecture": image.architecture})

    def close(self) -> None:
        for side in (self.head, self.worker):
            side.engine.close()
            side.node.close()


@pytest.fixture
def pair(engines, tmp_path):
    head, worker = engines
    with sshd.Sshd(tmp_path / "sshd") as server:
        made = Pair(head, worker, server, tmp_path)
        yield made
        made.close()
    for name in worker.run("images", "-aq").stdout.decode().split():
        worker.run("rmi", "-f", name, check=False)


def test_a_first_ship_sends_every_layer_once(pair):
    done = pair.send("1")
    assert (pair.is_equal("1"), done.how, done.layers, done.kept) == (True, "store", 4, 0)
    whole = len(archive("1"))
    assert whole * 0.95 < done.sent < whole * 1.05
    assert not [one for one in pair.staging.iterdir() if one.name != "lock"]


def test_a_second_ship_sends_the_changed_layer_alone(pair):
    pair.send("1")
    done = pair.send("2")
    assert (pair.is_equal("2"), done.layers) == (True, 1)
    assert LAYER <= done.sent < LAYER * 1.01


def test_nothing_is_left_but_the_image(pair, engines):
    pair.send("1")
    assert engines[1].run("images", "-q").stdout.decode().count("\n") == 1
    assert engines[1].run("ps", "-aq").stdout == b""


def test_a_stream_does_not_stage(pair):
    done = pair.send("1", Way(pair.way.reach, Ship.STREAM, pair.way.staging))
    assert (pair.is_equal("1"), done.layers) == (True, 4)
    assert not pair.staging.exists()


def test_progress_has_bytes_and_a_true_end(pair):
    pair.send("1")
    told = [one for one in pair.events if isinstance(one, Progress)]
    assert all(one.unit == "bytes" and one.total is not None and one.current <= one.total for one in told)
    assert not [one for one in pair.events if isinstance(one, Told)]


def test_a_cut_shipment_is_taken_up_inside_the_layer(pair, engines):
    """What a run before brought is in the staging folder, or in the engine already."""
    image = pair.image("1")
    first = image.layers[0].partition(":")[2]
    pair.staging.mkdir()
    whole = b"".join(pair.store("1").read(0, 0))
    (pair.staging / f"{first}.part").write_bytes(whole[:500_000])
    done = pair.send("1")
    assert (pair.is_equal("1"), done.kept) == (True, 500_000)
    assert done.sent < len(archive("1")) - 490_000


def test_after_a_cut_link_nothing_that_arrived_is_sent_again(engines, tmp_path):
    head, worker = engines
    with sshd.Sshd(tmp_path / "sshd") as server:
        pair = Pair(head, worker, server, tmp_path)
        cutter = threading.Thread(target=cut_when_half, args=(server, tmp_path / "blobs"))
        cutter.start()
        with pytest.raises(Unreachable) as caught:
            pair.send("big")
        cutter.join()
        assert "nothing of it is sent twice" in caught.value.fix
        note_error("the link breaks during a shipment", "image ship", caught.value, "what arrived, and no image")
        wait_for_receiver(pair.staging)
        loaded = max((len(one.layers) for one in pair.worker.engine.images()), default=0)
        done = pair.send("big")
        whole = len(dockerd.busybox_image("sparkctl-ship:big", layers=5, size=BIG))
        assert pair.is_equal("big")
        assert loaded + done.kept > 0
        assert done.sent + done.kept + max(loaded - 1, 0) * BIG <= whole + BIG // 10
        assert [one.name for one in pair.staging.iterdir()] == ["lock"]
        pair.close()
    for name in worker.run("images", "-aq").stdout.decode().split():
        worker.run("rmi", "-f", name, check=False)


def wait_for_receiver(staging: Path) -> None:
    """It still loads what it has, and holds its folder until then."""
    with (staging / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)


def cut_when_half(server: sshd.Sshd, staging: Path) -> None:
    """The third layer is on its way: every process of the connection ends at once."""
    end = time.monotonic() + 60
    seen: set[str] = set()
    while time.monotonic() < end and len(seen) < 3:
        seen |= {one.name for one in staging.glob("*.part")}
        time.sleep(0.001)
    server.kill_sessions()


def test_a_damaged_part_is_thrown_away_and_sent_again(pair):
    """Of a layer that no other image has: after a load that broke off, containerd keeps what it has for a day."""
    own = pair.image("1").layers[1].partition(":")[2]
    pair.staging.mkdir()
    (pair.staging / f"{own}.part").write_bytes(b"x" * 500_000)
    with pytest.raises(StepFailed, match="damaged") as caught:
        pair.send("1")
    assert not (pair.staging / f"{own}.part").exists()
    note_error("a staged layer was damaged", "image ship", caught.value, "neither it nor an image")
    pair.send("1")
    assert pair.is_equal("1")


def test_the_end_of_the_engine_during_a_load_is_told_and_the_next_run_repairs(engines, tmp_path_factory):
    """The worker's dockerd is killed while it loads."""
    tmp_path = tmp_path_factory.mktemp("kill")  # short: a socket's path may have no more than 104 characters
    with sshd.Sshd(tmp_path / "sshd") as server, dockerd.Dockerd(tmp_path / "other") as other:
        pair = Pair(engines[0], other, server, tmp_path)
        killer = threading.Thread(target=kill_when, args=(other, tmp_path / "blobs"))
        killer.start()
        with pytest.raises(StepFailed) as caught:
            pair.send("1")
        killer.join()
        assert caught.value.where == "worker"
        pair.close()
        other.again()
        pair = Pair(engines[0], other, server, tmp_path)
        assert pair.worker.engine.image("sparkctl-ship:1") is None
        note_error(
            "the worker's engine is killed during the load", "image ship", caught.value, "what arrived, no image"
        )
        pair.send("1")
        assert pair.is_equal("1")
        pair.close()


def test_a_disk_that_fills_up_during_a_load_is_told_and_the_next_run_repairs(engines, tmp_path_factory):
    """Room there was when it was asked for; somebody else took it meanwhile."""
    tmp_path = tmp_path_factory.mktemp("fill")
    with (
        sshd.Sshd(tmp_path / "sshd") as server,
        disk(tmp_path / "small", "7G") as small,
        dockerd.Dockerd(small) as full,
    ):
        pair = Pair(engines[0], full, server, tmp_path)
        filler = threading.Thread(target=fill_when_loading, args=(small, tmp_path / "blobs"))
        filler.start()
        with pytest.raises(NoSpace) as caught:
            pair.send("big")
        filler.join()
        assert (caught.value.what, caught.value.where) == ("no space left for the image", "worker")
        assert "docker system df" in caught.value.fix
        assert pair.worker.engine.image("sparkctl-ship:big") is None
        note_error(
            "the worker's disk fills up during the load", "image ship", caught.value, "what arrived, and no image"
        )
        (small / "filler").unlink()
        pair.send("big")
        assert pair.is_equal("big")
        assert full.run("images", "-q").stdout.decode().count("\n") == 1
        pair.close()


@contextlib.contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of that size, of which little is ever written."""
    file = folder.with_suffix(".img")
    folder.mkdir()
    subprocess.run(("truncate", "-s", size, str(file)), check=True)
    subprocess.run(
        ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(file)), check=True
    )
    if subprocess.run(("mount", "-o", "loop", str(file), str(folder)), capture_output=True).returncode:
        pytest.skip("not run: no loop device can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(("umount", "--lazy", str(folder)), check=True)
        file.unlink()


def fill_when_loading(small: Path, staging: Path) -> None:
    """The third layer is on its way: all that is left on the disk goes."""
    seen: set[str] = set()
    end = time.monotonic() + 60
    while time.monotonic() < end and len(seen) < 3:
        seen |= {one.name for one in staging.glob("*.part")}
        time.sleep(0.001)
    left = shutil.disk_usage(small).free
    subprocess.run(("fallocate", "-l", str(left - 1_000_000), str(small / "filler")), check=True)


def test_a_full_disk_is_refused_before_a_byte_is_sent(engines, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("full")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=40m", "small", str(small)), check=True)
    try:
        with sshd.Sshd(tmp_path / "sshd") as server, dockerd.Dockerd(small) as full:
            pair = Pair(engines[0], full, server, tmp_path)
            with pytest.raises(Refused, match="no room for the image"):
                pair.send("1")
            assert pair.worker.engine.images() == ()
            assert not pair.staging.exists()
            pair.close()
    finally:
        subprocess.run(("umount", "--lazy", str(small)), check=True)


def test_a_way_that_is_not_there_is_unreachable(pair):
    nowhere = Way(("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=2", "-p", "1", "127.0.0.1"), staging="/x")
    with pytest.raises(Unreachable) as caught:
        pair.send("1", nowhere)
    assert "refused" in caught.value.evidence[0]


def test_where_the_store_cannot_be_read_the_whole_image_is_exported(pair, tmp_path):
    """As where the store is not as we know it: the program cannot find it."""
    blind = replace(pair.head.seen, root=str(tmp_path / "elsewhere"), keeps=(str(tmp_path / "elsewhere"),))
    pair.head = replace(pair.head, seen=blind)
    done = pair.send("1")
    assert (pair.is_equal("1"), done.how) == (True, "full export")
    (note,) = [one for one in pair.events if isinstance(one, Told)]
    assert "exporting the whole image" in note.text


def test_an_export_that_fails_is_a_failure_whatever_the_load_says(pair, tmp_path):
    """IMG-03: the left side of a pipe counts too."""
    blind = replace(pair.head.seen, root=str(tmp_path / "elsewhere"), keeps=(str(tmp_path / "elsewhere"),))
    pair.head = replace(pair.head, seen=blind)
    with pytest.raises(StepFailed) as caught:
        ship(pair.head, pair.worker, pair.image("1"), ("sparkctl-ship:none",), pair.way, pair.events.append)
    assert "Error response from daemon" in caught.value.evidence[0]
    assert pair.worker.engine.images() == ()


def kill_when(engine: dockerd.Dockerd, staging: Path) -> None:
    """As soon as something has been staged: it is loaded next."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if staging.exists() and any(one.suffix == ".part" for one in staging.iterdir()):
            break
        time.sleep(0.001)
    engine.kill()


def test_a_layer_read_from_a_byte_on_is_the_rest_of_it(pair):
    store = pair.store("1")
    whole = b"".join(store.read(1, 0))
    assert store.layers(1)[0]["size"] == len(whole)
    for offset in (0, 1, 511, 512, 513, 1_000_000, len(whole) - 1):
        assert b"".join(store.read(1, offset)) == whole[offset:]
