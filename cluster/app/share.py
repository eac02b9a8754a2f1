"""`share`: make the weights readable on the workers, and prove it by content from where each rank will read them."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cluster.app import auto
from cluster.app.agents import program
from cluster.app.execute import Transaction
from cluster.app.lock import held
from cluster.app.observe import told
from cluster.app.pace import REAL, Pace
from cluster.app.session import OpenNode, Session
from cluster.app.stages import Stages
from cluster.errors import Refused, SettingsError, StepFailed
from cluster.model.checks import Finding
from cluster.model.events import Emit, Severity, Told
from cluster.model.kit import Sync
from cluster.model.settings import Settings
from cluster.model.share import SharedFolder, ShareReport
from cluster.model.steps import Command, NodeName, Plan
from cluster.model.units import Seconds
from cluster.node.base import Node
from cluster.plan.share import SAMPLES, Samples, parse_samples, unlike, want_of
from cluster.plan.share_checks import impossible, planned
from cluster.share.backends import BETWEEN, BY_NAME
from cluster.share.base import Folder, Reading, Share, Want, count, on_host, through

ROUNDS = 3  # an attach may need a second look, e.g. to mount what only then is exported
READ_LIMIT = Seconds(600.0)


def share(
    settings: Settings,
    open_one: OpenNode,
    emit: Emit,
    backend: Sync | None = None,
    *,
    detach: bool = False,
    pace: Pace = REAL,
) -> ShareReport:
    """Attached and proven, or an error that says why not. A second attach has nothing to do but to prove it."""
    stages, session = Stages(emit, pace.clock), Session(settings, open_one, emit)
    try:
        with stages.stage("connect", tuple(node.name for node in settings.nodes)):
            session.open().need_all()
        with held(session.head, settings, "share", emit):
            kind = chosen(session, emit, backend or settings.weights.sync, detach=detach)
            sharing = Sharing(session, emit, stages, kind, want_of(settings))
            return sharing.detach() if detach else sharing.attach()
    finally:
        session.close()


def chosen(session: Session, emit: Emit, backend: Sync, *, detach: bool = False, measure: bool = True) -> Sync:
    """The backend that will be used."""
    if backend is Sync.AUTO:
        return auto.chosen(session, want_of(session.settings), emit, detach=detach, measure=measure)
    if backend not in BY_NAME:
        known = ", ".join(str(one) for one in BY_NAME)
        raise SettingsError(f"there is no backend {backend}", fix=f"WEIGHT_SYNC can be {known}")
    return backend


def prospect(session: Session, emit: Emit) -> Finding:
    """What an attach would have to do, or why it could not. Changes nothing."""
    settings = session.settings
    try:
        kind = chosen(session, emit, settings.weights.sync, measure=False)
        sharing = Sharing(session, emit, Stages(emit), kind, want_of(settings))
        return planned(settings, sharing.backend.attach(sharing.want, sharing.look()))
    except (Refused, SettingsError) as error:
        return impossible(error)


@dataclass
class Sharing:
    """One backend on an open session whose lock is held."""

    session: Session
    emit: Emit
    stages: Stages
    kind: Sync
    want: Want

    def __post_init__(self) -> None:
        self.backend: Share[Any] = BY_NAME[self.kind](program)
        if self.kind in BETWEEN and not self.want.ways:
            self.want = auto.ways_of(self.session, self.want, self.emit, self.kind)

    def attach(self) -> ShareReport:
        with self.stages.stage("share"):
            steps, seen = self._carry_out("attach")
        with self.stages.stage("prove"):
            folders = self.prove(seen)
        notes = self.backend.notes(self.want, seen)
        return ShareReport(self.want.deployment, str(self.kind), "attach", steps, folders, notes)

    def detach(self) -> ShareReport:
        with self.stages.stage("detach"):
            steps, _ = self._carry_out("detach")
        folders = tuple(
            SharedFolder(folder.what, node.name, folder.targets[node.name], folder.source, "no longer shared")
            for node in self.want.workers
            for folder in self.want.folders
        )
        return ShareReport(self.want.deployment, str(self.kind), "detach", steps, folders)

    def look(self) -> dict[NodeName, Any]:
        return auto.looked(self.session, self.backend, self.want)

    def _carry_out(self, what: str) -> tuple[int, Mapping[NodeName, Any]]:
        """Plan from fresh facts until nothing is left to do: that is what proves that the steps did it."""
        planned, done = (self.backend.attach if what == "attach" else self.backend.detach), 0
        seen = self.look()
        plan: Plan = planned(self.want, seen)
        for _ in range(ROUNDS):
            if plan.is_empty:
                return done, seen
            transaction = Transaction(self.session, self.emit)
            for stage in plan.stages:
                transaction.run(stage)
            done += count(plan)
            seen = self.look()
            plan = planned(self.want, seen)
        if plan.is_empty:
            return done, seen
        left = [f"{step.node}: {step.why}" for stage in plan.stages for step in stage.steps]
        raise StepFailed(f"the {what} did what it could, and is not done", evidence=left)

    def prove(self, seen: Mapping[NodeName, Any]) -> tuple[SharedFolder, ...]:
        """The same random places of every file, read on the head and where each rank reads them."""
        seed, found = secrets.token_hex(8), []
        for folder in self.want.folders:
            readings = {node.name: self._reading(folder, node.name) for node in self.want.workers}
            head = self.want.head.name
            samples = self.session.each(
                lambda node, folder=folder, readings=readings: self._samples(  # type: ignore[misc]
                    node, readings.get(node.name) or Reading(folder.source), seed
                )
            )
            if not samples[head].files:
                raise Refused("the head has no weights to share", where=f"{head}:{folder.source}", fix="sparkctl fetch")
            found += [
                self._judged(folder, node, reading, samples[head], samples[node], seen)
                for node, reading in readings.items()
            ]
            self._prove_head_inside(folder, samples[head], seed)
        return tuple(found)

    def _prove_head_inside(self, folder: Folder, samples: Samples, seed: str) -> None:
        """The head's own rank reads in a container too, where links may lead nowhere."""
        head = self.want.head.name
        if not self.want.in_containers or not self._has_image(head):
            return
        reading = on_host(self.want, folder, head)
        inside = self.session.on(head, lambda node: self._samples(node, reading, seed))
        _must_be_alike(folder, head, reading, samples, inside)

    def _judged(
        self,
        folder: Folder,
        node: NodeName,
        reading: Reading,
        head: Samples,
        there: Samples,
        seen: Mapping[NodeName, Any],
    ) -> SharedFolder:
        _must_be_alike(folder, node, reading, head, there)
        return SharedFolder(
            folder.what,
            node,
            reading.path,
            folder.source,
            self.backend.how(self.want, folder, node, seen, there.mount),
            len(head.files),
            sum(one.size for one in head.files.values()),
            sum(one.read for one in there.files.values()),
        )

    def _reading(self, folder: Folder, node: NodeName) -> Reading:
        reading = self.backend.reading(self.want, folder, node)
        if not reading.mounts or self._has_image(node):
            return reading
        (first, *_) = reading.mounts
        if "/" not in first.source:
            raise Refused(
                "only a container can read the volume, and its image is not there yet",
                where=node,
                evidence=(self.want.image,),
                fix="sparkctl image ship, then share again; start does both",
            )
        self.emit(Told(Severity.NOTE, f"read on the node itself: image {self.want.image} is not there yet", node))
        return Reading(folder.targets[node])

    def _has_image(self, name: NodeName) -> bool:
        from cluster.node.engine import Engine  # the SDK takes half a second to import

        engine = Engine(self.session.node(name), self.want.engine)
        try:
            return engine.image(self.want.image) is not None
        finally:
            engine.close()

    def _samples(self, node: Node, reading: Reading, seed: str) -> Samples:
        asked = {"folder": reading.path, "seed": seed, "samples": SAMPLES}
        argv = ("python3", "-IS", "-", json.dumps(asked, separators=(",", ":")))
        command = through(
            _at_home(node, reading),
            self.want,
            Command(argv, stdin=program("touch", "links", "sample"), limit=READ_LIMIT),
        )
        return parse_samples(told(node, node.run(command)), f"{node.name}:{reading.path}")


def _at_home(node: Node, reading: Reading) -> Reading:
    """An engine knows no home."""
    if not any(one.source.startswith("~/") for one in reading.mounts):
        return reading
    home = told(node, node.run(Command(("sh", "-c", 'printf %s "$HOME"'))))
    mounts = tuple(replace(one, source=f"{home}{one.source.removeprefix('~')}") if one.source.startswith("~/") else one
                   for one in reading.mounts)  # fmt: skip
    return replace(reading, mounts=mounts)


def _must_be_alike(folder: Folder, node: NodeName, reading: Reading, head: Samples, there: Samples) -> None:
    wrong = unlike(head.files, there.files)
    if wrong:
        more = [f"and {len(wrong) - 8} more"] if len(wrong) > 8 else []
        raise Refused(
            f"{folder.what} is not there as the head has it: {len(wrong)} of {len(head.files)} files differ",
            where=f"{node}:{reading.path}",
            evidence=[*wrong[:8], *more],
            fix="sparkctl verify names what is wrong on which node",
        )
