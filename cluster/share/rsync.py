"""Copies on the workers' own disks: several ssh streams at once, gone on with inside a file, proven by digest.

It does what one would have rsync do, without the program rsync: that one runs over one stream, and its default cipher
and its own checks take more than twice the processor time for every byte.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import PurePosixPath

from cluster.errors import Refused
from cluster.model.nodes import NodeSettings
from cluster.model.steps import Command, NodeName, Plan, Run, Step, Write
from cluster.model.units import Bytes, Seconds, format_bytes
from cluster.probe.copies import Held, parse_held
from cluster.probe.manifest import request, verdicts
from cluster.share.base import Folder, Reading, ReadThrough, Source, Want, below, on_host, plan_of

PIECE, BLOCK = 64 << 20, 4 << 20
SILENCE = 120.0
PATIENCE = Seconds(120.0)
LONGEST = Seconds(24 * 3600.0)
THREADS = 8
SHOWN = 8


@dataclass(frozen=True, slots=True)
class CopySeen:
    """The wanted folders as they lie on one node, by their short names."""

    folders: Mapping[str, Held]


@dataclass(frozen=True, slots=True)
class Work:
    """What is left to do for one folder on one worker.

    send    the head's files that are not there, or not as the head has them
    unread  files of the same size whose content nobody has compared yet
    stale   what an earlier attach brought and the head no longer has
    names   all that will have been brought
    """

    node: NodeSettings
    folder: Folder
    send: tuple[str, ...]
    unread: tuple[str, ...]
    stale: tuple[str, ...]
    names: tuple[str, ...]
    made: bool
    size: int = 0

    @property
    def target(self) -> str:
        return self.folder.targets[self.node.name]


@dataclass
class RsyncShare:
    """Nothing is removed or overwritten that was not brought by an attach, unless FORCE_SYNC says so."""

    source: Source
    programs: dict[str, bytes] = field(default_factory=dict)

    def look(self, want: Want) -> Mapping[NodeName, Command]:
        return {node.name: self._read_command(want, node) for node in (want.head, *want.workers)}

    def _read_command(
        self, want: Want, node: NodeSettings, only: Mapping[str, tuple[str, ...]] | None = None
    ) -> Command:
        """Without `only` the outside of all files, and what is known of their contents; with it, their contents."""
        asked = [
            request(
                folder.targets.get(node.name, folder.source),
                None if only is None else dict.fromkeys(only[folder.name], "sha256"),
                verdicts(node),
                contents=only is not None,
                threads=THREADS,
                record=record(want, node, folder),
            )
            for folder in want.folders
            if only is None or only.get(folder.name)
        ]
        argv = ("python3", "-IS", "-", json.dumps(asked, separators=(",", ":")))
        return Command(argv, stdin=self.source("manifest"), limit=PATIENCE if only is None else LONGEST)

    def read(self, want: Want, node: NodeName, text: str) -> CopySeen:
        held = parse_held(text, node)
        return CopySeen({folder.name: one for folder, one in zip(want.folders, held, strict=True)})

    def attach(self, want: Want, seen: Mapping[NodeName, CopySeen]) -> Plan:
        head = seen[want.head.name]
        works = [
            work_of(worker, folder, head.folders[folder.name], seen[worker.name].folders[folder.name], want)
            for worker in want.workers
            for folder in want.folders
        ]
        for worker in want.workers:
            check_room([one for one in works if one.node is worker], seen[worker.name])
        unread = {folder.name: unproven(head.folders[folder.name]) for folder in want.folders}
        return plan_of(
            ("tidy", tuple(self._remove(want, one, one.stale) for one in works if one.stale)),
            ("ready", tuple(self._ready(want, works))),
            ("copy", tuple(self._send(want, one) for one in works if one.send)),
            ("read", tuple(self._prove(want, works, unread))),
        )

    def moves(self, want: Want, seen: Mapping[NodeName, CopySeen]) -> Bytes:
        """Bytes that an attach would send; files of the same size may turn out to be others when they are read."""
        head = seen[want.head.name]
        return Bytes(
            sum(
                work_of(worker, folder, head.folders[folder.name], seen[worker.name].folders[folder.name], want).size
                for worker in want.workers
                for folder in want.folders
            )
        )

    def detach(self, want: Want, seen: Mapping[NodeName, CopySeen]) -> Plan:
        steps = []
        for worker in want.workers:
            for folder in want.folders:
                brought = seen[worker.name].folders[folder.name].record
                if brought is not None:
                    work = Work(worker, folder, (), (), brought.names or (), (), brought.made)
                    steps.append(self._remove(want, work, work.stale, ends=True))
        return plan_of(("detach", tuple(steps)))

    def reading(self, want: Want, folder: Folder, node: NodeName) -> Reading:
        return on_host(want, folder, node)

    def how(
        self, want: Want, folder: Folder, node: NodeName, seen: Mapping[NodeName, CopySeen], mount: ReadThrough
    ) -> str:
        files = seen[node].folders[folder.name].files
        return f"{len(files)} files of its own on {mount.kind}, all read there and equal by sha256"

    def notes(self, want: Want, seen: Mapping[NodeName, CopySeen]) -> tuple[str, ...]:
        return ()

    # ---- steps ------------------------------------------------------------------------------------------------------

    def _ready(self, want: Want, works: list[Work]) -> Iterator[Step]:
        """The receiver, and word of what will have come from us, before any of it comes."""
        for one in works:
            if one.send:
                why = "put the receiver there"
                yield Write(one.node.name, why, PurePosixPath("~") / self._receiver(), self.source("take_files"))
            if one.send or one.stale:
                said = {"folder": one.target, "files": one.names, "made": one.made}
                path = PurePosixPath(record(want, one.node, one.folder))
                yield Write(one.node.name, "note what is brought", path, json.dumps(said).encode())

    def _receiver(self) -> str:
        return f".cache/sparkctl/take-{sha256(self.source('take_files')).hexdigest()[:12]}.py"

    def _send(self, want: Want, work: Work) -> Run:
        way, weights = want.ways[work.node.name], want.weights
        local = ("sh", "-c", f'exec python3 -IS "$HOME/{self._receiver()}"')
        asked = {
            "folder": work.folder.source,
            "to": work.target,
            "files": work.send,
            "receiver": (*way, "python3", "-IS", self._receiver()) if way else local,
            "streams": weights.copy_streams,
            "limit": weights.copy_limit * 10**6,
            "piece": PIECE,
            "block": BLOCK,
            "silence": SILENCE,
        }
        argv = ("python3", "-IS", "-", json.dumps(asked, separators=(",", ":")))
        why = f"copy {work.folder.what} to {work.node.name}: {len(work.send)} files, {format_bytes(work.size)}"
        return Run(want.head.name, why, Command(argv, stdin=self.source("send_files"), limit=LONGEST), tells="bytes")

    def _prove(self, want: Want, works: list[Work], head: Mapping[str, tuple[str, ...]]) -> Iterator[Step]:
        """Both sides at once, each from its own disk; what was read before and did not change is not read again."""
        if any(head.values()):
            yield Run(want.head.name, "read what is compared", self._read_command(want, want.head, head), tells="bytes")
        for worker in want.workers:
            names = {one.folder.name: (*one.send, *one.unread) for one in works if one.node is worker}
            if any(names.values()):
                command = self._read_command(want, worker, names)
                yield Run(worker.name, "read what is there, to compare it", command, tells="bytes")

    def _remove(self, want: Want, work: Work, names: tuple[str, ...], *, ends: bool = False) -> Run:
        """With `ends` nothing of ours is left: no part, no record, and no folder that an attach made."""
        asked = {
            "folder": work.target,
            "files": names,
            "record": record(want, work.node, work.folder) if ends else "",
            "made": work.made,
        }
        argv = ("python3", "-IS", "-", json.dumps(asked, separators=(",", ":")))
        what = "the copy" if ends else f"{len(names)} files that the head no longer has"
        return Run(work.node.name, f"remove {what}", Command(argv, stdin=self.source("drop_files"), limit=LONGEST))


def record(want: Want, node: NodeSettings, folder: Folder) -> str:
    """Where a node keeps word of what was brought: beside our state, for the folder holds the head's files alone."""
    return below(node.state_dir, f"weights/brought-{want.deployment}-{folder.name}.json")


def unproven(held: Held) -> tuple[str, ...]:
    return tuple(name for name, one in held.files.items() if one.size is not None and not one.digest)


def work_of(worker: NodeSettings, folder: Folder, head: Held, there: Held, want: Want) -> Work:
    """Raises Refused when the head cannot be read, or files on the worker that are not ours stand in the way."""
    broken = [
        f"{name}: {one.error or 'a link that leads nowhere'}" for name, one in head.files.items() if one.size is None
    ]
    if broken or not head.files:
        what = "files of the head cannot be read" if broken else "the head has no weights to share"
        raise Refused(what, where=f"{want.head.name}:{folder.source}", evidence=broken[:SHOWN], fix="sparkctl fetch")
    send, unread, foreign = [], [], []
    brought = frozenset((there.record.names if there.record else None) or ())
    for name, mine in head.files.items():
        other = there.files.get(name)
        if other is None or other.size is None:
            send.append(name)
        elif other.size != mine.size or (other.digest and mine.digest and other.digest != mine.digest):
            send.append(name)
            if name not in brought:
                foreign.append(
                    f"{name}: {other.digest or f'{other.size} bytes'}, on the head {mine.digest or mine.size}"
                )
        elif not other.digest:
            unread.append(name)
    if foreign and not want.weights.force:
        raise Refused(
            "files lie there that differ from the head's and were not brought by sparkctl",
            where=f"{worker.name}:{folder.targets[worker.name]}",
            evidence=foreign[:SHOWN],
            fix="move them away, name another folder (WORKER_MODEL_DIR), or overwrite them with FORCE_SYNC=1",
        )
    stale = sorted(brought & there.files.keys() - head.files.keys())
    names = tuple(sorted((brought & head.files.keys()) | set(send)))
    made = there.record.made if there.record else not there.room.present
    size = sum(head.files[name].size or 0 for name in send)
    return Work(worker, folder, tuple(send), tuple(unread), tuple(stale), names, made, size)


def check_room(works: list[Work], there: CopySeen) -> None:
    """On one disk all folders count together; what has come already is on it."""
    room = {one.folder.name: there.folders[one.folder.name].room for one in works if one.send}
    if not room:
        return
    for one in works:
        if one.folder.name in room and not room[one.folder.name].writable:
            raise Refused(
                "may not write there", where=f"{one.node.name}:{one.target}", fix="chown it, or name another folder"
            )
    need = sum(one.size for one in works) - sum(one.begun for one in room.values())
    free = min(one.free for one in room.values())
    if need > free:
        raise Refused(
            f"no room for the copy: {format_bytes(need)} needed, {format_bytes(free)} free",
            where=f"{works[0].node.name}:{works[0].target}",
            fix="sparkctl share --backend nfs needs no disk there; sparkctl weights prune shows what can go",
        )
