"""`fetch`: bring the files a deployment reads onto the head, go on after any interruption, and prove what came."""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import PurePosixPath
from threading import Event

from cluster.app.lock import held
from cluster.app.pace import REAL, Pace
from cluster.app.session import OpenNode, Session, raise_all
from cluster.app.stages import Stages
from cluster.app.transfers import STAGE, Transfers
from cluster.app.verify import Look, look
from cluster.app.verify import Wanted as Proof
from cluster.errors import Refused, SettingsError, SparkctlError, StepFailed
from cluster.hub import Hub, Watchful
from cluster.model.events import Emit, Severity, Told
from cluster.model.settings import Settings
from cluster.model.steps import Command
from cluster.model.weights import FetchedFolder, FetchReport, WeightFile
from cluster.plan.fetch import (
    Source,
    check_room,
    check_shards,
    chosen,
    gaps,
    lease_path,
    note_name,
    registry,
    sources,
    to_bring,
    wants_index,
)
from cluster.plan.verify import Place, recorded
from cluster.probe.manifest import verdicts
from cluster.weights.manifest import Entry, Manifest, parse, rendered

ROUNDS = 2  # what came wrong is fetched once more
RESERVE = 1 << 30


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says. `more`: patterns of further files of the model's repository."""

    offline: bool = False
    xet: bool = False
    stall: float = 60.0
    more: tuple[str, ...] = ()
    reserve: int = RESERVE
    threads: int = 8


@dataclass(slots=True)
class _Job:
    """One repository on its way into its folder."""

    source: Source
    place: Place
    manifest: Manifest
    seen: Look
    missing: tuple[WeightFile, ...]

    @property
    def folder(self) -> str:
        assert self.seen.room is not None
        return self.seen.room.path


def fetch(settings: Settings, open_one: OpenNode, emit: Emit, wanted: Wanted, pace: Pace = REAL) -> FetchReport:
    """Everything is looked at before anything changes. A second fetch has nothing to do."""
    wants = sources(settings)
    if settings.head.control != "local":
        raise SettingsError(
            "a fetch runs on the machine that gets the files",
            where=settings.head.name,
            fix=f"run sparkctl fetch on {settings.head.name}",
        )
    stop = Event()
    hub = Hub(settings.weights.hf_token, stop)
    stages, session = Stages(emit, pace.clock), Session(settings, open_one, emit)
    try:
        with stages.stage("connect", (settings.head.name,)):
            session.open()
        with stages.stage("look", (settings.head.name,)):
            jobs = [_job(session, hub, one, emit, wanted) for one in wants]
            _check(settings, jobs, wanted)
        with ExitStack() as leases:
            leases.enter_context(held(session.head, settings, STAGE, emit))
            for job in jobs:
                leases.enter_context(held(session.head, settings, STAGE, emit, lease_path(job.folder)))
            done = []
            for job in jobs:
                with stages.stage(f"{STAGE} {job.source.what}", (settings.head.name,)):
                    done.append(_Fetch(session, hub, stop, emit, wanted, pace).run(job))
    except KeyboardInterrupt:
        stop.set()
        raise
    finally:
        session.close()
    return FetchReport(settings.deployment, settings.head.name, tuple(done))


def _job(session: Session, hub: Hub, source: Source, emit: Emit, wanted: Wanted) -> _Job:
    head = session.head
    place = Place(source.what, source.folder, verdicts(session.settings.head))
    manifest = _recorded(session, source) if wanted.offline else _published(hub, source, wanted)
    seen = session.on(head.name, lambda node: look(node, place, manifest, emit, Proof(quick=True), STAGE))
    return _Job(source, place, manifest, seen, gaps(manifest, seen.facts))


def _published(hub: Hub, source: Source, wanted: Wanted) -> Manifest:
    listing = hub.listing(source.repo, source.revision)
    read = {name: hub.read(source.repo, listing.revision, name) for name in wants_index(source, listing)}
    return chosen(source, listing, read, wanted.more)


def _recorded(session: Session, source: Source) -> Manifest:
    path = recorded(source.folder)
    where = f"{session.head.name}:{path}"
    try:
        manifest = parse(session.on(session.head.name, lambda node: node.read(path)), where)
    except StepFailed as error:
        raise Refused(
            f"offline, nobody says what {source.what} must hold: it was never fetched here",
            where=where,
            fix=f"sparkctl fetch once with a network, or copy {PurePosixPath(path).parent} with the files",
        ) from error
    if manifest.repo != source.repo or source.revision not in ("", "main", manifest.revision):
        raise Refused(
            f"offline, and what is there is {manifest.repo} at {manifest.revision[:12]}",
            where=where,
            fix="set HF_MODEL_REPO and its revision to that, or fetch with a network",
        )
    return manifest


def _check(settings: Settings, jobs: list[_Job], wanted: Wanted) -> None:
    """All that is against it, before anything changes."""
    wrong: list[SparkctlError] = []
    if wanted.offline:
        told = [f"{job.folder}/{one.name}: {one.detail}" for job in jobs for one in job.missing]
        if told:
            raise Refused(
                f"offline, and {len(told)} files are not as they must be", evidence=told, fix="sparkctl fetch"
            )
    taken = 0
    for job in jobs:
        assert job.seen.room is not None
        entries = to_bring(job.manifest, job.missing)
        try:
            if not job.source.tables:
                check_shards(job.manifest, settings.weights.expected_shards, job.source.repo)
            check_room(entries, job.seen.facts, job.seen.room, wanted.reserve, taken)
        except SparkctlError as error:
            wrong.append(error)
        taken += sum(one.size for one in entries)
    raise_all(tuple(wrong))


@dataclass(slots=True)
class _Fetch:
    """One folder: bring what is missing, read all that nobody has proven, bring once more what came wrong."""

    session: Session
    hub: Hub
    stop: Event
    emit: Emit
    wanted: Wanted
    pace: Pace

    def run(self, job: _Job) -> FetchedFolder:
        began, fetched, first = self.pace.clock(), 0, len(job.missing)
        if not self.wanted.offline:
            self._note(job)
        node = self.session.head.name
        for _ in range(ROUNDS):
            entries = to_bring(job.manifest, job.missing)
            fetched += self._bring(job, entries) if entries else 0
            seen = self.session.on(
                node,
                lambda one: look(one, job.place, job.manifest, self.emit, Proof(threads=self.wanted.threads), STAGE),
            )
            job.missing = gaps(job.manifest, seen.facts)
            if not job.missing:
                size, files = job.manifest.size, len(job.manifest.files)
                spent = self.pace.clock() - began
                repo, revision = job.manifest.repo, job.manifest.revision
                return FetchedFolder(job.folder, repo, revision, files, size, fetched, files - first, spent)
            for one in job.missing:
                self.emit(Told(Severity.WARNING, f"{one.name}: {one.detail}", node))
        self._remove(job)
        raise StepFailed(
            f"{len(job.missing)} files came wrong, twice; they are removed",
            where=f"{node}:{job.folder}",
            evidence=[f"{one.name}: {one.detail}" for one in job.missing],
            fix="ask the publisher, or try another revision",
        )

    def _bring(self, job: _Job, entries: tuple[Entry, ...]) -> int:
        head, watchful = self.session.settings.head, Watchful(self.wanted.stall, self.wanted.xet)
        many = self.session.settings.weights.hf_workers
        facts = job.seen.facts
        return Transfers(
            self.hub, self.stop, self.emit, head.name, job.folder, job.manifest, entries, facts, watchful, many
        ).run()

    def _note(self, job: _Job) -> None:
        """What the folder must hold stands in it before the first file does; where it is, in the node's state."""
        head = self.session.head
        head.write(recorded(job.folder), rendered(job.manifest), 0o644)
        note = {"path": job.folder, "repo": job.manifest.repo, "revision": job.manifest.revision}
        where = f"{registry(self.session.settings.head.state_dir)}/{note_name(job.folder)}"
        head.write(where, json.dumps(note).encode() + b"\n", 0o600)

    def _remove(self, job: _Job) -> None:
        paths = tuple(str(PurePosixPath(job.folder) / one.name) for one in job.missing)
        self.session.head.run(Command(("rm", "-f", "--", *paths)))
