"""Copies by ZFS between two machines: real pools, a real cable to pull, a real reboot."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.vm import cli
from tests.vm.machine import until
from tests.vm.recipe import FABRIC, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.cli import Said
    from tests.vm.machine import Machine
    from tests.vm.pair import Pair

MODEL, SOURCE, COPY = "/data/m", "tank/m", "tank/sparkctl-demo-model"
MIB = 1 << 20
SUMS = f"cd {MODEL} && find . -type f | sort | xargs sha256sum"
IMAGE = "tar -C / -c bin/busybox | docker import -c 'ENTRYPOINT [\"/bin/busybox\"]' - busybox:lab"
PARTITIONS = "label: dos\n,12G\n,600M\n"
REFUSED, FAILED = 4, 5


@dataclass
class Zfs:
    """The pair with a pool on each node, and what one does there."""

    pair: Pair
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)

    def share(self, *words: str, **settings: str) -> Said:
        given = cli.SHARED | {"MODEL_DIR": MODEL, "WEIGHT_SYNC": "zfs"} | settings
        return cli.on_host(self.pair, self.folder, given, "share", *words, timeout=600)

    def shared(self, *words: str, **settings: str) -> dict:
        said = self.share(*words, **settings)
        (report,) = said.of("share") or ({},)
        assert said.code == 0, json.dumps(said.events[-1]) + said.err[-2000:]
        return report

    def refused(self, **settings: str) -> dict:
        said = self.share(**settings)
        assert said.code == REFUSED, (said.code, said.events[-1], said.err[-2000:])
        return said.events[-1]

    def write(self, name: str, mib: int) -> None:
        """New weights on the head, which nothing can compress."""
        self.pair.a.run(f"head -c {mib}M /dev/urandom > {MODEL}/{name} && sync")

    def is_equal(self) -> bool:
        return self.pair.a.run(SUMS).stdout == self.pair.b.run(SUMS).stdout

    def snapshots(self, machine: Machine, dataset: str) -> list[str]:
        words = f"zfs list -H -t snapshot -o name -s createtxg -d 1 {dataset}"
        return [line.partition("@")[2] for line in machine.run(words).stdout.splitlines()]

    def token(self) -> str:
        return self.pair.b.run(f"zfs get -H -o value receive_resume_token {COPY}", check=False).stdout.strip()

    def received(self) -> int:
        return int(self.pair.b.run(f"cat /sys/class/net/{FABRIC}/statistics/rx_bytes").stdout)


def make_pools(pair: Pair) -> None:
    """A whole disk would make zpool wait for udev: it gets partitions first."""
    for machine in pair.machines:
        machine.run("sfdisk -q /dev/vdb && udevadm settle", input=PARTITIONS)
        machine.run("zpool create -f -O compression=lz4 -O mountpoint=none tank /dev/vdb1")
    pair.b.run("zpool create -f -O mountpoint=none small /dev/vdb2")
    pair.b.run(IMAGE)


@pytest.fixture(scope="module")
def pools(pair: Pair) -> Pair:
    if pair.b.run("zpool list small", check=False).returncode:
        make_pools(pair)
    return pair


@pytest.fixture
def zfs(pools: Pair, tmp_path: Path) -> Iterator[Zfs]:
    """A head with 40 MiB of weights, a worker without any."""
    clean(pools)
    pools.a.run(f"zfs create -o recordsize=1M -o atime=off -o mountpoint={MODEL} {SOURCE}")
    made = Zfs(pools, tmp_path)
    made.write("model-1.safetensors", 20)
    made.write("model-2.safetensors", 20)
    pools.a.run(f"echo '{{}}' > {MODEL}/config.json")
    yield made
    clean(pools)


def clean(pair: Pair) -> None:
    for machine, pool in ((pair.a, "tank"), (pair.b, "tank"), (pair.b, "small")):
        machine.run(
            f"zfs list -H -t snapshot -o name -r {pool} | while read s; do zfs release sparkctl $s 2>/dev/null; done; "
            f"zfs list -H -o name -d 1 {pool} | tail -n +2 | while read d; do zfs receive -A $d 2>/dev/null; "
            "zfs destroy -r $d 2>/dev/null; done; true",
            timeout=300,
        )
    pair.b.run("rmdir /data/m /data 2>/dev/null; true")


def test_a_copy_is_read_in_a_container_a_second_attach_does_nothing_and_a_detach_restores(zfs: Zfs) -> None:
    report = zfs.shared()
    assert report["steps"] > 0
    ours = zfs.pair.a.run(SUMS).stdout
    inside = f"docker run --rm -v {MODEL}:/m:ro busybox:lab sh -c 'cd /m && find . -type f | sort | xargs sha256sum'"
    assert zfs.pair.b.run(inside).stdout == ours
    assert zfs.pair.b.run(f"touch {MODEL}/new", check=False).returncode == 1
    assert zfs.shared()["steps"] == 0
    zfs.write("model-2.safetensors", 20)  # a new content is one more snapshot, and only what changed is sent
    before = zfs.received()
    zfs.shared()
    assert zfs.received() - before < 25 * MIB
    assert zfs.is_equal()
    assert len(zfs.snapshots(zfs.pair.b, COPY)) == len(zfs.snapshots(zfs.pair.a, SOURCE)) == 2
    zfs.shared("--detach")
    assert zfs.pair.b.run(f"zfs list {COPY}", check=False).returncode == 1
    assert zfs.pair.b.run("ls -d /data", check=False).stdout == ""
    assert zfs.snapshots(zfs.pair.a, SOURCE) == []
    assert zfs.pair.a.run(SUMS).stdout != ours
    assert zfs.shared("--detach")["steps"] == 0


def test_a_link_cut_in_the_middle_costs_less_than_five_percent(zfs: Zfs) -> None:
    zfs.write("model-1.safetensors", 100)
    begun = zfs.received()
    given = cli.SHARED | {"HEAD_SSH": "vm-a", "MODEL_DIR": MODEL, "WEIGHT_SYNC": "zfs"}
    (zfs.folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    env = {"HOME": str(zfs.pair.home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": str(REPOSITORY)}
    argv = (sys.executable, "-m", "cluster", "share", "--json")
    with subprocess.Popen(argv, cwd=zfs.folder, env=env, stdout=subprocess.PIPE, text=True) as cut:
        assert cut.stdout is not None
        for line in cut.stdout:
            event = json.loads(line)
            if event["event"] == "progress" and event["current"] > 40 * MIB:
                break
        zfs.pair.cut()
        last = [json.loads(line) for line in cut.stdout][-1]
    assert (cut.returncode, last["event"]) == (FAILED, "failed")
    assert "the same command again goes on with it" in " ".join(last["evidence"])
    zfs.pair.mend()
    until(lambda: len(zfs.token()) > 1, "the worker has a token", 60)
    zfs.shared()
    sent = zfs.received() - begun
    assert sent < 1.05 * 120 * MIB, f"{sent / MIB:.1f} MiB came for 120 MiB"
    assert zfs.is_equal()
    assert zfs.token() == "-"


def test_a_token_whose_snapshot_is_gone_is_given_up_and_all_is_sent(zfs: Zfs) -> None:
    zfs.pair.a.run(f"zfs snapshot {SOURCE}@gone")
    receive = f"zfs receive -s -u -o readonly=on -o sparkctl:id=sparkctl-demo -o mountpoint={MODEL} {COPY}"
    zfs.pair.a.run(f"zfs send -L -c -e {SOURCE}@gone | head -c 12000000 | ssh vm-b {receive}", check=False)
    assert len(zfs.token()) > 1
    zfs.pair.a.run(f"zfs destroy {SOURCE}@gone")
    zfs.shared()
    assert zfs.is_equal()


def test_a_pool_that_cannot_take_it_is_told_before_and_one_that_fills_keeps_what_came(zfs: Zfs) -> None:
    zfs.write("model-1.safetensors", 100)
    full = zfs.refused(ZFS_WORKER_MODEL_DS="small/none/m")
    assert full["what"] == "there is no dataset small/none to receive it in"
    zfs.pair.b.run("zfs create -o refreservation=400M small/filler")
    full = zfs.refused(ZFS_WORKER_MODEL_DS="small/m")
    assert full["what"].startswith("no room: 120.0 MiB needed")
    # Every block twice: what the dataset can take is not what it is told.
    zfs.pair.b.run("zfs destroy small/filler && zfs create -o copies=2 small/twice")
    zfs.pair.b.run("zfs create -o refreservation=300M small/filler")
    said = zfs.share(ZFS_WORKER_MODEL_DS="small/twice/m")
    assert said.code == FAILED, (said.code, said.events[-1])
    assert "the worker's pool is full; make room, what came is kept" in " ".join(said.events[-1]["evidence"])
    token = zfs.pair.b.run("zfs get -H -o value receive_resume_token small/twice/m").stdout.strip()
    assert len(token) > 1
    zfs.pair.b.run("zfs destroy small/filler")
    before = zfs.received()
    zfs.shared(ZFS_WORKER_MODEL_DS="small/twice/m")
    assert zfs.received() - before < 100 * MIB
    assert zfs.is_equal()
    zfs.shared("--detach", ZFS_WORKER_MODEL_DS="small/twice/m")


def test_a_dataset_that_went_its_own_way_is_left_alone_until_somebody_chooses(zfs: Zfs) -> None:
    zfs.shared()
    first = zfs.pair.a.run(SUMS).stdout
    zfs.pair.b.run(f"zfs set readonly=off {COPY} && echo mine > {MODEL}/mine && zfs snapshot {COPY}@mine")
    zfs.write("model-2.safetensors", 10)
    told = zfs.refused()
    assert told["what"] == "the dataset has newer snapshots that the head does not have"
    assert told["evidence"][0].startswith("@mine guid ")
    assert zfs.pair.b.run(f"cat {MODEL}/mine").stdout == "mine\n"
    zfs.shared(ZFS_CONFLICT="rollback")
    assert zfs.is_equal()
    # And back to the checkpoint before, when the head went back.
    older, _ = zfs.snapshots(zfs.pair.a, SOURCE)
    zfs.pair.a.run(f"zfs list -H -t snapshot -o name {SOURCE} | xargs -n 1 zfs release sparkctl")
    zfs.pair.a.run(f"zfs rollback -r {SOURCE}@{older}")
    assert zfs.refused()["what"] == "the dataset has newer snapshots that the head does not have"
    zfs.shared(ZFS_CONFLICT="rollback")
    assert zfs.pair.b.run(SUMS).stdout == first


def test_a_user_without_rights_is_told_which_and_what_only_root_may_do(zfs: Zfs) -> None:
    b = zfs.pair.b
    b.run("id plain >/dev/null 2>&1 || useradd -m -s /bin/sh plain; install -d -m 700 -o plain ~plain/.ssh")
    b.run("install -m 600 -o plain ~/.ssh/authorized_keys ~plain/.ssh/; zfs unallow -u plain tank 2>/dev/null; true")
    as_plain = {"WORKER_SSH": "plain@vm-b"}
    told = zfs.refused(**as_plain)
    assert (
        told["what"]
        == "plain may not atime, create, destroy, hold, mount, readonly, receive, release, rollback, userprop"
    )
    grant = told["fix"].removeprefix("on worker: sudo ")
    assert grant.startswith("zfs allow -u plain ")
    b.run(grant)
    told = zfs.refused(**as_plain)
    assert told["what"] == "all of it was received, and only root may mount it"
    b.run(told["fix"].removeprefix("on worker: ").replace("sudo ", ""))
    zfs.shared(**as_plain)
    assert zfs.is_equal()


def test_an_encrypted_dataset_goes_as_it_lies_and_is_read_once_its_key_is_there(zfs: Zfs) -> None:
    a, b, key = zfs.pair.a, zfs.pair.b, "5a" * 32
    a.run(f"zfs destroy -r {SOURCE} && cat > /root/key", input=key)
    secret = "-o encryption=aes-256-gcm -o keyformat=hex -o keylocation=file:///root/key"
    a.run(f"zfs create {secret} -o recordsize=1M -o atime=off -o mountpoint={MODEL} {SOURCE}")
    zfs.write("model-1.safetensors", 20)
    told = zfs.refused()
    assert (told["what"], told["where"]) == ("its key is not loaded", f"worker:{COPY}")
    seen = "zfs get -H -o value encryption,encryptionroot,keystatus,mounted"
    assert b.run(f"{seen} {COPY}").stdout.split() == ["aes-256-gcm", COPY, "unavailable", "no"]
    b.run(told["fix"].removeprefix("on worker: sudo "), input=key)
    zfs.shared()
    assert zfs.is_equal()
    zfs.write("model-2.safetensors", 10)
    before = zfs.received()
    zfs.shared()
    assert zfs.received() - before < 15 * MIB
    assert zfs.is_equal()
    assert b.run(f"{seen} {COPY}").stdout.split() == ["aes-256-gcm", COPY, "available", "yes"]
    zfs.shared("--detach")
    assert b.run(f"zfs list {COPY}", check=False).returncode == 1


def test_after_a_reboot_of_the_head_a_share_finds_all_as_it_was(zfs: Zfs) -> None:
    zfs.shared()
    began = time.monotonic()
    zfs.pair.a.reboot()
    assert time.monotonic() > began
    assert zfs.shared()["steps"] == 0
    zfs.write("model-2.safetensors", 10)
    zfs.shared()
    assert zfs.is_equal()
