"""Run ranks in containers: the engine creates each one, the shim of the native runtime follows it.

So that logs, looks, stops and systemd units are the same for both runtimes; what differs is said here.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath

from cluster.model.bundle import bundle
from cluster.model.containers import LABEL, Box, ContainerSpec, Mount, Seccomp
from cluster.model.deployment import DeploymentId, rank_dir
from cluster.model.steps import Command, CreateContainer, Run, Step, Write
from cluster.model.units import Bytes, Seconds
from cluster.runtime.base import LaunchSpec, RankSpec
from cluster.runtime.native import NativeRuntime, box_name

SECRETS = PurePosixPath("/run/sparkctl")
# A secret is a file inside too, and becomes a variable only in the server's own process.
ENTER = f'for file in {SECRETS}/*; do export "${{file##*/}}=$(cat "$file")"; done; exec "$@"'
RDMA = "/dev/infiniband"
STACK = Bytes(64 * 2**20)  # the known kits serve with it; an engine's own default differs from host to host


class ContainerRuntime:
    """`shim` does all that happens after a container was created; `profile` is for ranks that read by io_uring."""

    def __init__(self, shim: NativeRuntime, read_part: Callable[[str], bytes], profile: bytes) -> None:
        self._shim, self._graphs, self._profile = shim, bundle((read_part("graphs"),)), profile

    def prepare(self, spec: LaunchSpec) -> tuple[Step, ...]:
        renewed = (self._renew(rank, rank.box) for rank in spec.ranks if rank.box and rank.box.stamped)
        profiles = (self._allow(spec.which, rank) for rank in spec.ranks if rank.box and rank.box.io_uring)
        created = (self._create(spec.which, rank) for rank in spec.ranks)
        return (*self._shim.prepare(spec), *renewed, *profiles, *created)

    def launch(self, spec: LaunchSpec) -> tuple[Step, ...]:
        return self._shim.launch(spec)

    def _renew(self, rank: RankSpec, box: Box) -> Run:
        """A graph compiled for other kernels or other settings is loaded all the same, and answers wrong text."""
        given, there = dict(rank.environment), [at_home(one.source, box.home) for one in box.mounts]
        want = {
            "folders": [path for path, one in zip(there, box.mounts, strict=True) if not one.read_only and "/" in path],
            "files": [path for path, one in zip(there, box.mounts, strict=True) if one.read_only],
            "said": {"image": box.image, **{name: given.get(name) for name in box.stamped}},
        }
        argv = ("python3", "-IS", "-", json.dumps(want, separators=(",", ":")))
        why = f"keep the compiled graphs of rank {rank.rank} only if they are of these settings"
        return Run(rank.node, why, Command(argv, stdin=self._graphs, limit=Seconds(300.0)))

    def _allow(self, which: DeploymentId, rank: RankSpec) -> Write:
        """For whoever creates the container by hand: the engine itself is told the text."""
        why = f"write which system calls rank {rank.rank} may make"
        return Write(rank.node, why, profile_path(which, rank), self._profile, 0o644)

    def _create(self, which: DeploymentId, rank: RankSpec) -> CreateContainer:
        if rank.box is None:
            raise ValueError(f"rank {rank.rank} has no image")
        spec = container_spec(which, rank, rank.box)
        if rank.box.io_uring:
            allowed = Seccomp(at_home(str(profile_path(which, rank)), rank.box.home), self._profile.decode())
            spec = replace(spec, seccomp=allowed)
        return CreateContainer(
            rank.node,
            f"create the container of rank {rank.rank}",
            spec,
            rank.box.engine,
            undo=Command(("docker", "-H", f"unix://{rank.box.engine}", "rm", "--force", spec.name)),
        )


def container_spec(which: DeploymentId, rank: RankSpec, box: Box) -> ContainerSpec:
    """Host network and ipc, as NCCL and vLLM's shared memory need them; no restarts; never privileged."""
    secrets = tuple(Mount(at_home(path, box.home), str(SECRETS / name)) for name, path in rank.secrets)
    with_rdma = RDMA in box.devices
    return ContainerSpec(
        name=box_name(which, rank.rank),
        image=box.image,
        argv=("sh", "-c", ENTER, "sh", *rank.argv) if secrets else rank.argv,
        environment=rank.environment,
        labels=tuple(sorted(labels(which, rank).items())),
        mounts=(*(replace(one, source=at_home(one.source, box.home)) for one in box.mounts), *secrets),
        devices=box.devices,
        gpus=box.gpus,
        capabilities=("SYS_PTRACE", *(("IPC_LOCK",) if with_rdma else ())),
        memlock=-1 if with_rdma else None,
        stack=STACK,
        security=box.security,
    )


def profile_path(which: DeploymentId, rank: RankSpec) -> PurePosixPath:
    return rank_dir(rank.state_dir, which, rank.rank) / "seccomp.json"


def labels(which: DeploymentId, rank: RankSpec) -> dict[str, str]:
    """What says that a container is ours, and whose; nothing here is secret."""
    return {
        f"{LABEL}deployment": which.name,
        f"{LABEL}boot": which.boot,
        f"{LABEL}rank": str(rank.rank),
        f"{LABEL}node": rank.node,
    }


def at_home(path: str, home: str) -> str:
    return f"{home}/{path[2:]}" if path.startswith("~/") else path
