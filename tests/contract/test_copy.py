"""Copies over real ssh: cut inside a file and gone on with, refused or told where they must not go on."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import pytest

from cluster.agent import send_files, take_files
from cluster.app.session import Session
from cluster.app.share import Sharing
from cluster.app.stages import Stages
from cluster.model.kit import Sync
from cluster.node.local import LocalNode
from cluster.node.open import open_node
from cluster.share.base import Folder, Want
from tests.build import pair
from tests.contract.sshd import Sshd

pytestmark = pytest.mark.contract
MIB = 1 << 20
PIECE, BLOCK = 16 * MIB, MIB
PART = f"large.safetensors.{sha256(b'large.safetensors').hexdigest()[:8]}.copy.part"


@dataclass
class Copying:
    """The sender as the head runs it, with a receiver behind sshd."""

    source: Path
    target: Path
    server: Sshd

    def start(self, **more) -> "subprocess.Popen[str]":
        wanted = {
            "folder": str(self.source),
            "to": str(self.target),
            "files": sorted(str(one.relative_to(self.source)) for one in self.source.rglob("*") if one.is_file()),
            "receiver": self.receiver,
            "streams": 2,
            "limit": 0,
            "piece": PIECE,
            "block": BLOCK,
            "silence": 60,
        }
        argv = [sys.executable, "-IS", send_files.__file__, json.dumps(wanted | more)]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @property
    def receiver(self) -> list[str]:
        ssh = ["ssh", "-F", str(self.server.ssh_config), "-o", "BatchMode=yes", "node"]
        return [*ssh, sys.executable, "-IS", take_files.__file__]

    def run(self, **more) -> dict:
        return last(self.start(**more))


def last(process: "subprocess.Popen[str]") -> dict:
    out, err = process.communicate(timeout=120)
    assert out, err
    return json.loads(out.splitlines()[-1])


@pytest.fixture
def copying(tmp_path: Path, server: Sshd) -> Copying:
    source = tmp_path / "head"
    (source / "sub").mkdir(parents=True)
    (source / "large.safetensors").write_bytes(os.urandom(48 * MIB + 7))
    (source / "sub" / "small.json").write_bytes(b"{}")
    (source / "empty.txt").write_bytes(b"")
    return Copying(source, tmp_path / "worker", server)


def same(one: Path, other: Path) -> bool:
    return subprocess.run(["diff", "-r", "-x", ".sparkctl", one, other], capture_output=True).returncode == 0


def test_files_come_whole_with_their_times_and_modes(copying):
    (copying.source / "sub" / "small.json").chmod(0o640)
    total = 48 * MIB + 7 + 2
    assert copying.run() == {"sent": total, "kept": 0}
    assert same(copying.source, copying.target)
    ours, theirs = ((folder / "sub" / "small.json").stat() for folder in (copying.source, copying.target))
    assert (theirs.st_mtime_ns, theirs.st_mode) == (ours.st_mtime_ns, ours.st_mode)


def test_a_copy_that_was_cut_inside_a_file_goes_on_there(copying):
    total = 48 * MIB + 7 + 2
    process = copying.start(limit=20 * MIB)
    part = copying.target / ".sparkctl" / "parts" / PART
    until = time.monotonic() + 60
    while not part.exists() or part.stat().st_blocks * 512 < 20 * MIB:
        assert time.monotonic() < until, "nothing came"
        time.sleep(0.05)
    copying.server.kill_sessions()
    cut = last(process)
    assert (process.returncode, cut["error"]) == (1, "cut")
    assert not (copying.target / "large.safetensors").exists()
    again = copying.run()
    assert again["kept"] >= 18 * MIB
    assert cut["sent"] + again["sent"] - total < PIECE
    assert same(copying.source, copying.target)


def test_what_lies_in_a_part_is_compared_not_trusted(copying):
    parts = copying.target / ".sparkctl" / "parts"
    parts.mkdir(parents=True)
    data = bytearray((copying.source / "large.safetensors").read_bytes())
    data[20 * MIB] ^= 1
    (parts / PART).write_bytes(data + b"what a longer file left")
    done = copying.run()
    assert done["sent"] == BLOCK + 2
    assert same(copying.source, copying.target)


def test_a_name_that_leads_out_of_the_folder_is_refused(copying):
    asked = b'{"folder": "%s", "silence": 60}\n{"piece": "../out", "at": 0, "size": 1}\nx' % bytes(copying.target)
    argv = [sys.executable, "-IS", take_files.__file__]
    done = subprocess.run(argv, input=asked, capture_output=True)
    assert json.loads(done.stdout)["error"] == "name"
    assert not (copying.target.parent / "out").exists()


def test_a_head_that_falls_silent_leaves_no_receiver_behind(copying):
    argv = [sys.executable, "-IS", take_files.__file__]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"folder": "%s", "silence": 0.1}\n' % bytes(copying.target))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["error"] == "silence"
        assert process.wait(10) == 1


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", disk]).returncode:
        pytest.skip("a small disk needs root and mount")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_told_and_what_came_stays(copying, full_disk):
    copying.target = full_disk / "worker"
    done = copying.run()
    assert done["error"] == "no_space"
    assert (copying.target / ".sparkctl" / "parts").exists()


# ---- the whole share ------------------------------------------------------------------------------------------------


@dataclass
class Pair:
    sharing: Sharing
    source: Path
    target: Path


@pytest.fixture
def shared(tmp_path: Path, server: Sshd) -> Iterator[Pair]:
    """Attached once, from this machine to the node behind sshd."""
    source, target = tmp_path / "head", tmp_path / "worker"
    source.mkdir()
    target.mkdir()
    for number in range(3):
        (source / f"model-{number}.safetensors").write_bytes(bytes([number]) * MIB)
    (target / "notes.txt").write_text("mine")
    base = pair()
    nodes = tuple(
        replace(node, state_dir=str(tmp_path / "state" / node.name), model=str(folder))
        for node, folder in zip(base.nodes, (source, target), strict=True)
    )
    settings = replace(base, nodes=nodes)
    way = ("ssh", "-F", str(server.ssh_config), "-o", "BatchMode=yes", "node")
    folder = Folder("the model", "model", str(source), {"spark-b": str(target)})
    want = Want("demo", settings.head, settings.workers, (folder,), settings.weights, ways={"spark-b": way})
    session = Session(settings, lambda node: opened(node, server)).open().need_all()
    sharing = Sharing(session, lambda event: None, Stages(lambda event: None), Sync.RSYNC, want)
    sharing.attach()
    yield Pair(sharing, source, target)
    session.close()


def opened(node, server: Sshd):
    return (
        LocalNode(node.name) if node.control == "local" else open_node(node.name, "node", ssh_config=server.ssh_config)
    )


def test_a_file_of_somebody_else_in_the_folder_outlives_attach_and_detach(shared):
    (shared.source / "model-2.safetensors").unlink()
    shared.sharing.attach()
    there = {"model-0.safetensors", "model-1.safetensors", "notes.txt"}
    assert {one.name for one in shared.target.iterdir()} - {".sparkctl"} == there
    shared.sharing.detach()
    assert [one.name for one in shared.target.iterdir()] == ["notes.txt"]
