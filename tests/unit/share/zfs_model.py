"""ZFS in memory, as strict as the real one where a plan could lose something: what a share's steps do to two nodes."""

import json
from dataclasses import dataclass, field, replace

from cluster.model.steps import Plan, Run
from cluster.model.units import Bytes
from cluster.probe.zfs import Dataset, Place, Snapshot, ZfsSeen
from cluster.share.base import Want


class Refuses(Exception):
    """What zfs would answer with exit code 1."""


@dataclass
class Filesystem:
    """`content` stands for all files; a snapshot remembers the content that it was taken of."""

    snapshots: list[Snapshot] = field(default_factory=list)
    contents: dict[int, int] = field(default_factory=dict)
    content: int = 0
    written: int = 0
    owner: str = ""
    token: int = 0  # the guid on the way to
    mountpoint: str = ""
    mounted: bool = False
    read_only: bool = False

    def find(self, name: str) -> Snapshot:
        for one in self.snapshots:
            if one.name == name:
                return one
        raise Refuses(f"no snapshot {name}")

    def put(self, one: Snapshot, content: int) -> None:
        order = max((each.order for each in self.snapshots), default=0) + 1
        self.snapshots.append(replace(one, order=order, tags=()))
        self.contents[one.guid] = content
        self.content, self.written = content, 0

    def change(self, name: str, **values) -> None:
        at = self.snapshots.index(self.find(name))
        self.snapshots[at] = replace(self.snapshots[at], **values)


@dataclass
class World:
    """The head's dataset, which is there, and the worker's, which may be."""

    want: Want
    head: Filesystem
    worker: Filesystem | None
    guid: int = 10_000
    destroyed: list[int] = field(default_factory=list)
    moved: int = 0

    SOURCE, TARGET = "tank/m", "tank/sparkctl-demo-model"

    def seen(self) -> dict[str, ZfsSeen]:
        return {"a": self._node(self.SOURCE, self.head, is_head=True), "b": self._node(self.TARGET, self.worker)}

    def _node(self, name: str, one: Filesystem | None, *, is_head: bool = False) -> ZfsSeen:
        pool = Dataset("tank", Bytes(1 << 50), Bytes(0), "/tank", True)
        listing = f"{self.head.content:064x}"[::-1] if is_head else ""
        dataset = (
            None
            if one is None
            else Dataset(
                name,
                Bytes(1 << 50),
                Bytes(100),
                one.mountpoint,
                one.mounted,
                written=Bytes(one.written),
                token="1-token" if one.token else "",
                read_only=one.read_only,
                owner=one.owner,
                to_guid=one.token,
                snapshots=tuple(one.snapshots),
            )
        )
        datasets = {"tank": pool} | ({name: dataset} if dataset else {})
        return ZfsSeen(("zfs",), "root", True, "", datasets, {"model": Place(dataset, listing=listing)})

    def carry_out(self, plan: Plan) -> None:
        for stage in plan.stages:
            for step in stage.steps:
                if isinstance(step, Run):
                    self._run(step)

    def _run(self, step: Run) -> None:
        argv = step.command.argv
        if argv[0] != "python3":
            self._zfs(step.node, argv[1:])
        elif "argv" in (asked := json.loads(argv[-1])):
            self._zfs(step.node, tuple(asked["argv"])[1:])
        else:
            self._stream(asked)

    def _zfs(self, node: str, words: tuple[str, ...]) -> None:
        one = self.head if node == "a" else self.worker
        assert one is not None, f"{words}: there is no dataset"
        name = words[-1].partition("@")[2]
        match words[0]:
            case "snapshot":
                self.guid += 1
                one.put(Snapshot(name, self.guid, 0, Bytes(one.written)), one.content)
            case "hold":
                one.change(name, tags=(*one.find(name).tags, words[1]))
            case "release":
                one.change(name, tags=tuple(tag for tag in one.find(name).tags if tag != words[1]))
            case "rollback":
                self._roll_back(one, name, deep="-r" in words)
            case "set":
                one.mountpoint = words[1].partition("=")[2]
            case "mount":
                one.mounted = True
            case "unmount":
                one.mounted = False
            case "receive":
                self._abandon(one)
            case "destroy" if name:
                self._destroy(one, one.find(name))
            case "destroy":
                for each in tuple(one.snapshots):
                    self._destroy(one, each)
                self.worker = None
            case _:
                raise AssertionError(words)

    def _destroy(self, one: Filesystem, snapshot: Snapshot) -> None:
        if snapshot.tags:
            raise Refuses(f"{snapshot.name}: dataset is busy")
        one.snapshots.remove(snapshot)
        self.destroyed.append(snapshot.guid)

    def _roll_back(self, one: Filesystem, name: str, *, deep: bool) -> None:
        to = one.find(name)
        newer = [each for each in one.snapshots if each.order > to.order]
        if newer and not deep:
            raise Refuses("more recent snapshots exist")
        for each in newer:
            self._destroy(one, each)
        one.content, one.written = one.contents[to.guid], 0

    def _abandon(self, one: Filesystem) -> None:
        one.token = 0
        if not one.snapshots:
            self.worker = None

    def _stream(self, asked: dict) -> None:
        words = asked["send"]
        assert "-F" not in asked["receive"]
        if "-t" in words:
            assert self.worker is not None
            sent = next((one for one in self.head.snapshots if one.guid == self.worker.token), None)
            if sent is None:
                return self._abandon(self.worker)  # as zfs_send does, and says so
            self.worker.token = 0
            self.moved += 1
            return self.worker.put(sent, self.head.contents[sent.guid])
        sent = self.head.find(words[-1].partition("@")[2])
        if "-i" in words:
            return self._incremental(self.head.find(words[words.index("-i") + 1].partition("@")[2]), sent)
        if self.worker is not None:
            raise Refuses("destination exists, must specify -F to overwrite it")
        given = dict(word.split("=", 1) for word in asked["receive"] if "=" in word)
        self.worker = Filesystem(owner=given["sparkctl:id"], read_only=given["readonly"] == "on")
        self.worker.mountpoint = given["mountpoint"]
        self.moved += 1
        return self.worker.put(sent, self.head.contents[sent.guid])

    def _incremental(self, base: Snapshot, sent: Snapshot) -> None:
        there = self.worker
        assert there is not None
        if there.token:
            raise Refuses("contains partially-complete state")
        if not there.snapshots or there.snapshots[-1].guid != base.guid:
            raise Refuses("most recent snapshot does not match incremental source")
        if there.written:
            raise Refuses("has been modified since most recent snapshot")
        assert sent.order > base.order
        self.moved += 1
        there.put(sent, self.head.contents[sent.guid])
