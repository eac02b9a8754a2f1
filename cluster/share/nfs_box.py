"""An exporter in a container: our own, where the head has no NFS server, or one that runs already and is added to."""

from collections.abc import Iterable
from pathlib import PurePosixPath

from cluster.errors import Refused
from cluster.model.steps import Command, Run
from cluster.model.units import Seconds
from cluster.probe.nfs import Export
from cluster.share.base import Want
from cluster.share.nfs_facts import BoxSeen, ServerSeen, uses_box

ENGINE = "/var/run/docker.sock"
GRACE = 30  # seconds to take its exports and the kernel's server back
EXPORT = "/export"  # where the image has what it exports, as the root of everything


def box_name(want: Want) -> str:
    return want.weights.nfs_container or f"{want.label}-exporter"


def exported_by(want: Want, server: ServerSeen) -> tuple[Export, ...]:
    """What is exported, or will be: our own container exports one folder, as the root."""
    if not uses_box(want, server):
        return server.exports
    if server.box is not None and server.box.ours != want.deployment:
        return server.box.exports
    return (Export(EXPORT, "", ("fsid=0",)),)


def in_box(want: Want, server: ServerSeen, path: str) -> str:
    """A path of the head as the exporter sees it."""
    if not uses_box(want, server):
        return path
    if server.box is None or server.box.ours == want.deployment:
        return f"{EXPORT}/{PurePosixPath(path).name}"
    for source, there in server.box.binds.items():
        if PurePosixPath(path).is_relative_to(source):
            return str(PurePosixPath(there) / PurePosixPath(path).relative_to(source))
    raise Refused(
        f"container {box_name(want)} exports, and does not see {path}",
        where=want.head.name,
        evidence=[f"it sees {source}" for source in server.box.binds],
        fix=f"set NFS_EXPORT_ROOT below {next(iter(server.box.binds), 'what it sees')}, or leave NFS_CONTAINER empty",
    )


def box_steps(want: Want, server: ServerSeen, clients: tuple[str, ...], options: str) -> Iterable[Run]:
    """Ours is made anew when it is not as wanted; in somebody else's only exports are added."""
    box = server.box
    if box is not None and box.ours != want.deployment:
        yield from _added(want, server, box, clients, options)
        return
    (root, *more) = dict.fromkeys(server.folders[one.name].root for one in want.folders)
    if more:
        raise Refused(
            "a container exports one folder, and the weights would be published in several",
            where=want.head.name,
            evidence=(root, *more),
            fix="set NFS_EXPORT_ROOT to one folder on the file system of both",
        )
    wanted = (f"NFS_CLIENTS={','.join(clients)}", f"NFS_OPTS={options},fsid=0")
    if box is not None and box.runs and set(wanted) <= set(box.environment) and box.binds.get(root) == EXPORT:
        return
    if box is not None:
        yield from without_box(want)
    elif server.serves:
        raise Refused(
            "an NFS server runs on the head that is not sparkctl's, and a kernel has one",
            where=want.head.name,
            fix="set NFS_CONTAINER to its container, and sparkctl adds to it; or install nfs-kernel-server",
        )
    run = ("run", "--detach", "--name", box_name(want), "--restart", "unless-stopped", "--privileged")
    seen = ("--network", "host", "--label", f"sparkctl.exporter={want.deployment}", "--volume", f"{root}:{EXPORT}:ro")
    told = tuple(word for one in wanted for word in ("--env", one))
    argv = (*_docker(want), *run, *seen, *told, want.weights.nfs_image)
    yield Run(want.head.name, "run the exporter's container", Command(argv))


def without_box(want: Want) -> tuple[Run, Run]:
    """A container that is killed leaves the kernel's server running, and nobody to say what it exports."""
    name, docker = box_name(want), _docker(want)
    stop = Command((*docker, "stop", "--time", str(GRACE), name), limit=Seconds(2.0 * GRACE))
    return (
        Run(want.head.name, "stop the exporter's container", stop),
        Run(want.head.name, "remove the exporter's container", Command((*docker, "rm", "--force", name))),
    )


def _docker(want: Want) -> tuple[str, ...]:
    return ("docker", "-H", f"unix://{want.engine or ENGINE}")


def _added(want: Want, server: ServerSeen, box: BoxSeen, clients: tuple[str, ...], options: str) -> Iterable[Run]:
    for root, inside, client in _ours(want, server, clients):
        if not any(one.path == inside and one.client == client for one in box.exports):
            argv = (*_docker(want), "exec", box_name(want), "exportfs", "-o", options, f"{client}:{inside}")
            yield Run(want.head.name, f"export {root} to {client}, read-only", Command(argv))


def removed(want: Want, server: ServerSeen, clients: tuple[str, ...]) -> Iterable[Run]:
    """Exports that were added to somebody else's container."""
    exports = server.box.exports if server.box else ()
    for root, inside, client in _ours(want, server, clients):
        if any(one.path == inside and one.client == client for one in exports):
            argv = (*_docker(want), "exec", box_name(want), "exportfs", "-u", f"{client}:{inside}")
            yield Run(want.head.name, f"no longer export {root} to {client}", Command(argv))


def _ours(want: Want, server: ServerSeen, clients: tuple[str, ...]) -> Iterable[tuple[str, str, str]]:
    for root in dict.fromkeys(server.folders[one.name].root for one in want.folders):
        for client in clients:
            yield root, in_box(want, server, root), client
