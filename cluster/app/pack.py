"""`pack`: put the Engram rows that each rank owns onto its node's disk, on all nodes at once; or check them."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from cluster.app.agents import agent, source
from cluster.app.engram import tables_of
from cluster.app.lock import held
from cluster.app.observe import told
from cluster.app.pace import REAL, Pace
from cluster.app.session import OpenNode, Session, raise_all
from cluster.app.stages import Stages
from cluster.errors import Refused, SettingsError, SparkctlError, StepFailed
from cluster.model.bundle import bundle
from cluster.model.engram import EngramReport, PackedFile, PackedState, TablesFolder
from cluster.model.events import Emit, Progress, Severity, Told
from cluster.model.settings import Settings
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.node.base import Node
from cluster.plan.pack import (
    NodePack,
    PackJob,
    SlimFolder,
    candidates,
    check_room,
    node_pack,
    packed_folder,
)
from cluster.probe.tables import TablesSeen
from cluster.weights.packed import PACKER, pack_file

STAGE = "pack"
LONG = 24 * 3600.0
RESERVE = 1 << 30


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says. No `layers` are all of them; no `out` is the folder that the settings name.

    check   read everything and write nothing
    gentle  last in line for the processor and the disk, beside a server that answers
    """

    check: bool = False
    layers: tuple[int, ...] = ()
    out: str = ""
    gentle: bool = False
    threads: int = 8
    reserve: int = RESERVE


@cache
def program() -> bytes:
    return bundle(source(part) for part in PACKER)


def pack(settings: Settings, open_one: OpenNode, emit: Emit, wanted: Wanted, pace: Pace = REAL) -> EngramReport:
    """Files that are right are left alone; what an ended pack has on the disk is gone on with."""
    ranks = settings.serve.tensor_parallel * settings.serve.pipeline_parallel
    if ranks != len(settings.nodes):
        raise SettingsError(
            f"TP times PP makes {ranks} ranks, for {len(settings.nodes)} node(s)", fix="make them equal, see TP"
        )
    folders = {node.name: packed_folder(settings, node, wanted.out) for node in settings.nodes}
    stages, session = Stages(emit, pace.clock), Session(settings, open_one, emit)
    try:
        with stages.stage("connect", tuple(folders)):
            session.open().need_all()
        with nullcontext() if wanted.check else held(session.head, settings, "pack", emit):
            with stages.stage("look"):
                seen = look(session, folders)
                packs = _decide(settings, seen, wanted)
            for one in packs.values():
                if one.network:
                    emit(
                        Told(Severity.NOTE, f"reads the tables over the network: {one.jobs[0].shard.parent}", one.node)
                    )
            with stages.stage("check" if wanted.check else STAGE, tuple(folders)):
                made = session.each(lambda node: _NodeRun(node, packs[node.name], wanted, emit).run())
    finally:
        session.close()
    files = tuple(file for node in settings.nodes for file in made[node.name].files)
    slim = tuple(one for node in settings.nodes for one in made[node.name].folders)
    bad = any(one.fault for one in files) or not all(one.ok for one in slim)
    return EngramReport(settings.deployment, not bad, wanted.check, files, slim)


def look(session: Session, folders: dict[str, str]) -> dict[str, TablesSeen]:
    """Which tables and which packed files lie on every node."""
    settings = {node.name: node for node in session.settings.nodes}

    def ask(node: Node) -> TablesSeen:
        return tables_of(node, candidates(session.settings, settings[node.name]), folders[node.name])

    return session.each(ask)


def _decide(settings: Settings, seen: dict[str, TablesSeen], wanted: Wanted) -> dict[str, NodePack]:
    """What to do everywhere, or every reason not to begin anywhere."""
    packs: dict[str, NodePack] = {}
    wrong: list[SparkctlError] = []
    for rank, node in enumerate(settings.nodes):
        try:
            packs[node.name] = node_pack(settings, rank, seen[node.name], wanted.layers)
        except SparkctlError as error:
            wrong.append(error)
    raise_all(tuple(wrong))
    if not wanted.check:
        check_room(tuple(packs.values()), seen, wanted.reserve)
    return packs


@dataclass(slots=True)
class _NodeRun:
    """The work on one node: first the folder of links, then the rows, told on the way."""

    node: Node
    todo: NodePack
    wanted: Wanted
    emit: Emit
    files: list[PackedFile] = field(default_factory=list)
    folders: list[TablesFolder] = field(default_factory=list)
    _at: dict[str, int] = field(default_factory=dict)

    def run(self) -> "_NodeRun":
        if self.todo.slim is not None:
            self.folders.append(self._link(self.todo.slim))
        request = {
            "files": [pack_file(job.wanted, job.shard, job.place, job.out) for job in self.todo.jobs],
            "check": self.wanted.check,
            "threads": self.wanted.threads,
            "samples": 256,
            "gentle": self.wanted.gentle,
            "reserve": self.wanted.reserve,
        }
        argv = ("python3", "-IS", "-", json.dumps(request, separators=(",", ":")))
        result = self.node.stream(Command(argv, stdin=program(), limit=Seconds(LONG)), self._hear)
        if len(self.files) != len(self.todo.jobs):
            raise StepFailed(
                f"the packer ended with exit code {result.exit} before it was done",
                where=self.node.name,
                evidence=result.err_text.strip().splitlines()[-5:],
                fix="sparkctl pack again: it goes on with what is on the disk",
            )
        return self

    def _link(self, slim: SlimFolder) -> TablesFolder:
        want = {
            "source": str(slim.source),
            "out": slim.out,
            "shards": slim.shards,
            "index": dict(slim.index),
            "check": self.wanted.check,
        }
        said = json.loads(told(self.node, self.node.run(agent("slim", want))))
        is_right = not said["error"] and not (self.wanted.check and said["made"])
        return TablesFolder(self.node.name, said["out"], is_right, tuple(said["made"]), said["error"])

    def _hear(self, line: str) -> None:
        said = json.loads(line)
        job = next(one for one in self.todo.jobs if str(one.out) == said["out"])
        match said["kind"]:
            case "begin" | "progress":
                self._at[said["out"]] = said["done"]
                self._tell(said.get("rate"), job)
            case "done":
                self._at[said["out"]] = said["size"]
                state = PackedState.PACKED if said["packed"] else PackedState.RIGHT
                self.files.append(self._file(job, state, seconds=said["seconds"]))
                self._tell(None, job)
            case _:
                state = PackedState.WRONG if self.wanted.check else PackedState.FAILED
                self.files.append(self._file(job, state, fault=said["fault"], detail=said["text"]))

    def _file(self, job: PackJob, state: PackedState, **more: Any) -> PackedFile:
        layer, size = job.wanted.layer, job.wanted.size
        return PackedFile(self.node.name, job.rank, layer, str(job.out), size, str(job.shard), state, **more)

    def _tell(self, rate: float | None, job: PackJob) -> None:
        total = sum(one.wanted.size for one in self.todo.jobs)
        done = sum(self._at.values())
        self.emit(Progress(STAGE, self.node.name, done, total, "bytes", rate=rate, text=f"layer {job.wanted.layer}"))


def failure(report: EngramReport) -> SparkctlError | None:
    """The error that a report is, with every file and folder that is not as it must be."""
    files = [f"{one.node}: {one.detail}" for one in report.files if one.fault]
    folders = [
        f"{one.node}: {one.path}: {one.detail or 'not right: ' + ', '.join(one.made)}"
        for one in report.folders
        if not one.ok
    ]
    if report.ok:
        return None
    if report.checked:
        return Refused(_count(files, folders, "is not right"), evidence=(*files, *folders), fix="sparkctl pack")
    fix = "once that is mended, sparkctl pack again: it goes on with what is on the disk"
    return StepFailed(_count(files, folders, "could not be made"), evidence=(*files, *folders), fix=fix)


def _count(files: Sequence[str], folders: Sequence[str], what: str) -> str:
    told_files = f"{len(files)} packed file{'s' if len(files) > 1 else ''}" if files else ""
    told_folders = f"{len(folders)} folder{'s' if len(folders) > 1 else ''} of tables" if folders else ""
    many = len(files) + len(folders) > 1
    verb = what.replace("is not", "are not") if many else what
    return f"{' and '.join(filter(None, (told_files, told_folders)))} {verb}"
