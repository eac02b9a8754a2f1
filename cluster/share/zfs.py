"""Copies by `zfs send`: one snapshot for one content, only what changed since the last, gone on with after a cut."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath

from cluster.errors import Refused
from cluster.model.kit import OnConflict
from cluster.model.nodes import NodeSettings
from cluster.model.steps import Command, NodeName, Plan, Run, Stage, Step, Write
from cluster.model.units import Bytes, Seconds, format_bytes
from cluster.probe.zfs import DATASET, SNAPSHOT, ZfsSeen, parse_zfs
from cluster.share.base import Folder, Reading, ReadThrough, Source, Want, on_host, plan_of
from cluster.share.zfs_checks import HEAD_RIGHTS, WORKER_RIGHTS, available, check_clash, check_rights, check_room
from cluster.share.zfs_plan import Conflict, GoBack, Nothing, Resume, Send, decide, need
from cluster.share.zfs_steps import (
    PATIENCE,
    Pair,
    forgets,
    go_back,
    holds,
    mounts,
    named,
    on_head,
    once,
    pairs_of,
    tidies,
    unmakes,
)

LONGEST = Seconds(24 * 3600.0)
# The same for every stream: one with other flags is refused by what earlier ones left. Blocks as they are, compressed.
FLAGS = ("-L", "-c", "-e")
PROPERTIES = ("readonly=on", "atime=off")


@dataclass
class ZfsShare:
    """Nothing of a worker's that is not the head's is destroyed unless ZFS_CONFLICT says so; never `receive -F`."""

    source: Source

    def look(self, want: Want) -> Mapping[NodeName, Command]:
        return {node.name: self._ask(want, node) for node in (want.head, *want.workers)}

    def _ask(self, want: Want, node: NodeSettings) -> Command:
        places = {
            folder.name: {
                "path": folder.targets.get(node.name, folder.source),
                "dataset": named(want, folder, node),
                "last": "" if node is want.head else want.name(folder),
            }
            for folder in want.folders
        }
        asked = {"places": places, "dataset": DATASET, "snapshot": SNAPSHOT}
        argv = ("python3", "-IS", "-", json.dumps(asked, separators=(",", ":")))
        return Command(argv, stdin=self.source("zfs_look"), limit=PATIENCE)

    def read(self, want: Want, node: NodeName, text: str) -> ZfsSeen:
        return parse_zfs(text, node)

    def attach(self, want: Want, seen: Mapping[NodeName, ZfsSeen]) -> Plan:
        pairs = tuple(pairs_of(want, seen))
        check_rights(want.head.name, seen[want.head.name], {one.source.name for one in pairs}, HEAD_RIGHTS)
        moves = tuple(step for one in pairs for step in self._move(one))
        if moves:
            fresh = {one.source.name: one for one in pairs if one.wanted is None}.values()
            receivers = {one.worker.name: self._receiver(one) for one in pairs}.values()
            take = tuple(
                on_head(one, "take a snapshot", "snapshot", f"{one.source.name}@{one.snapshot}") for one in fresh
            )
            return Plan((*plan_of(("snapshot", take), ("ready", tuple(receivers))).stages, Stage("send", moves, True)))
        return plan_of(
            ("keep", once(step for one in pairs for step in holds(one))),
            ("mount", once(step for one in pairs for step in mounts(one))),
            ("tidy", once(tidies(pairs))),
        )

    def moves(self, want: Want, seen: Mapping[NodeName, ZfsSeen]) -> tuple[Bytes, Bytes]:
        """Bytes that an attach would send, at most; and what the fullest dataset can take."""
        moves, room = 0, []
        for one in pairs_of(want, seen):
            may_go_back = want.weights.zfs_conflict is OnConflict.ROLLBACK
            match decide(one.source, one.wanted, one.place.dataset, want.label, may_go_back=may_go_back).decision:
                case Send() as send:
                    moves += need(one.source, one.wanted, send)
                case Resume():
                    moves += one.source.referenced
                case _:
                    pass
            room.append(available(one.target, one.place.dataset, one.there))
        return Bytes(moves), min(room)

    def detach(self, want: Want, seen: Mapping[NodeName, ZfsSeen]) -> Plan:
        worker = once(step for node in want.workers for step in unmakes(want, node, seen[node.name]))
        head = once(forgets(want, seen[want.head.name]))
        return plan_of(("detach", worker), ("forget", head))

    def reading(self, want: Want, folder: Folder, node: NodeName) -> Reading:
        return on_host(want, folder, node)

    def how(
        self, want: Want, folder: Folder, node: NodeName, seen: Mapping[NodeName, ZfsSeen], mount: ReadThrough
    ) -> str:
        dataset = seen[node].places[folder.name].dataset
        if mount.kind != "zfs" or dataset is None:
            raise Refused(
                f"it is read from {mount.kind}, not from the dataset",
                where=f"{node}:{folder.targets[node]}",
                fix="see what is mounted there: findmnt",
            )
        last = dataset.snapshots[-1].name if dataset.snapshots else "no snapshot"
        return f"ZFS dataset {dataset.name} at {last}, read-only, {format_bytes(dataset.available)} left"

    def notes(self, want: Want, seen: Mapping[NodeName, ZfsSeen]) -> tuple[str, ...]:
        return ()

    # ---- streams ----------------------------------------------------------------------------------------------------

    def _move(self, one: Pair) -> Iterator[Step]:
        """What brings the worker's dataset to the head's snapshot; nothing when it is there."""
        may_go_back = one.want.weights.zfs_conflict is OnConflict.ROLLBACK
        choice = decide(one.source, one.wanted, one.place.dataset, one.want.label, may_go_back=may_go_back)
        decision = choice.decision
        if not isinstance(decision, Nothing):
            check_rights(one.worker.name, one.there, {one.target}, WORKER_RIGHTS, one.place.rights)
        if choice.abandon:
            yield self._abandon(one)
        match decision:
            case Nothing():
                return
            case Conflict():
                check_clash(one.where, one.target, one.want.label, decision)
            case GoBack(to, lost):
                yield from go_back(one, to, lost)
            case Resume():
                yield self._stream(one, ("-t", decision.token), decision.snapshot or one.snapshot, is_new=False)
            case Send(base, back_to, lost):
                check_room(
                    one.worker.name, one.target, one.place.dataset, one.there, need(one.source, one.wanted, decision)
                )
                if one.place.hidden and base is None:
                    raise Refused(
                        "files lie where the dataset would be mounted, and would be hidden",
                        where=f"{one.worker.name}:{one.mountpoint}",
                        fix="move them away, or name another folder (WORKER_MODEL_DIR)",
                    )
                if back_to is not None:
                    yield from go_back(one, back_to, lost)
                start = ("-i", f"@{base.name}") if base else ()
                flags = ("-w",) if one.source.is_encrypted else FLAGS
                yield self._stream(
                    one, (*flags, *start, f"{one.source.name}@{one.snapshot}"), one.snapshot, is_new=not base
                )

    def _stream(self, one: Pair, words: tuple[str, ...], snapshot: str, *, is_new: bool) -> Run:
        """`is_new`: properties are given with the first stream; later ones find them."""
        mountpoint = (f"mountpoint={one.mountpoint}",) if one.there.is_root else ()
        made = (f"sparkctl:made={one.place.absent}",) if mountpoint and one.place.absent else ()
        given = (*PROPERTIES, f"sparkctl:id={one.want.label}", *made, *mountpoint) if is_new else ()
        properties = tuple(word for each in given for word in ("-o", each))
        way = one.want.ways[one.worker.name]
        asked = {
            "send": (*one.head.words, "send", "-vP", *words),
            "dry": (*one.head.words, "send", "-nvP", *words),
            "guid": (*one.head.words, "get", "-Hp", "-o", "value", "guid", f"{one.source.name}@{snapshot}"),
            "way": (*way, "python3", "-IS", self._program()) if way else self._here(),
            "zfs": one.there.words,
            "receive": ("receive", "-s", "-u", *properties, one.target),
            "dataset": one.target,
            "snapshot": snapshot,
        }
        argv = ("python3", "-IS", "-", json.dumps(asked, separators=(",", ":")))
        why = f"send {one.folder.what} to {one.worker.name}"
        command = Command(argv, stdin=self.source("zfs_said", "zfs_send"), limit=LONGEST)
        return Run(one.want.head.name, why, command, tells="bytes")

    def _abandon(self, one: Pair) -> Run:
        argv = ("python3", "-IS", "-", json.dumps({"argv": (*one.there.words, "receive", "-A", one.target)}))
        command = Command(argv, stdin=self.source("zfs_said", "zfs_abandon"), limit=PATIENCE)
        return Run(one.worker.name, "give up a receive whose snapshot is gone", command)

    def _program(self) -> str:
        return f".cache/sparkctl/zfs-take-{sha256(self.source('zfs_take')).hexdigest()[:12]}.py"

    def _here(self) -> tuple[str, ...]:
        return ("sh", "-c", f'exec python3 -IS "$HOME/{self._program()}"')

    def _receiver(self, one: Pair) -> Write:
        path = PurePosixPath("~") / self._program()
        return Write(one.worker.name, "put the receiver there", path, self.source("zfs_take"))
