"""`image`: bringing an image to the other node, with sparkctl and with what people type, between two real engines.

A 2 GB image of eight layers, then one that differs in a top layer of 50 MB, then nothing new; and the first shipment
once more, its link cut at half of it, and again. Bytes are those that the receiving end's network interface counted;
the link is a veth pair between two namespaces of its own.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from random import Random

from cluster.app.ship import Side, Way, ship
from cluster.errors import Unreachable
from cluster.node.engine import Engine
from cluster.node.local import LocalNode
from tests.bench.measure import CannotMeasure, Result, say
from tests.contract.dockerd import Dockerd, missing
from tests.contract.sshd import Sshd

LAYERS, LAYER, TOP = 7, int(os.environ.get("BENCH_LAYER_MB", "285")) * 10**6, 50 * 10**6
NAMES = ("sparkctl-bench:1", "sparkctl-bench:2")
HEAD, WORKER = "10.99.88.1", "10.99.88.2"
DISK = Path("/var/tmp")


@dataclass(frozen=True, slots=True)
class Link:
    """Two namespaces and the wire between them."""

    head: str
    worker: str
    wire: str

    def inside(self, which: str) -> tuple[str, ...]:
        return ("nsenter", f"--net=/run/netns/{which}", "--")

    def received(self) -> int:
        """Bytes that came to the worker so far."""
        words = (*self.inside(self.worker), "cat", "/proc/net/dev")
        table = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        row = next(line for line in table.splitlines() if line.strip().startswith(self.wire))
        return int(row.partition(":")[2].split()[0])


@dataclass(frozen=True, slots=True)
class Taken:
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Ground:
    """What all ways of sending share."""

    folder: Path
    link: Link
    head: Dockerd
    worker: Dockerd
    ssh: tuple[str, ...]
    server: Sshd

    def measure(self, act: Callable[[], None]) -> Taken:
        os.sync()
        before, began = self.link.received(), time.monotonic()
        act()
        return Taken(round(time.monotonic() - began, 2), self.link.received() - before)

    def forget(self) -> None:
        """The worker as it was before the first shipment."""
        for name in self.worker.run("images", "-aq").stdout.decode().split():
            self.worker.run("rmi", "-f", name, check=False)


def run() -> Result:
    if reason := missing():
        raise CannotMeasure(reason)
    if shutil.which("rsync") is None:
        raise CannotMeasure("rsync is missing; run: apt-get install rsync")
    if shutil.disk_usage(DISK).free < 25 * 10**9:
        raise CannotMeasure(f"{DISK} has less than 25 GB free")
    with tempfile.TemporaryDirectory(prefix="bi", dir=DISK) as folder, prepared(Path(folder)) as ground:
        arms = {"pipe": by_pipe, "staged": by_staging, "sparkctl": by_sparkctl}
        taken: dict[str, tuple[Taken, Taken, Taken]] = {}
        for name, act in arms.items():
            ground.forget()
            acts = [ground.measure(lambda n=n, act=act: act(ground, n)) for n in (*NAMES, NAMES[1])]  # type: ignore[misc]
            taken[name] = (acts[0], acts[1], acts[2])
            said = ", ".join(f"{one.bytes / 1e6:.1f} MB in {one.seconds} s" for one in acts)
            say(f"{name}: first ship, one layer changed, nothing changed: {said}")
        ours, pipe = taken["sparkctl"], taken["pipe"]
        cut = cut_at_half(ground, ours[0].bytes)
    resent = cut[0].bytes + cut[1].bytes - ours[0].bytes
    say(f"cut at half: {cut[0].bytes / 1e6:.1f} MB, then {cut[1].bytes / 1e6:.1f} MB: {resent / 1e6:.1f} MB sent twice")
    return Result(
        ratios={
            "reship_bytes_over_layer": round(ours[1].bytes / TOP, 3),
            "noop_bytes": ours[2].bytes,
            "first_ship_time_over_pipe": round(ours[0].seconds / pipe[0].seconds, 3),
            "reship_time_over_pipe": round(ours[1].seconds / pipe[1].seconds, 3),
            "resent_over_layer": round(resent / LAYER, 3),
        },
        figures={
            f"{name}_{step}_{unit}": getattr(one, unit)
            for name, each in taken.items()
            for step, one in zip(("first", "reship", "noop"), each, strict=True)
            for unit in ("seconds", "bytes")
        }
        | {"cut_bytes": cut[0].bytes, "resumed_bytes": cut[1].bytes, "resumed_seconds": cut[1].seconds},
    )


# ---- the three ways -------------------------------------------------------------------------------------------------


def by_pipe(ground: Ground, name: str) -> None:
    save = ("docker", "-H", f"unix://{ground.head.socket}", "save", name)
    load = (*ground.ssh, "docker", "-H", f"unix://{ground.worker.socket}", "load")
    with subprocess.Popen(save, stdout=subprocess.PIPE) as left:
        subprocess.run(load, stdin=left.stdout, check=True, stdout=subprocess.DEVNULL)
    if left.returncode:
        raise CannotMeasure(f"docker save ended with exit code {left.returncode}")


def by_staging(ground: Ground, name: str) -> None:
    tar, there = ground.folder / "staged.tar", ground.folder / "there.tar"
    _run("docker", "-H", f"unix://{ground.head.socket}", "save", "--output", str(tar), name)
    target = f"{ground.ssh[-1]}:{there}"
    _run("rsync", "-a", "--partial", "--inplace", "-e", " ".join(ground.ssh[:-1]), str(tar), target)
    _run(*ground.ssh, "docker", "-H", f"unix://{ground.worker.socket}", "load", "--input", str(there))
    for path in (tar, there):
        path.unlink()


def by_sparkctl(ground: Ground, name: str) -> None:
    """What `sparkctl image ship` does once it knows both engines; nothing at all when the layers are the same."""
    way = Way(ground.ssh, staging=str(ground.folder / "blobs"))
    with contextlib.closing(LocalNode("head")) as node, contextlib.ExitStack() as stack:
        sides = [_side(node, one) for one in (ground.head, ground.worker)]
        for side in sides:
            stack.callback(side.engine.close)
        image, there = (side.engine.image(name) for side in sides)
        if image is None:
            raise CannotMeasure(f"the head has no {name}")
        if there is None or there.layers != image.layers:
            ship(sides[0], sides[1], image, (name,), way, lambda _: None)


def cut_at_half(ground: Ground, whole: int) -> tuple[Taken, Taken]:
    """A first shipment that loses its link in the middle, and the same command again."""
    ground.forget()
    before = ground.link.received()

    def cut() -> None:
        while ground.link.received() < before + whole // 2:
            time.sleep(0.05)
        ground.server.kill_sessions()

    def ended() -> None:
        with contextlib.suppress(Unreachable):
            by_sparkctl(ground, NAMES[0])
            raise CannotMeasure("the link was cut, and the shipment did not end")
        with (ground.folder / "blobs/lock").open() as held:  # the receiver has it while it loads what arrived
            fcntl.flock(held, fcntl.LOCK_EX)

    cutter = threading.Thread(target=cut, daemon=True)
    cutter.start()
    first = ground.measure(ended)
    cutter.join()
    return first, ground.measure(lambda: by_sparkctl(ground, NAMES[0]))


def _side(node: LocalNode, daemon: Dockerd) -> Side:
    engine = Engine(node, daemon.socket)
    return Side(node, engine, engine.seen(), daemon.socket)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise CannotMeasure(f"{' '.join(words[:4])} ended with exit code {done.returncode}: {done.stderr[-300:]}")


# ---- engines, link and image ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def prepared(folder: Path) -> Iterator[Ground]:
    with (
        linked() as link,
        Dockerd(folder / "h") as head,
        Dockerd(folder / "w") as worker,
        Sshd(folder / "s", inside=link.inside(link.worker), address=WORKER) as server,
    ):
        through = (*link.inside(link.head), "ssh", "-F", str(server.ssh_config), "-o", "BatchMode=yes")
        for name in NAMES:
            say(f"making {name}: {LAYERS} layers of {LAYER // 10**6} MB, one of {TOP // 10**6} MB")
            load_image(head, name)
        yield Ground(folder, link, head, worker, (*through, "-c", "aes128-gcm@openssh.com", "node"), server)


@contextlib.contextmanager
def linked() -> Iterator[Link]:
    mark = f"{os.getpid()}"
    link = Link(f"bench-h{mark}", f"bench-w{mark}", "wire")
    try:
        for name in (link.head, link.worker):
            _run("ip", "netns", "add", name)
        ends = ("netns", link.head, "type", "veth", "peer", link.wire, "netns", link.worker)
        _run("ip", "link", "add", link.wire, *ends)
        for name, address in ((link.head, HEAD), (link.worker, WORKER)):
            _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", link.wire)
            _run("ip", "-n", name, "link", "set", link.wire, "mtu", "9000", "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")
        yield link
    finally:
        for name in (link.head, link.worker):
            subprocess.run(("ip", "netns", "del", name), capture_output=True)


def load_image(engine: Dockerd, name: str) -> None:
    """Written straight into `docker load`: half of every layer cannot be compressed."""
    import hashlib
    import json

    words = ("docker", "-H", f"unix://{engine.socket}", "load")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as load:
        assert load.stdin is not None
        with tarfile.open(fileobj=load.stdin, mode="w|") as tar:
            diffs, paths = [], []
            for number in range(LAYERS + 1):
                is_top = number == LAYERS
                data = layer(TOP if is_top else LAYER, f"{name if is_top else ''}{number}", f"data{number}")
                diffs.append("sha256:" + hashlib.sha256(data).hexdigest())
                paths.append(f"{number}/layer.tar")
                _add(tar, paths[-1], data)
            config = json.dumps(
                {
                    "architecture": "amd64",
                    "os": "linux",
                    "config": {"Cmd": ["/none"]},
                    "rootfs": {"type": "layers", "diff_ids": diffs},
                }
            ).encode()
            _add(tar, "config.json", config)
            manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": paths}]
            _add(tar, "manifest.json", json.dumps(manifest).encode())
    if load.returncode:
        raise CannotMeasure(f"docker load of {name} ended with exit code {load.returncode}")


def layer(size: int, seed: str, name: str) -> bytes:
    half = Random(seed).randbytes(size // 2)
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add(tar, name, half + (seed.encode() + b" = 1; ") * (size // 2 // (len(seed) + 6)))
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, BytesIO(data))
