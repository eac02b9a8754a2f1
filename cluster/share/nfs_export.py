"""The head's side of the NFS share: publish trees of hard links, and export them to exactly those who read them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from cluster.errors import Refused, SettingsError
from cluster.model.kit import Transport
from cluster.model.steps import Command, NodeName, Run, Step, Write
from cluster.model.units import Seconds
from cluster.probe.nfs import EVERYBODY, Export, device_path, escaped, rule_for
from cluster.share.base import Folder, Source, Want, as_root
from cluster.share.nfs_box import box_steps, exported_by, in_box, removed, without_box
from cluster.share.nfs_facts import (
    FORGET,
    RDMA_PORT,
    NfsSeen,
    ServerSeen,
    SharedSeen,
    address,
    client_of,
    prefix,
    record,
    server_of,
    transport,
    uses_box,
)

THREADS = 16
# Overlays and network file systems cannot be exported, or not so that it outlives a restart.
NO_EXPORT = ("overlay", "overlayfs", "tmpfs", "ramfs", "nfs", "nfs4", "fuse.sshfs", "9p", "cifs", "smb3")
LONG = Seconds(600.0)
WRITE = 'mkdir -p "$(dirname "$0")" && cat > "$0.new" && mv "$0.new" "$0"'


def dropin(want: Want) -> str:
    return f"/etc/exports.d/{want.label}.exports"


def clients(want: Want) -> tuple[str, ...]:
    """Exact addresses of the fabric unless the settings name others; never everybody."""
    named = tuple(one.strip() for one in want.weights.nfs_clients.split(",") if one.strip())
    if any(one in EVERYBODY for one in named):
        raise SettingsError("NFS_CLIENTS is everybody", fix="name the workers' fabric addresses, or leave it empty")
    return named or tuple(node.address for node in want.workers)


def options(want: Want, seen: Mapping[NodeName, NfsSeen]) -> str:
    """`insecure` only for RDMA, whose clients use no reserved port."""
    if want.weights.nfs_options:
        words = want.weights.nfs_options.split(",")
        if "rw" in words:
            raise SettingsError("NFS_OPTS has rw, and weights are only read", fix="write ro")
        return want.weights.nfs_options
    base = "ro,sync,no_subtree_check,root_squash"
    return f"{base},insecure" if transport(want, seen) is Transport.RDMA else base


def device(want: Want, folder: Folder, seen: Mapping[NodeName, NfsSeen]) -> str:
    """What a worker mounts, without the server's address."""
    server = server_of(want, seen)
    shared = server.folders[folder.name]
    path = f"{shared.root}/{shared.tree(prefix(want, folder))}"
    there = device_path(exported_by(want, server), in_box(want, server, path))
    if there is None:
        (root,) = {one.path for one in exported_by(want, server) if "fsid=0" in one.options}
        raise Refused(
            f"this head exports {root} as the root of everything, and nothing outside of it can be mounted",
            where=f"{want.head.name}:{shared.root}",
            fix=f"set NFS_EXPORT_ROOT to a folder below {root}",
        )
    return there


def check_head(want: Want, seen: Mapping[NodeName, NfsSeen]) -> None:
    """Everything that would make the export fail, or serve something else than the weights."""
    server = server_of(want, seen)
    if "exportfs" not in server.tools and not want.weights.nfs_image and server.box is None:
        raise Refused(
            "the head has no NFS server",
            where=want.head.name,
            fix="sudo apt-get install nfs-kernel-server, or set NFS_IMAGE to the exporter's image (images/nfs)",
        )
    for folder in want.folders:
        _check_folder(want, folder, server.folders[folder.name])


def _check_folder(want: Want, folder: Folder, shared: SharedSeen) -> None:
    where = f"{want.head.name}:{shared.source}"
    if not shared.files:
        raise Refused(f"the head does not have {folder.what}", where=where, fix="sparkctl fetch, or set MODEL_HOST")
    leading_nowhere = [name for name, one in shared.files.items() if one.inode == -1]
    if leading_nowhere:
        raise Refused("links lead nowhere", where=where, evidence=leading_nowhere[:8], fix="sparkctl fetch")
    if shared.kind in NO_EXPORT:
        raise Refused(
            f"{shared.root} lies on {shared.kind}, which cannot be exported",
            where=where,
            fix="put the weights on a disk (ext4, xfs, zfs), or share in another way: WEIGHT_SYNC=rsync",
        )
    if shared.is_published(prefix(want, folder)):
        return
    far = [name for name, one in shared.files.items() if one.device != shared.device]
    if far:
        raise Refused(
            "the files lie on another file system than the folder that is exported, and hard links do not reach across",
            where=where,
            evidence=[f"{len(far)} of {len(shared.files)} files, e.g. {far[0]}", f"exported is {shared.root}"],
            fix="leave NFS_EXPORT_ROOT empty, or set it to a folder on that file system; nothing was copied",
        )
    squashes = not {"no_root_squash", "all_squash"} & set(want.weights.nfs_options.split(","))
    closed = [name for name, one in shared.files.items() if not one.mode & 0o004]
    if closed and squashes:
        raise Refused(
            f"{len(closed)} files cannot be read by others, and root on a worker counts as nobody here",
            where=where,
            evidence=closed[:8],
            fix=f"chmod o+r {shared.source}/*",
        )


def export_steps(want: Want, seen: Mapping[NodeName, NfsSeen], source: Source) -> tuple[Step, ...]:
    server, steps = server_of(want, seen), list[Step]()
    for folder in want.folders:
        shared = server.folders[folder.name]
        if not shared.is_published(prefix(want, folder)):
            steps.append(_publish(want, folder, shared, server, source))
    if uses_box(want, server):
        return (*steps, *box_steps(want, server, clients(want), options(want, seen)))
    return (*steps, *_served(want, seen, server), *_exported(want, seen, server))


def _publish(want: Want, folder: Folder, shared: SharedSeen, server: ServerSeen, source: Source) -> Run:
    tree = shared.tree(prefix(want, folder))
    asked = json.dumps({"source": shared.source, "root": shared.root, "tree": tree}, separators=(",", ":"))
    argv = as_root(("python3", "-IS", "-", asked), server.user)
    command = Command(argv, stdin=source("links", "publish"), limit=LONG)
    return Run(want.head.name, f"publish {folder.what} as hard links", command)


def _served(want: Want, seen: Mapping[NodeName, NfsSeen], server: ServerSeen) -> Iterable[Step]:
    """The kernel's NFS server, with threads enough; what it was before is noted first."""
    head = want.head.name

    def sudo(why: str, *argv: str) -> Run:
        return Run(head, why, Command(as_root(argv, server.user)))

    few = (server.threads or 0) < THREADS
    if few and "threads" not in server.record:
        noted = {"threads": server.threads or 0}
        path = PurePosixPath(record(want.head.state_dir, want))
        yield Write(head, "note what there was before", path, json.dumps(noted).encode())
    if not server.serves:
        yield sudo("start the kernel's NFS server", "systemctl", "start", "nfs-server")
    if few:
        write = f"echo {THREADS} > /proc/fs/nfsd/threads"
        yield sudo(f"give the NFS server {THREADS} threads", "sh", "-c", write)
    if transport(want, seen) is Transport.RDMA and not any(str(RDMA_PORT) in one for one in server.ports):
        listen = f"modprobe -q rpcrdma; modprobe -q svcrdma; echo 'rdma {RDMA_PORT}' > /proc/fs/nfsd/portlist"
        yield sudo("listen for NFS over RDMA", "sh", "-c", listen)


def _exported(want: Want, seen: Mapping[NodeName, NfsSeen], server: ServerSeen) -> Iterable[Step]:
    """One export added for each client and root, and a file of our own, so that it comes back with the server.

    Nothing is exported anew as a whole: exports that somebody made by hand stay.
    """
    words, head = options(want, seen), want.head.name
    lines = [f"{escaped(root)} " + " ".join(f"{one}({words})" for one in clients(want)) for root in roots(want, server)]
    text = "".join(f"{one}\n" for one in lines)
    if server.dropin != text:
        argv = as_root(("sh", "-c", WRITE, dropin(want)), server.user)
        yield Run(head, f"write {dropin(want)}", Command(argv, stdin=text.encode()))
    for root in roots(want, server):
        for client in clients(want):
            if not server.serves or not _is_exported(server.exports, root, client, words):
                argv = as_root(("exportfs", "-o", words, f"{client}:{root}"), server.user)
                yield Run(head, f"export {root} to {client}, read-only", Command(argv))


def _is_exported(exports: Iterable[Export], root: str, client: str, words: str) -> bool:
    return any(
        one.path == root and one.client == client and set(words.split(",")) <= set(one.options) for one in exports
    )


def roots(want: Want, server: ServerSeen) -> tuple[str, ...]:
    return tuple(dict.fromkeys(server.folders[one.name].root for one in want.folders))


def check_admitted(want: Want, seen: Mapping[NodeName, NfsSeen], node: NodeName) -> None:
    """The address that a worker is seen with must be one that the export is for: a LAN's rule does not do."""
    client = client_of(seen, node)
    ours = tuple(Export("/", one, ()) for one in clients(want))
    if client.source and rule_for(ours, "/", client.source) is None:
        raise Refused(
            f"the worker comes from {client.source}, and the export is for {', '.join(clients(want))}",
            where=f"{node} -> {address(want)}",
            fix=f"set NFS_CLIENTS={client.source}, or {want.head.name}'s address to the one on the fabric",
        )


def tidy_steps(want: Want, seen: Mapping[NodeName, NfsSeen], source: Source) -> tuple[Step, ...]:
    """Trees of files that are no longer the folder's; nobody mounts them any more."""
    return tuple(_take_away(want, seen, source, keep=True))


def _take_away(want: Want, seen: Mapping[NodeName, NfsSeen], source: Source, *, keep: bool) -> Iterable[Step]:
    server = server_of(want, seen)
    for folder in want.folders:
        shared = server.folders[folder.name]
        kept = shared.tree(prefix(want, folder)) if keep else ""
        gone = [one for one in shared.trees if one != kept]
        if gone:
            asked = {
                "source": shared.source,
                "root": shared.root,
                "gone": gone,
                "folders": [] if keep else _made(shared.root),
            }
            argv = as_root(("python3", "-IS", "-", json.dumps(asked, separators=(",", ":"))), server.user)
            command = Command(argv, stdin=source("links", "publish"), limit=LONG)
            yield Run(want.head.name, f"take away the hard links to {'older files of ' if keep else ''}{folder.what}",
                      command)  # fmt: skip


def _made(root: str) -> list[str]:
    """Folders that were made for trees, if nobody else has anything in them."""
    above = str(PurePosixPath(root).parent)
    return [root, above] if above.endswith("/.sparkctl") else [root]


def unexport_steps(want: Want, seen: Mapping[NodeName, NfsSeen], source: Source) -> tuple[Step, ...]:
    """Back to how it was: our exports, our file, our trees, and the server as it ran before."""
    server, steps = server_of(want, seen), list[Step]()
    head = want.head.name

    def sudo(why: str, *argv: str) -> None:
        steps.append(Run(head, why, Command(as_root(argv, server.user))))

    ours = [one for one in server.exports if server.serves and one.path in roots(want, server)]
    for one in ours if server.dropin is not None else ():
        sudo(f"no longer export {one.path} to {one.client}", "exportfs", "-u", f"{one.client}:{one.path}")
    if server.dropin is not None:
        sudo(f"remove {dropin(want)}", "rm", "-f", dropin(want))
    if server.box is not None and server.box.ours == want.deployment:
        steps += without_box(want)
    elif server.box is not None:
        steps += removed(want, server, clients(want))
    steps += _take_away(want, seen, source, keep=False)
    if "threads" in server.record:
        before = server.record["threads"]
        if not before and not _others(want, server):
            sudo("stop the NFS server, which did not run before", "systemctl", "stop", "nfs-server")
        elif before:
            sudo(f"give it {before} threads again", "sh", "-c", f"echo {before} > /proc/fs/nfsd/threads")
        forget = ("sh", "-c", FORGET, record(want.head.state_dir, want))
        steps.append(Run(head, "forget what there was before", Command(forget)))
    return tuple(steps)


def _others(want: Want, server: ServerSeen) -> bool:
    return any(one.path not in roots(want, server) for one in server.exports)
