"""`copy`: 4 GiB of shards from one node to another, with sparkctl, with rsync as people type it, and over bare TCP.

The nodes are two network namespaces joined by a veth pair, the worker with a real sshd. All ways take turns in one run,
read from the page cache, write to the same disk, and are done when it is on that disk. Processor time is that of all
processes on both nodes.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cluster.app.execute import Transaction
from cluster.app.session import Session
from cluster.app.share import Sharing
from cluster.app.stages import Stages
from cluster.config.load import load as load_settings
from cluster.model.events import Event
from cluster.model.kit import Sync
from cluster.model.need import Need
from cluster.model.nodes import NodeSettings
from cluster.node.local import LocalNode
from cluster.share.base import Folder, Want
from tests.bench.image import WORKER, Link, linked
from tests.bench.measure import CannotMeasure, Result, load, median, say
from tests.contract.sshd import SSHD, Sshd

MIB = 2**20
SHARDS, SHARD = 8, int(os.environ.get("BENCH_SHARD_MB", "512")) * MIB
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
SIZE = SHARDS * SHARD
TICKS = os.sysconf("SC_CLK_TCK")

TAKE = """
import os, socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("on", flush=True)
peer, view = server.accept()[0], memoryview(bytearray(1 << 20))
with open(sys.argv[3], "wb", buffering=0) as file:
    while size := peer.recv_into(view):
        file.write(view[:size])
"""
SEND = """
import os, socket, sys
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for path in sys.argv[3:]:
    with open(path, "rb") as file:
        peer.sendfile(file)
"""


@dataclass(frozen=True, slots=True)
class Ground:
    """What all ways share."""

    folder: Path
    link: Link
    server: Sshd

    @property
    def source(self) -> Path:
        return self.folder / "head"

    @property
    def target(self) -> Path:
        return self.folder / "worker"

    @property
    def ssh(self) -> tuple[str, ...]:
        return (*self.link.inside(self.link.head), "ssh", "-F", str(self.server.ssh_config), "-o", "BatchMode=yes")

    def cpu(self) -> float:
        """Seconds so far of all that was started here, and of sshd with all that it has waited for."""
        mine = sum(
            used.ru_utime + used.ru_stime
            for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
        stat = Path(f"/proc/{self.server_pid}/stat").read_text().rpartition(")")[2].split()
        return mine + sum(map(int, stat[11:15])) / TICKS

    @property
    def server_pid(self) -> int:
        return int((self.server.folder / "sshd.pid").read_text())


@dataclass(frozen=True, slots=True)
class Taken:
    seconds: float
    cpu: float


def run() -> Result:
    if SSHD is None or os.geteuid():
        raise CannotMeasure("two nodes need root and sshd; run: apt-get install openssh-server")
    if shutil.which("rsync") is None:
        raise CannotMeasure("rsync is missing; run: apt-get install rsync")
    base = os.environ.get("BENCH_DIR", "/var/tmp")
    if shutil.disk_usage(base).free < 3 * SIZE:
        raise CannotMeasure(f"{base} has less than {3 * SIZE / 2**30:.0f} GiB free")
    ways: dict[str, Callable[[Ground], None]] = {"raw_tcp": by_tcp, "rsync": by_rsync, "sparkctl": by_sparkctl}
    taken: dict[str, list[Taken]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory(prefix="bench-copy-", dir=base) as folder, prepared(Path(folder)) as ground:
        for number in range(ROUNDS):
            for name, act in ways.items():
                taken[name].append(measure(ground, act))
            said = ", ".join(
                f"{name} {each[-1].seconds:.2f} s, {each[-1].cpu:.2f} s CPU" for name, each in taken.items()
            )
            say(f"round {number + 1} of {ROUNDS}: {said}; load {load():.1f}")
        proof = prove(ground)
    seconds = {name: median([one.seconds for one in each]) for name, each in taken.items()}
    cpu = {name: median([one.cpu for one in each]) for name, each in taken.items()}
    return Result(
        ratios={
            "time_over_raw_tcp": round(seconds["sparkctl"] / seconds["raw_tcp"], 3),
            "speedup_over_rsync": round(seconds["rsync"] / seconds["sparkctl"], 3),
            "cpu_over_rsync": round(cpu["sparkctl"] / cpu["rsync"], 3),
        },
        figures={f"{name}_seconds": value for name, value in seconds.items()}
        | {f"{name}_cpu_seconds": value for name, value in cpu.items()}
        | {"proof_by_sha256_seconds": proof, "bytes": SIZE, "rounds": ROUNDS, "load": load(), "cores": os.cpu_count()},
    )


def measure(ground: Ground, act: Callable[[Ground], None]) -> Taken:
    shutil.rmtree(ground.target, ignore_errors=True)
    ground.target.mkdir()
    os.sync()
    before, began = ground.cpu(), time.monotonic()
    act(ground)
    subprocess.run(["sync", *ground.target.iterdir()], check=True)
    seconds = time.monotonic() - began
    while ground.server.session_pids():
        time.sleep(0.02)  # what a session took is known when it has ended
    got = sum(path.stat().st_size for path in ground.target.iterdir() if path.is_file())
    if got != SIZE:
        raise CannotMeasure(f"{got} bytes arrived, not {SIZE}")
    return Taken(seconds, ground.cpu() - before)


# ---- the ways -------------------------------------------------------------------------------------------------------


def by_tcp(ground: Ground) -> None:
    port = str(ground.server.port + 1)
    take = (
        *ground.link.inside(ground.link.worker),
        sys.executable,
        "-c",
        TAKE,
        WORKER,
        port,
        str(ground.target / "all"),
    )
    with subprocess.Popen(take, stdout=subprocess.PIPE) as taker:
        assert taker.stdout is not None
        taker.stdout.readline()
        paths = [str(path) for path in sorted(ground.source.iterdir())]
        send = (*ground.link.inside(ground.link.head), sys.executable, "-c", SEND, WORKER, port, *paths)
        subprocess.run(send, check=True)
    if taker.returncode:
        raise CannotMeasure(f"the receiver ended with exit code {taker.returncode}")


def by_rsync(ground: Ground) -> None:
    """As people type it: archive mode over ssh, with the cipher that the two sides agree on."""
    words = ("rsync", "-a", "-e", " ".join(ground.ssh), f"{ground.source}/", f"node:{ground.target}/")
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise CannotMeasure(f"rsync ended with exit code {done.returncode}: {done.stderr[-300:]}")


def by_sparkctl(ground: Ground) -> None:
    """The copy of `sparkctl share --backend rsync`: all that it plans before it reads both sides again."""
    with sharing(ground) as share:
        carry_out(share, lambda stage: stage != "read")


def prove(ground: Ground) -> float:
    """What reading both sides by sha256 takes afterwards: 2 times all bytes, on the same disk here."""
    with sharing(ground) as share:
        began = time.monotonic()
        carry_out(share, lambda stage: stage == "read")
        seconds = time.monotonic() - began
        if not share.backend.attach(share.want, share.look()).is_empty:
            raise CannotMeasure("what was copied is not what the head has")
    return round(seconds, 2)


def carry_out(share: Sharing, wanted: Callable[[str], bool]) -> None:
    plan = share.backend.attach(share.want, share.look())
    transaction = Transaction(share.session, share.emit)
    for stage in plan.stages:
        if wanted(stage.name):
            transaction.run(stage)


@contextmanager
def sharing(ground: Ground) -> Iterator[Sharing]:
    settings = load_settings(Path("/nowhere"), environ={}, need=Need.NOTHING).settings
    nodes = tuple(
        NodeSettings(name=name, control="local", state_dir=str(ground.folder / f"state-{name}")) for name in "ab"
    )
    settings = replace(settings, nodes=nodes)
    way = (*ground.ssh, "-o", "Compression=no", "-c", "aes128-gcm@openssh.com", "node")
    folder = Folder("the model", "model", str(ground.source), {"b": str(ground.target)})
    want = Want("bench", nodes[0], nodes[1:], (folder,), settings.weights, ways={"b": way})
    session = Session(settings, lambda node: LocalNode(node.name)).open().need_all()
    try:
        yield Sharing(session, _unheard, Stages(_unheard), Sync.RSYNC, want)
    finally:
        session.close()


def _unheard(event: Event) -> None:
    pass


# ---- nodes and shards -----------------------------------------------------------------------------------------------


@contextmanager
def prepared(folder: Path) -> Iterator[Ground]:
    (folder / "head").mkdir()
    say(f"writing {SHARDS} shards of {SHARD // MIB} MiB, and waiting until they are on the disk")
    block = os.urandom(min(64 * MIB, SHARD))
    for number in range(SHARDS):
        with (folder / "head" / f"model-{number + 1:05}-of-{SHARDS:05}.safetensors").open("wb") as file:
            for at in range(0, SHARD, len(block)):
                turn = (number * 7919 + at // MIB) % len(block)
                file.write(block[turn:] + block[:turn])
    os.sync()
    with linked() as link, Sshd(folder / "sshd", inside=link.inside(link.worker), address=WORKER) as server:
        yield Ground(folder, link, server)
