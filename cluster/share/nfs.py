"""The head exports the weights over NFS, read-only, and the workers mount them: one copy of 200 GiB instead of two."""

import json
from collections.abc import Mapping

from cluster.errors import Refused
from cluster.model.steps import Command, NodeName, Plan, Run, Step
from cluster.model.units import Seconds, format_bytes
from cluster.share.base import Folder, Reading, ReadThrough, Source, Want, on_host, plan_of
from cluster.share.nfs_box import ENGINE, box_name
from cluster.share.nfs_export import check_head, clients, dropin, export_steps, tidy_steps, unexport_steps
from cluster.share.nfs_facts import (
    PORT,
    NfsSeen,
    address,
    by_volume,
    client_of,
    parse_client,
    parse_server,
    prefix,
    record,
    transport,
    volume_name,
    volume_reading,
)
from cluster.share.nfs_mount import check_transport, check_worker, mount_steps, unmount_steps

PATIENCE = Seconds(60.0)
ENOUGH = 1 << 20


class NfsShare:
    def __init__(self, source: Source) -> None:
        self._source = source

    def look(self, want: Want) -> Mapping[NodeName, Command]:
        asked = {node.name: self._ask_worker(want, node.name, node.state_dir) for node in want.workers}
        return {want.head.name: self._ask_head(want), **asked}

    def _ask_head(self, want: Want) -> Command:
        box = box_name(want) if want.weights.nfs_image or want.weights.nfs_container else ""
        asked = {
            "folders": {
                one.name: {"source": one.source, "root": want.weights.nfs_export_root, "prefix": prefix(want, one)}
                for one in want.folders
            },
            "dropin": dropin(want),
            "record": record(want.head.state_dir, want),
            "box": box,
            "engine": want.engine or ENGINE,
        }
        return self._program(asked, "touch", "links", "nfs_common", "nfs_server")

    def _ask_worker(self, want: Want, node: NodeName, state_dir: str) -> Command:
        volumes = {one.name: volume_name(want, one) for one in want.folders} if want.in_containers else {}
        asked = {
            "targets": {one.name: one.targets[node] for one in want.folders},
            "volumes": volumes,
            "server": address(want),
            "port": PORT,
            "record": record(state_dir, want),
            "engine": want.engine or ENGINE,
        }
        return self._program(asked, "touch", "nfs_common", "nfs_client")

    def _program(self, asked: Mapping[str, object], *parts: str) -> Command:
        argv = ("python3", "-IS", "-", json.dumps(asked, separators=(",", ":")))
        return Command(argv, stdin=self._source(*parts), limit=PATIENCE)

    def read(self, want: Want, node: NodeName, text: str) -> NfsSeen:
        return parse_server(node, text) if node == want.head.name else parse_client(node, text)

    def attach(self, want: Want, seen: Mapping[NodeName, NfsSeen]) -> Plan:
        check_head(want, seen)
        for node in want.workers:
            check_worker(want, seen, node)
            check_transport(want, seen, node)
        return need_root(
            seen,
            ("export", export_steps(want, seen, self._source)),
            ("mount", tuple(step for node in want.workers for step in mount_steps(want, seen, node))),
            ("tidy up", tidy_steps(want, seen, self._source)),
        )

    def detach(self, want: Want, seen: Mapping[NodeName, NfsSeen]) -> Plan:
        return need_root(
            seen,
            ("unmount", tuple(step for node in want.workers for step in unmount_steps(want, seen, node))),
            ("no longer export", unexport_steps(want, seen, self._source)),
        )

    def reading(self, want: Want, folder: Folder, node: NodeName) -> Reading:
        return volume_reading(want, folder) if by_volume(want) else on_host(want, folder, node)

    def how(
        self, want: Want, folder: Folder, node: NodeName, seen: Mapping[NodeName, NfsSeen], mount: ReadThrough
    ) -> str:
        wanted = transport(want, seen)
        wrong = [] if mount.kind.startswith("nfs") else [f"it is read through {mount.kind}, not NFS"]
        wrong += [] if "ro" in mount.options else ["it is mounted writable"]
        came = mount.option("proto")
        wrong += [] if came == wanted else [f"it came over {came or 'nothing known'}, {wanted} was asked for"]
        if wrong:
            raise Refused(
                "the mount is not what was asked for",
                where=node,
                evidence=wrong,
                fix="unmount everything of that server there, then share again",
            )
        many = mount.option("nconnect")
        size = mount.option("rsize")
        told = [f"NFS {mount.option('vers')} over {came}", "read-only"]
        told += [f"{many} connections"] if many else []
        told += [f"reads of {format_bytes(int(size))}"] if size.isdigit() else []
        return ", ".join(told)

    def notes(self, want: Want, seen: Mapping[NodeName, NfsSeen]) -> tuple[str, ...]:
        """What works, and could be better or safer."""
        told = []
        exact = {node.address for node in want.workers}
        wide = [one for one in clients(want) if one not in exact]
        if wide:
            told.append(f"exported to more than the workers: {', '.join(wide)}")
        if "no_root_squash" in want.weights.nfs_options.split(","):
            told.append("no_root_squash: root on a worker can read everything below the export, whatever its mode")
        if by_volume(want):
            told.append("a volume is read 128 KiB ahead unless /etc/nfs.conf of the worker sets [nfsrahead]")
            return tuple(told)
        for node in want.workers:
            client = client_of(seen, node.name)
            for folder in want.folders:
                mounted = client.mounted(folder.name)
                size = mounted.option("rsize") if mounted else ""
                if size.isdigit() and int(size) < ENOUGH:
                    came = format_bytes(int(size))
                    told.append(f"{node.name}: the server gives reads of {came}, 1 MiB was asked for")
        return tuple(told)


def need_root(seen: Mapping[NodeName, NfsSeen], *stages: tuple[str, tuple[Step, ...]]) -> Plan:
    """The plan, unless a step needs root where sudo asks for a password. With no such step nobody needs to be root."""
    for _, steps in stages:
        for step in steps:
            if isinstance(step, Run) and step.command.argv[0] == "sudo" and not seen[step.node].sudo:
                raise Refused(
                    "root is needed there, and sudo asks for a password",
                    where=step.node,
                    evidence=(f"to {step.why}",),
                    fix="let that user run sudo without a password, or set WEIGHT_SYNC=rsync; "
                    "for containers a worker can do without: NFS_MOUNT_BY=volume",
                )
    return plan_of(*stages)
