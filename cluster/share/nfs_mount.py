"""The workers' side of the NFS share: a mount on the node, or a volume of its engine."""

import errno
import json
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from cluster.errors import Refused
from cluster.model.kit import Transport
from cluster.model.nodes import NodeSettings
from cluster.model.steps import Command, NodeName, Run, Step, Write
from cluster.model.units import Seconds
from cluster.probe.nfs import MountSeen, volume_diff
from cluster.share.base import REMOVE_EMPTY, Folder, Want, as_root
from cluster.share.nfs_export import check_admitted, device
from cluster.share.nfs_facts import (
    FORGET,
    PORT,
    RDMA_PORT,
    ClientSeen,
    NfsSeen,
    address,
    by_volume,
    client_of,
    record,
    server_of,
    transport,
    volume_name,
)

READ_AHEAD = 16384  # KiB; the kernel's own 128 makes a load of mapped weights crawl
MOUNT_LIMIT = Seconds(60.0)
# The mount is out of sight at once, but umount goes on waiting for the server to take back what it had delegated; a
# helper of umount would wait in its place. What counts is whether anything is mounted there afterwards.
UNMOUNT_DEAD = (
    'timeout -s KILL 10 umount -i -c -f -l "$0"; timeout -s KILL 5 mountpoint -q "$0"; case $? in 0|137) exit 1; esac'
)
GONE = "the NFS server does not answer"


def mount_options(want: Want, seen: Mapping[NodeName, NfsSeen]) -> tuple[str, ...]:
    """`nocto` and `actimeo` are safe because a published tree never changes. `hard`: an error would be a SIGBUS in
    whoever maps the weights, where waiting outlives a server's restart; `softreval` answers what is known meanwhile."""
    if want.weights.nfs_client_options:
        words = tuple(want.weights.nfs_client_options.split(","))
        return words if "ro" in words else ("ro", *words)
    by = transport(want, seen)
    carrier = ("proto=rdma", f"port={RDMA_PORT}") if by is Transport.RDMA else ("proto=tcp", "nconnect=8")
    return ("ro", "vers=4.2", *carrier, "hard", "noatime", "nocto", "actimeo=3600", "rsize=1048576", "softreval")


def check_worker(want: Want, seen: Mapping[NodeName, NfsSeen], node: NodeSettings) -> None:
    """Everything that would make a mount fail, hang, or be another than was asked for."""
    client, name = client_of(seen, node.name), node.name
    _check_reach(want, seen, name, client)
    check_admitted(want, seen, name)
    if by_volume(want):
        return
    if "mount.nfs" not in client.tools:
        raise Refused("the worker cannot mount NFS", where=name, fix="sudo apt-get install nfs-common")
    for folder in want.folders:
        target, mounted = client.targets[folder.name], client.mounted(folder.name)
        if mounted is None and target.entries:
            raise Refused(
                f"{folder.what}'s folder on the worker has {target.entries} files of its own, which a mount would hide",
                where=f"{name}:{target.path}",
                fix="move them away, or use them: WEIGHT_SYNC=inplace",
            )
        if mounted is not None and mounted.server != address(want):
            raise Refused(
                f"something else is mounted there: {mounted.device}",
                where=f"{name}:{target.path}",
                fix=f"on {name}: sudo umount {target.path}",
            )


def _check_reach(want: Want, seen: Mapping[NodeName, NfsSeen], name: NodeName, client: ClientSeen) -> None:
    where, server = f"{name} -> {address(want)}:{PORT}", server_of(want, seen)
    if client.reach in ("filtered", "rejected"):
        source = client.source or "the fabric"
        fix = f"on {want.head.name}: sudo ufw allow from {source} to any port {PORT} proto tcp"
        what = "no answer" if client.reach == "filtered" else "rejected"
        raise Refused(
            f"the worker does not reach the head's NFS port: {what}", where=where, fix=f"{fix}; or check the cable"
        )
    if client.reach == "no_listener" and server.serves and "exportfs" in server.tools:
        raise Refused(
            "the head's NFS server does not listen on that address",
            where=where,
            evidence=[f"its kernel has {server.threads} NFS threads"],
            fix="set NFS_SERVER_IP to an address that it listens on; /etc/nfs.conf says host= if it is not all",
        )


def check_transport(want: Want, seen: Mapping[NodeName, NfsSeen], node: NodeSettings) -> None:
    """One kernel has one NFSv4 client for a server: another mount of it silently decides the transport of ours."""
    client, wanted = client_of(seen, node.name), transport(want, seen)
    ours = {one.path for one in client.targets.values()}
    for one in client.mounts:
        if one.server == address(want) and one.target not in ours and one.option("proto") != wanted:
            raise Refused(
                f"another mount of that server goes over {one.option('proto')}, and ours would silently do so too",
                where=f"{node.name}:{one.target}",
                fix=f"unmount it, or set NFS_TRANSPORT={one.option('proto')}",
            )


def mount_steps(want: Want, seen: Mapping[NodeName, NfsSeen], node: NodeSettings) -> tuple[Step, ...]:
    if by_volume(want):
        return tuple(_volume_steps(want, seen, node))
    client, steps = client_of(seen, node.name), list[Step]()
    for folder in want.folders:
        steps += _mount_one(want, seen, node, client, folder)
    absent = list(dict.fromkeys(one for each in client.targets.values() for one in each.absent))
    if absent and not client.record:
        path = PurePosixPath(record(node.state_dir, want))
        steps.insert(0, Write(node.name, "note what is made there", path, json.dumps({"made": absent}).encode()))
    return tuple(steps)


def _mount_one(
    want: Want, seen: Mapping[NodeName, NfsSeen], node: NodeSettings, client: ClientSeen, folder: Folder
) -> Iterable[Step]:
    target, mounted = client.targets[folder.name], client.mounted(folder.name)
    wanted = f"{address(want)}:{device(want, folder, seen)}"
    if target.problem == errno.ETIMEDOUT:
        raise Refused(
            GONE,
            where=f"{node.name}:{target.path}",
            fix=f"bring {want.head.name} back, then share again; or sparkctl share --detach",
        )

    def sudo(why: str, *argv: str, limit: Seconds = MOUNT_LIMIT) -> Run:
        return Run(node.name, why, Command(as_root(argv, client.user), limit=limit))

    if mounted is not None and (target.problem == errno.ESTALE or not _is_so(want, seen, mounted, wanted)):
        why = "stale" if target.problem == errno.ESTALE else mounted.device
        flag = ("-l",) if target.problem == errno.ESTALE else ()
        yield sudo(f"unmount {target.path} ({why})", "umount", *flag, target.path)
        mounted = None
    if mounted is None:
        if target.absent:
            yield sudo(f"make {target.path}", "mkdir", "-p", target.path)
        words = ",".join(mount_options(want, seen))
        yield sudo(
            f"mount {folder.what} read-only over {transport(want, seen)}",
            "mount",
            "-t",
            "nfs4",
            "-o",
            words,
            wanted,
            target.path,
        )
    if mounted is None or (mounted.read_ahead or 0) < READ_AHEAD:
        write = f'echo {READ_AHEAD} > "/sys/class/bdi/$(mountpoint -d "$0")/read_ahead_kb"'
        yield sudo(f"read {READ_AHEAD // 1024} MiB ahead", "sh", "-c", write, target.path)


def _is_so(want: Want, seen: Mapping[NodeName, NfsSeen], mounted: MountSeen, wanted: str) -> bool:
    right = mounted.option("vers") == "4.2" and mounted.option("proto") == transport(want, seen)
    return mounted.device == wanted and "ro" in mounted.options and right


def _volume_steps(want: Want, seen: Mapping[NodeName, NfsSeen], node: NodeSettings) -> Iterable[Step]:
    client = client_of(seen, node.name)
    docker = ("docker", "-H", f"unix://{want.engine}", "volume")
    words = (f"addr={address(want)}", *mount_options(want, seen))
    for folder in want.folders:
        name, there = volume_name(want, folder), client.volumes[folder.name]
        wanted = f":{device(want, folder, seen)}"
        differs = volume_diff(there, wanted, words) if there else {}
        if there is not None and not differs:
            continue
        if there is not None:
            told = [
                f"{what}: has {has or 'nothing'}, wanted {wants or 'nothing'}" for what, (has, wants) in differs.items()
            ]
            if client.users[folder.name]:
                raise Refused(
                    f"volume {name} is of another export, and {', '.join(client.users[folder.name])} uses it",
                    where=node.name,
                    evidence=told,
                    fix=f"sparkctl stop, or docker rm {client.users[folder.name][0]} on {node.name}",
                )
            yield Run(node.name, f"remove volume {name} ({'; '.join(told)})", Command((*docker, "rm", name)))
        made = ("create", "--driver", "local", "--label", f"sparkctl.deployment={want.deployment}")
        given = ("--opt", "type=nfs", "--opt", f"device={wanted}", "--opt", f"o={','.join(words)}")
        yield Run(node.name, f"make volume {name} for {folder.what}", Command((*docker, *made, *given, name)))


def unmount_steps(want: Want, seen: Mapping[NodeName, NfsSeen], node: NodeSettings) -> tuple[Step, ...]:
    """A server that is gone must not hold up the detach: then the mount is only taken out of sight."""
    client, steps = client_of(seen, node.name), list[Step]()

    def sudo(why: str, *argv: str) -> None:
        steps.append(Run(node.name, why, Command(as_root(argv, client.user), limit=MOUNT_LIMIT)))

    words = ("umount",) if client.reach == "open" else ("sh", "-c", UNMOUNT_DEAD)
    for folder in want.folders:
        target, mounted = client.targets[folder.name], client.mounted(folder.name)
        if mounted is not None and mounted.server == address(want):
            sudo(f"unmount {target.path}", *words, target.path)
        there = client.volumes.get(folder.name)
        if there is not None and there.labels.get("sparkctl.deployment") == want.deployment:
            argv = ("docker", "-H", f"unix://{want.engine}", "volume", "rm", volume_name(want, folder))
            steps.append(Run(node.name, f"remove volume {volume_name(want, folder)}", Command(argv)))
    made = client.record.get("made")
    if isinstance(made, list):
        for path in reversed(made):
            sudo(f"remove {path}, which was made for it", *REMOVE_EMPTY, str(path))
        forget = ("sh", "-c", FORGET, record(node.state_dir, want))
        steps.append(Run(node.name, "forget what was made", Command(forget)))
    return tuple(steps)
