"""`verify`: prove the weights on every node, by content, and say of what was not looked at that it was not."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.app.agents import source
from cluster.app.pace import REAL, Pace
from cluster.app.session import OpenNode, Session
from cluster.app.stages import Stages
from cluster.errors import Refused, SparkctlError, StepFailed
from cluster.model.events import Emit, Progress, Severity, Told
from cluster.model.settings import Settings
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.model.weights import ProvenFolder, VerifyReport
from cluster.node.base import Node
from cluster.plan.verify import Place, places, proven, recorded
from cluster.probe.manifest import IndexFact, ReadProgress, Record, Room, parse_line, request
from cluster.weights.manifest import FileFact, Manifest, compare, parse
from cluster.weights.relay import PAD

STAGE = "verify"
LONG = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """`quick`: names, sizes, headers and index, no contents. `again`: also what was proven and did not change."""

    quick: bool = False
    again: bool = False
    threads: int = 8


@dataclass(slots=True)
class Look:
    """One folder of one node, as the program tells of it."""

    room: Room | None = None
    index: IndexFact | None = None
    hashed: int = 0
    facts: dict[str, FileFact] = field(default_factory=dict)

    @property
    def present(self) -> bool:
        return self.room is not None and self.room.present


def look(
    node: Node,
    place: Place,
    manifest: Manifest | None,
    emit: Emit,
    wanted: Wanted,
    stage: str = STAGE,
) -> Look:
    """Ask a node for the facts of a folder: of the manifest's files, or of all that lie there."""
    found = Look()

    def hear(line: str) -> None:
        match parse_line(line, f"{node.name}:{place.folder}"):
            case Room() as room:
                found.room = room
            case ReadProgress(done, total, rate):
                found.hashed = done
                emit(Progress(stage, node.name, done, total, "bytes", rate=rate, text=f"reading {place.what}"))
            case FileFact() as fact:
                found.facts[fact.name] = fact
            case IndexFact() as index:
                found.index = index
            case Record():
                pass  # only a share asks for it

    kinds = None if manifest is None else {one.name: one.kind for one in manifest.files}
    want = request(
        place.folder,
        kinds,
        place.cache,
        contents=not wanted.quick,
        again=wanted.again,
        threads=wanted.threads,
        pads=PAD,
    )
    argv = ("python3", "-IS", "-", json.dumps(want, separators=(",", ":")))
    result = node.stream(Command(argv, stdin=source("manifest"), limit=Seconds(LONG)), hear)
    if result.exit or found.room is None:
        raise StepFailed(
            f"looking at the weights ended with exit code {result.exit}",
            where=f"{node.name}:{place.folder}",
            evidence=result.err_text.strip().splitlines()[-5:],
            fix="sparkctl verify again: it goes on after the files that it has read",
        )
    return found


def verify(settings: Settings, open_one: OpenNode, emit: Emit, wanted: Wanted, pace: Pace = REAL) -> VerifyReport:
    """Each folder on all nodes side by side, against the manifest that a fetch left, or against the head's."""
    stages, session = Stages(emit, pace.clock), Session(settings, open_one, emit)
    folders: list[ProvenFolder] = []
    try:
        with stages.stage("connect"):
            session.open().need_all()
        for what, there in places(settings).items():
            manifest = _manifest(session, there[settings.head.name])
            if manifest is None:
                text = f"nobody says what {what} must hold: the nodes are compared with {settings.head.name}"
                emit(Told(Severity.NOTE, text))
            with stages.stage(f"{STAGE} {what}", tuple(there)):
                folders += _prove(session, there, manifest, emit, wanted, pace)
    finally:
        session.close()
    return VerifyReport(settings.deployment, all(one.ok for one in folders), wanted.quick, tuple(folders))


def _manifest(session: Session, place: Place) -> Manifest | None:
    path = recorded(place.folder)
    node = session.head
    try:
        data = session.on(node.name, lambda one: one.read(path))
    except StepFailed:
        return None  # the folder was not fetched by us
    return parse(data, f"{node.name}:{path}")


def _prove(
    session: Session, there: Mapping[str, Place], manifest: Manifest | None, emit: Emit, wanted: Wanted, pace: Pace
) -> tuple[ProvenFolder, ...]:
    began = pace.clock()
    seconds: dict[str, float] = {}

    def ask(node: Node) -> Look:
        seen = look(node, there[node.name], manifest, emit, wanted)
        seconds[node.name] = pace.clock() - began
        return seen

    looks = session.each(ask)
    names = [node.name for node in session.settings.nodes]
    alone = manifest is not None or len(names) == 1
    unlike = {} if alone else compare({name: looks[name].facts for name in names}, contents=not wanted.quick)
    return tuple(
        proven(
            name,
            there[name].folder,
            manifest,
            looks[name].facts,
            looks[name].index,
            unlike=unlike.get(name),
            by_content=not wanted.quick,
            present=looks[name].present,
            hashed=looks[name].hashed,
            seconds=seconds[name],
        )
        for name in names
    )


def failure(report: VerifyReport) -> SparkctlError | None:
    """The error that a report is: every file by its name and node."""
    if report.ok:
        return None
    bad = [one for one in report.folders if not one.ok]
    evidence = [f"{one.node}:{one.path}/{file.name}: {file.detail}" for one in bad for file in one.wrong]
    evidence += [f"{one.node}:{one.path}: {text}" for one in bad for text in one.problems]
    return Refused(
        "the weights are not what they must be",
        evidence=evidence,
        fix="sparkctl fetch puts the head's right; then bring them to the workers again",
    )
