"""A rank's container: equal but for what may differ, marked as ours, never privileged, no secret in it."""

import json
from dataclasses import replace

from cluster.model.containers import Box, Mount, Seccomp
from cluster.model.deployment import DeploymentId, rank_dir
from cluster.model.steps import Command, CreateContainer, Run, Write
from cluster.runtime.base import LaunchSpec, RankSpec
from cluster.runtime.container import ENTER, ContainerRuntime, container_spec
from cluster.runtime.native import NativeRuntime

WHICH = DeploymentId("demo", "20261130T173000Z-3f9a")


def part(name: str) -> bytes:
    return f"# {name}\n".encode()


RUNTIME = ContainerRuntime(NativeRuntime(part), part, b"{}")
BOX = Box("sha256:11", "/var/run/docker.sock", home="/home/op", mounts=(Mount("~/model", "/model"),))


def rank(number: int, box: Box = BOX, secrets: tuple[tuple[str, str], ...] = ()) -> RankSpec:
    return RankSpec(number, f"spark-{'ab'[number]}", ("vllm", "serve", "/model"), (("A", "1"),), secrets, "/s", box)


SPEC = LaunchSpec(WHICH, (rank(0), rank(1)))


def test_containers_are_created_before_anything_starts_and_are_removed_when_that_fails():
    steps = [one for one in RUNTIME.prepare(SPEC) if isinstance(one, CreateContainer)]
    assert [(one.node, one.spec.name) for one in steps] == [
        ("spark-a", "sparkctl-demo-rank0-20261130T173000Z-3f9a"),
        ("spark-b", "sparkctl-demo-rank1-20261130T173000Z-3f9a"),
    ]
    assert steps[1].undo == Command(
        ("docker", "-H", "unix:///var/run/docker.sock", "rm", "--force", "sparkctl-demo-rank1-20261130T173000Z-3f9a")
    )


def test_the_shim_is_told_which_container_it_follows():
    written = [one for one in RUNTIME.prepare(SPEC) if isinstance(one, Write) and one.path.name == "spec.json"]
    assert json.loads(written[0].data)["container"] == {
        "name": "sparkctl-demo-rank0-20261130T173000Z-3f9a",
        "engine": "unix:///var/run/docker.sock",
    }


def test_the_worker_is_launched_before_the_head():
    assert [one.node for one in RUNTIME.launch(SPEC) if isinstance(one, Run)] == ["spark-b", "spark-a"]


def test_a_container_says_whose_it_is_and_never_restarts_by_itself():
    spec = container_spec(WHICH, rank(1), BOX)
    assert dict(spec.labels) == {
        "sparkctl.deployment": "demo",
        "sparkctl.boot": "20261130T173000Z-3f9a",
        "sparkctl.rank": "1",
        "sparkctl.node": "spark-b",
    }
    assert (spec.oom_score, spec.host_network, spec.host_ipc) == (1000, True, True)


def test_a_home_in_a_mount_is_the_one_of_its_node():
    assert container_spec(WHICH, rank(1), BOX).mounts == (Mount("/home/op/model", "/model"),)


def test_a_secret_is_a_mounted_file_and_stands_nowhere_else():
    spec = container_spec(WHICH, rank(0, secrets=(("VLLM_API_KEY", "~/key"),)), BOX)
    assert spec.mounts[-1] == Mount("/home/op/key", "/run/sparkctl/VLLM_API_KEY")
    assert spec.argv == ("sh", "-c", ENTER, "sh", "vllm", "serve", "/model")
    assert spec.environment == (("A", "1"),)


def test_rdma_needs_its_devices_and_memory_that_may_be_locked():
    with_rdma = container_spec(WHICH, rank(0), Box("i", "e", devices=("/dev/infiniband",)))
    assert (with_rdma.capabilities, with_rdma.memlock) == (("SYS_PTRACE", "IPC_LOCK"), -1)
    without = container_spec(WHICH, rank(0), BOX)
    assert (without.capabilities, without.memlock) == (("SYS_PTRACE",), None)


def test_compiled_graphs_are_held_against_what_they_depend_on_before_a_container_is_created():
    mounts = (Mount("~/model", "/model"), Mount("~/fix.py", "/opt/fix.py"), Mount("~/cache", "/cache", read_only=False))
    box = replace(BOX, mounts=mounts, stamped=("A", "ABLATE"))
    steps = RUNTIME.prepare(LaunchSpec(WHICH, (rank(0, box),)))
    (renewed,) = [one for one in steps if isinstance(one, Run)]
    assert isinstance(steps[steps.index(renewed) + 1], CreateContainer)
    assert json.loads(renewed.command.argv[-1]) == {
        "folders": ["/home/op/cache"],
        "files": ["/home/op/model", "/home/op/fix.py"],
        "said": {"image": "sha256:11", "A": "1", "ABLATE": None},
    }


def test_a_rank_that_reads_by_io_uring_is_allowed_to():
    steps = RUNTIME.prepare(LaunchSpec(WHICH, (rank(0, replace(BOX, io_uring=True)), rank(1))))
    made = [one.spec.seccomp for one in steps if isinstance(one, CreateContainer)]
    path = str(rank_dir("/s", WHICH, 0) / "seccomp.json")
    assert made == [Seccomp(path, "{}"), None]
    written = [
        (one.node, str(one.path), one.data) for one in steps if isinstance(one, Write) and "seccomp" in str(one.path)
    ]
    assert written == [("spark-a", path, b"{}")]
