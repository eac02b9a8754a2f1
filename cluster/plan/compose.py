"""The container of each rank as a compose file: what sparkctl would create, for those who start it by other means."""

from collections.abc import Mapping
from typing import Any

from cluster.model.containers import ContainerSpec, Mount
from cluster.model.deployment import DeploymentId
from cluster.plan.yaml_text import documents
from cluster.runtime.base import LaunchSpec, RankSpec
from cluster.runtime.container import container_spec

HEAD = "# Written by `sparkctl compose`; change the settings and write it again, not this file.\n"
BOOT = "compose"


def compose_file(which: DeploymentId, rank: RankSpec, asked: str = "") -> str:
    """One file for the node of that rank. A secret is a file of the node that is mounted; its value is nowhere here.

    `asked` is the URL that says whether the server is ready, of a rank alone: it may be started again once when it
    fails. Several ranks start together or not at all.
    """
    if rank.box is None:
        raise ValueError(f"rank {rank.rank} has no image")
    spec = container_spec(which, rank, rank.box)
    made = {**service(spec), **(_alone(asked) if asked else {})}
    volumes = {one.source: {"external": True} for one in spec.mounts if "/" not in one.source}
    whole = {"name": f"sparkctl-{which.name}", "services": {f"rank{rank.rank}": made}}
    return HEAD + documents((whole | ({"volumes": volumes} if volumes else {}),))


def service(spec: ContainerSpec) -> Mapping[str, Any]:
    found: dict[str, Any] = {
        "image": spec.image,
        "container_name": spec.name,
        "entrypoint": [],
        "command": [_plain(word) for word in spec.argv],
        "environment": {name: _plain(value) for name, value in spec.environment},
        "labels": dict(spec.labels),
        "volumes": [_volume(one) for one in spec.mounts],
        "devices": [f"{path}:{path}" for path in spec.devices],
        "cap_add": list(spec.capabilities),
        "security_opt": list(spec.security),
        "ulimits": {name: value for name, value in (("memlock", spec.memlock), ("stack", spec.stack)) if value},
        "network_mode": "host" if spec.host_network else "none",
        "ipc": "host" if spec.host_ipc else "private",
        "oom_score_adj": spec.oom_score,
        "stop_grace_period": f"{spec.stop_grace:.0f}s",
        "restart": "no",
        "pull_policy": "never",
        "logging": {
            "driver": "json-file",
            "options": {"max-size": str(spec.log_bytes), "max-file": f"{spec.keep_logs}"},
        },
    }
    if spec.gpus:
        gpus = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
        found["deploy"] = {"resources": {"reservations": {"devices": [gpus]}}}
    return {name: value for name, value in found.items() if value not in ([], {}) or name == "entrypoint"}


def _alone(asked: str) -> Mapping[str, Any]:
    """`curl` is the image's. The time to load counts as no failure."""
    test = ["CMD", "curl", "-fsS", "--max-time", "5", asked]
    health = {"test": test, "interval": "30s", "timeout": "5s", "start_period": "20m", "retries": 3}
    return {"restart": "on-failure:1", "healthcheck": health}


def _plain(text: str) -> str:
    """Compose puts variables in for `$NAME`; `$$` is a dollar."""
    return text.replace("$", "$$")


def _volume(mount: Mount) -> Mapping[str, Any]:
    """A folder that is not there is an error, and not a new folder of root's."""
    if not mount.source.startswith("/"):
        return {"type": "volume", "source": mount.source, "target": mount.target, "read_only": mount.read_only}
    bind = {"create_host_path": False}
    return {
        "type": "bind",
        "source": mount.source,
        "target": mount.target,
        "read_only": mount.read_only,
        "bind": bind,
    }


def bind_sources(launch: LaunchSpec) -> dict[str, tuple[str, ...]]:
    """What has to be there, by node."""
    found = {}
    for rank in launch.ranks:
        if rank.box is not None:
            mounts = container_spec(launch.which, rank, rank.box).mounts
            found[rank.node] = tuple(one.source for one in mounts if one.source.startswith("/"))
    return found
