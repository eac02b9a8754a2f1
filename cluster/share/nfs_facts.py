"""What the NFS share knows of head and workers, and names that follow from it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from cluster.errors import Unreadable
from cluster.model.containers import Mount
from cluster.model.kit import MountBy, Transport
from cluster.model.steps import NodeName
from cluster.probe.nfs import Export, MountSeen, VolumeSeen, made_by, parse_exports, parse_volume
from cluster.share.base import Folder, Reading, Want

PORT, RDMA_PORT = 2049, 20049
FORGET = 'rm -f "$0" "$HOME/${0#\\~/}"'


@dataclass(frozen=True, slots=True)
class FileSeen:
    device: int
    inode: int
    size: int
    changed: int
    mode: int


@dataclass(frozen=True, slots=True)
class SharedSeen:
    """A folder on the head. `root` is what is exported; `trees` are those published there: name -> inode."""

    source: str
    root: str
    present: bool
    kind: str
    device: int
    files: Mapping[str, FileSeen]
    trees: Mapping[str, Mapping[str, int]]

    def tree(self, prefix: str) -> str:
        """The name of the tree that these files make. Other files make another name: what clients know stays true."""
        lines = (f"{name} {one.size} {one.inode} {one.changed}\n" for name, one in sorted(self.files.items()))
        return f"{prefix}.{sha256(''.join(lines).encode()).hexdigest()[:10]}"

    def is_published(self, prefix: str) -> bool:
        return self.trees.get(self.tree(prefix)) == {name: one.inode for name, one in self.files.items()}


@dataclass(frozen=True, slots=True)
class BoxSeen:
    """A container that exports. `ours` is the deployment that made it; empty when it is somebody else's."""

    ours: str
    image: str
    runs: bool
    binds: Mapping[str, str]
    environment: tuple[str, ...]
    exports: tuple[Export, ...]


@dataclass(frozen=True, slots=True)
class ServerSeen:
    user: int
    sudo: bool
    tools: tuple[str, ...]
    threads: int | None
    ports: tuple[str, ...]
    exports: tuple[Export, ...]
    dropin: str | None
    record: Mapping[str, object]
    rdma: tuple[str, ...]
    box: BoxSeen | None
    folders: Mapping[str, SharedSeen]

    @property
    def serves(self) -> bool:
        return bool(self.threads)


@dataclass(frozen=True, slots=True)
class TargetSeen:
    """A worker's folder. `problem` is an errno; `absent` are folders that are not there, the outermost first."""

    path: str
    problem: int
    entries: int
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClientSeen:
    user: int
    sudo: bool
    tools: tuple[str, ...]
    rdma: tuple[str, ...]
    record: Mapping[str, object]
    reach: str
    source: str
    mounts: tuple[MountSeen, ...]
    targets: Mapping[str, TargetSeen]
    volumes: Mapping[str, VolumeSeen | None]
    users: Mapping[str, tuple[str, ...]]

    def mounted(self, name: str) -> MountSeen | None:
        """The uppermost mount on a folder's target."""
        there = [one for one in self.mounts if one.target == self.targets[name].path]
        return there[-1] if there else None


NfsSeen = ServerSeen | ClientSeen


def parse_server(node: NodeName, text: str) -> ServerSeen:
    try:
        said: dict[str, Any] = json.loads(text)
        return ServerSeen(
            said["user"],
            said["sudo"],
            tuple(said["tools"]),
            said["threads"],
            tuple(said["ports"]),
            parse_exports(said["exports"]),
            said["dropin"],
            made_by(said["record"]),
            tuple(said["rdma"]),
            _box(said["box"]) if said["box"] else None,
            {name: _shared(one) for name, one in said["folders"].items()},
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"cannot read what it says of its exports: {error}", where=node) from error


def _shared(said: dict[str, Any]) -> SharedSeen:
    files = {name: FileSeen(*one) for name, one in said.pop("files").items()}
    return SharedSeen(files=files, **said)


def _box(said: dict[str, Any]) -> BoxSeen:
    exports = parse_exports(said.pop("exports"))
    return BoxSeen(environment=tuple(said.pop("environment")), exports=exports, **said)


def parse_client(node: NodeName, text: str) -> ClientSeen:
    try:
        said: dict[str, Any] = json.loads(text)
        return ClientSeen(
            said["user"],
            said["sudo"],
            tuple(said["tools"]),
            tuple(said["rdma"]),
            made_by(said["record"]),
            said["reach"],
            said["source"],
            tuple(
                MountSeen(one["target"], one["device"], tuple(one["options"].split(",")), one["read_ahead"])
                for one in said["mounts"]
            ),
            {
                name: TargetSeen(one["path"], one["problem"], one["entries"], tuple(one["absent"]))
                for name, one in said["targets"].items()
            },
            {name: parse_volume(one) if one else None for name, one in said["volumes"].items()},
            {name: tuple(one) for name, one in said["users"].items()},
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"cannot read what it says of its NFS mounts: {error}", where=node) from error


def server_of(want: Want, seen: Mapping[NodeName, NfsSeen]) -> ServerSeen:
    found = seen[want.head.name]
    assert isinstance(found, ServerSeen)
    return found


def client_of(seen: Mapping[NodeName, NfsSeen], node: NodeName) -> ClientSeen:
    found = seen[node]
    assert isinstance(found, ClientSeen)
    return found


def address(want: Want) -> str:
    return want.weights.nfs_server or want.head.address


def prefix(want: Want, folder: Folder) -> str:
    chosen = {"model": want.weights.nfs_export_model, "engram": want.weights.nfs_export_engram}
    return chosen.get(folder.name) or want.name(folder)


def volume_name(want: Want, folder: Folder) -> str:
    chosen = {"model": want.weights.nfs_volume_model, "engram": want.weights.nfs_volume_engram}
    return chosen.get(folder.name) or want.name(folder)


def by_volume(want: Want) -> bool:
    """An engine mounts a volume while a container uses it, which needs no root; a native rank has only the host."""
    if not want.in_containers or want.weights.nfs_mount_by is MountBy.HOST:
        return False
    return want.weights.nfs_mount_by is MountBy.VOLUME or bool(want.weights.nfs_volume_model)


def volume_reading(want: Want, folder: Folder) -> Reading:
    return Reading(folder.inside, (Mount(volume_name(want, folder), folder.inside),))


def transport(want: Want, seen: Mapping[NodeName, NfsSeen]) -> Transport:
    """RDMA where all ends have a device for it, and the server is the head's own: a container's has no listener."""
    if want.weights.nfs_transport is not Transport.AUTO:
        return want.weights.nfs_transport
    can = all(one.rdma for one in seen.values()) and not uses_box(want, server_of(want, seen))
    return Transport.RDMA if can else Transport.TCP


def uses_box(want: Want, server: ServerSeen) -> bool:
    """Whether a container exports: one that is named, or ours where the head has no server."""
    return "exportfs" not in server.tools or (server.box is not None and bool(want.weights.nfs_container))


def record(state_dir: str, want: Want) -> str:
    """Where a node keeps what an attach changed there, for the detach."""
    return f"{state_dir}/share/{want.deployment}-nfs.json"
