"""NFS between two machines with kernels of their own: shared, read, cut off, forbidden, started again, and taken back.

`scripts/vm-lab test tests/vm/test_nfs.py` runs it. sparkctl runs on this host; head and worker are reached by ssh.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.vm.cli import on_host
from tests.vm.furniture import (
    EXPORTER,
    IMAGE,
    MODEL,
    NO_SERVER,
    RANK,
    SERVER_AGAIN,
    SLOWLY,
    STANDIN,
    SUMS,
    VLLM,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.lab.cli import Said
    from tests.vm.machine import Machine
    from tests.vm.pair import Pair

AGENT = Path(__file__).resolve().parents[2] / "cluster" / "agent"
SETTINGS = {
    "DEPLOYMENT": "demo",
    "HEAD_IP": "10.77.0.1",
    "WORKER_IP": "10.77.0.2",
    "WORKER_SSH": "vm-b",
    "MODEL_DIR": "/srv/m",
    "MODEL_HOST": "/data/m",
    "WEIGHT_SYNC": "nfs",
    "NFS_TRANSPORT": "tcp",
}
BOXED = {
    "RUNTIME": "container",
    "IMAGE": "python:lab",
    "MODEL_DIR": "/model",
    "WORKER_MODEL_DIR": "/srv/m",
    "NFS_MOUNT_BY": "volume",
}
WEIGHTS = """
mkdir -p /data/m && cd /data/m && echo '{}' > config.json
head -c 25165824 /dev/urandom > model-00001-of-00002.safetensors
head -c 6291456 /dev/urandom > model-00002-of-00002.safetensors
chmod 644 *
"""
# Everything that an attach changes on a node: what is exported, mounted and made.
PORTRAIT = """
exportfs -s; ls -A /etc/exports.d; cat /proc/fs/nfsd/threads; grep nfs4 /proc/mounts
find /data /srv 2>/dev/null | sort
true
"""
VOLUMES = "docker volume ls -q"
SERVED = {
    "DEPLOYMENT": "served",
    "MODEL_DIR": "/srv/served",
    "MODEL_HOST": "/srv/served",
    "HOST": "fabric",
    "VENV": f"{STANDIN}/venv",
    "STOP_GRACE": "20",
}


@pytest.fixture(scope="module")
def shared(pair: Pair) -> Pair:
    """A pair with weights on the head alone."""
    pair.a.run(WEIGHTS)
    return pair


@pytest.fixture(autouse=True)
def clean(shared: Pair, tmp_path: Path) -> Iterator[None]:
    yield
    shared.a.run("systemctl start nfs-server; chmod 644 /data/m/*safetensors", timeout=300)
    share(shared, tmp_path, "--detach")


def share(pair: Pair, folder: Path, *words: str, **changes: str) -> Said:
    return on_host(pair, folder, SETTINGS | changes, "share", *words, timeout=900)


def result(said: Said) -> Mapping[str, Any]:
    assert said.code == 0, said.err + json.dumps(said.events[-1])
    return said.events[-1]


def portrait(pair: Pair) -> tuple[str, str]:
    return pair.a.run(PORTRAIT).stdout, pair.b.run(PORTRAIT).stdout


def sums(machine: Machine, folder: str) -> dict[str, str]:
    lines = machine.run(f"cd {folder} && sha256sum *").stdout.splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def test_it_is_shared_once_read_as_it_is_and_taken_back(shared, tmp_path):
    before = portrait(shared)
    first = result(share(shared, tmp_path))
    assert first["steps"] > 0
    assert first["folders"][0]["how"].startswith("NFS 4.2 over tcp, read-only, 8 connections")
    assert result(share(shared, tmp_path))["steps"] == 0
    assert sums(shared.b, "/srv/m") == sums(shared.a, "/data/m")
    assert "Read-only file system" in shared.b.run("touch /srv/m/x", check=False).stderr
    assert shared.b.run("cat /sys/class/bdi/$(mountpoint -d /srv/m)/read_ahead_kb").stdout == "16384\n"
    result(share(shared, tmp_path, "--detach"))
    assert portrait(shared) == before
    assert result(share(shared, tmp_path, "--detach"))["steps"] == 0


def test_a_container_on_the_worker_reads_it_from_a_volume(shared, tmp_path):
    for machine in (shared.a, shared.b):
        machine.run(IMAGE, timeout=600)
    before = portrait(shared), shared.b.run(VOLUMES).stdout
    said = result(share(shared, tmp_path, **BOXED))
    assert (said["folders"][0]["path"], said["folders"][0]["files"]) == ("/model", 3)
    assert said["folders"][0]["how"].startswith("NFS 4.2 over tcp, read-only")
    assert result(share(shared, tmp_path, **BOXED))["steps"] == 0
    run = ["docker", "run", "--rm", "-v", "sparkctl-demo-model:/model:ro", "python:lab", "python3", "-c", SUMS]
    assert json.loads(shared.b.run(run).stdout) == sums(shared.a, "/data/m")
    result(share(shared, tmp_path, "--detach", **BOXED))
    assert (portrait(shared), shared.b.run(VOLUMES).stdout) == before


def test_a_server_that_dies_in_the_middle_of_a_read_is_waited_for_and_holds_up_nothing_else(shared, tmp_path):
    result(share(shared, tmp_path))
    name = "model-00001-of-00002.safetensors"
    shared.b.run("rm -f /tmp/progress; cat > /tmp/slowly.py; nohup python3 /tmp/slowly.py /srv/m/"
                 f"{name} > /tmp/sum 2>&1 &", input=SLOWLY)  # fmt: skip
    shared.b.run("until [ -s /tmp/progress ]; do sleep 0.2; done")
    shared.a.run("systemctl stop nfs-server")
    stuck = shared.b.run("sleep 3; cat /tmp/progress").stdout
    status = on_host(shared, tmp_path, SETTINGS, "status")
    assert (status.code, status.of("status")[0]["state"]) == (9, "absent")
    assert on_host(shared, tmp_path, SETTINGS, "stop").code == 0
    assert shared.b.run("cat /tmp/progress").stdout == stuck
    assert int(stuck) < 25165824
    again = result(share(shared, tmp_path))  # starts the server
    assert again["steps"] > 0
    shared.b.run("until [ -s /tmp/sum ]; do sleep 0.5; done", timeout=300)
    assert shared.b.run("cat /tmp/sum").stdout.strip() == sums(shared.a, "/data/m")[name]


def test_a_head_that_is_gone_is_told_and_a_detach_does_not_wait_for_it(shared, tmp_path):
    result(share(shared, tmp_path))
    shared.cut()
    try:
        said = share(shared, tmp_path)
        assert (said.code, said.events[-1]["what"]) == (4, "the worker does not reach the head's NFS port: no answer")
        assert result(share(shared, tmp_path, "--detach"))["steps"] > 0
        assert shared.b.run("grep -c nfs4 /proc/mounts", check=False).stdout == "0\n"
    finally:
        shared.mend()


def test_what_may_not_be_read_or_mounted_is_refused_before_anything_is_done(shared, tmp_path):
    before = portrait(shared)
    shared.a.run("chmod 600 /data/m/model-00002-of-00002.safetensors")
    said = share(shared, tmp_path)
    assert (said.code, said.events[-1]["evidence"]) == (4, ["model-00002-of-00002.safetensors"])
    shared.a.run("chmod 644 /data/m/model-00002-of-00002.safetensors")
    said = share(shared, tmp_path, NFS_CLIENTS="192.0.2.0/24")
    assert said.code == 4
    assert said.events[-1]["what"] == "the worker comes from 10.77.0.2, and the export is for 192.0.2.0/24"
    shared.b.run("mkdir -p /srv/m && echo mine > /srv/m/notes")
    try:
        assert "1 files of its own" in share(shared, tmp_path).events[-1]["what"]
    finally:
        shared.b.run("rm -r /srv/m")
    assert portrait(shared) == before


def test_exports_that_somebody_else_made_stay(shared, tmp_path):
    shared.a.run("mkdir -p /other && exportfs -o ro,no_subtree_check 192.0.2.7:/other")
    try:
        before = shared.a.run("exportfs -s").stdout
        result(share(shared, tmp_path))
        assert before.strip() in shared.a.run("exportfs -s").stdout
        result(share(shared, tmp_path, "--detach"))
        assert shared.a.run("exportfs -s").stdout == before
    finally:
        shared.a.run("exportfs -u 192.0.2.7:/other; rmdir /other")


def test_other_files_are_published_under_another_name_and_mounted(shared, tmp_path):
    result(share(shared, tmp_path))
    old = shared.b.run("grep /srv/m /proc/mounts").stdout.split()[0]
    shared.a.run("cd /data/m && head -c 6291456 /dev/urandom > new && mv new model-00002-of-00002.safetensors")
    result(share(shared, tmp_path))
    assert shared.b.run("grep /srv/m /proc/mounts").stdout.split()[0] != old
    assert sums(shared.b, "/srv/m") == sums(shared.a, "/data/m")
    assert shared.a.run("ls /data/m/.sparkctl/export | wc -l").stdout.strip() == "1"


def test_rdma_is_what_comes_where_both_ends_have_it(shared, tmp_path):
    said = result(share(shared, tmp_path, NFS_TRANSPORT="auto"))
    assert said["folders"][0]["how"].startswith("NFS 4.2 over rdma, read-only")
    assert sums(shared.b, "/srv/m") == sums(shared.a, "/data/m")


def test_another_mount_of_the_server_that_would_decide_the_transport_is_named(shared, tmp_path):
    shared.a.run("mkdir -p /other && exportfs -o ro,no_subtree_check 10.77.0.2:/other")
    shared.b.run("mkdir -p /mnt/other && mount -t nfs4 -o ro,proto=tcp 10.77.0.1:/other /mnt/other")
    try:
        said = share(shared, tmp_path, NFS_TRANSPORT="rdma")
        assert (said.code, said.events[-1]["where"]) == (4, "worker:/mnt/other")
    finally:
        shared.b.run("umount /mnt/other; rmdir /mnt/other")
        shared.a.run("exportfs -u 10.77.0.2:/other; rmdir /other")


def test_only_the_weights_leave_the_page_cache_of_client_and_server(shared, tmp_path):
    result(share(shared, tmp_path))
    for machine, folder in ((shared.b, "/srv/m"), (shared.a, "/data/m")):
        machine.run(
            f"cat {folder}/* > /dev/null; head -c 1048576 /dev/urandom > /root/other; cat /root/other > /dev/null"
        )
        ask = json.dumps({"folders": [folder], "all": False, "price": False})
        done = json.loads(machine.run(["python3", "-", ask], input=(AGENT / "drop.py").read_text()).stdout)
        assert (done["resident_before"], done["resident_after"], done["files"]) == (25165824 + 6291456, 0, 2)
        assert machine.run("fincore -nb -o RES /root/other").stdout.split() == ["1048576"]
        assert int(machine.run(f"fincore -nb -o RES {folder}/config.json").stdout) > 0


def test_start_brings_the_weights_a_rank_reads_them_from_the_mount_and_a_stop_leaves_them(shared, tmp_path):
    for machine in shared.machines:
        machine.run(RANK, input=VLLM)
    shared.a.run(["python3", "-c", MODEL])
    before = portrait(shared)
    try:
        started = on_host(shared, tmp_path, SETTINGS | SERVED, "start", timeout=900)
        assert started.code == 0, started.err + json.dumps(started.events[-3:])
        stages = [one["stage"] for one in started.of("stage-ended")]
        assert stages.index("prove") < stages.index("check") < stages.index("launch")
        *read, kind = shared.b.run(f"cat {STANDIN}/read").stdout.splitlines()
        assert {name: digest for digest, name in map(str.split, read)} == sums(shared.a, "/srv/served")
        assert kind == "nfs"
        status = on_host(shared, tmp_path, SETTINGS | SERVED, "status")
        assert (status.code, status.result["state"]) == (0, "serving")
        assert on_host(shared, tmp_path, SETTINGS | SERVED, "stop").code == 0
        assert result(share(shared, tmp_path, **SERVED))["steps"] == 0
        assert sums(shared.b, "/srv/served") == sums(shared.a, "/srv/served")
    finally:
        on_host(shared, tmp_path, SETTINGS | SERVED, "stop")
        detached = share(shared, tmp_path, "--detach", **SERVED)
    assert (detached.code, portrait(shared)) == (0, before)


def test_a_head_without_an_nfs_server_exports_from_a_container(shared, tmp_path):
    shared.a.run(EXPORTER, timeout=600)
    shared.a.run(NO_SERVER)
    by_container = {"NFS_IMAGE": "exporter:lab"}
    try:
        before = portrait(shared)
        first = result(share(shared, tmp_path, **by_container))
        assert first["folders"][0]["how"].startswith("NFS 4.2 over tcp, read-only, 8 connections")
        assert shared.a.run("docker ps --format '{{.Image}} {{.Names}}'").stdout.split() == [
            "exporter:lab",
            "sparkctl-demo-exporter",
        ]
        assert result(share(shared, tmp_path, **by_container))["steps"] == 0
        assert sums(shared.b, "/srv/m") == sums(shared.a, "/data/m")
        assert "Read-only file system" in shared.b.run("touch /srv/m/x", check=False).stderr
        result(share(shared, tmp_path, "--detach", **by_container))
        assert (portrait(shared), shared.a.run("docker ps -aq").stdout) == (before, "")
        assert result(share(shared, tmp_path, "--detach", **by_container))["steps"] == 0
    finally:
        shared.a.run(f"docker rm -f sparkctl-demo-exporter 2>/dev/null; {SERVER_AGAIN}")


def test_after_a_reboot_of_the_head_a_share_brings_it_all_back(shared, tmp_path):
    result(share(shared, tmp_path))
    shared.a.reboot()
    again = result(share(shared, tmp_path))
    assert sums(shared.b, "/srv/m") == sums(shared.a, "/data/m")
    assert result(share(shared, tmp_path))["steps"] == 0
    assert {step["node"] for step in again["folders"]} == {"worker"}
