"""The image's life: look, pull, build, send, verify, prune; what is done is decided by `plan.image`."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from cluster.app.agents import agent
from cluster.app.observe import told
from cluster.app.reach import reach
from cluster.app.session import Session
from cluster.app.ship import STAGE, Side, Way, ship
from cluster.errors import Refused, SparkctlError, StepFailed
from cluster.model.containers import EngineSeen, ImageSeen
from cluster.model.events import Emit, Progress, Severity, StepStarted, Told
from cluster.model.images import ImageReport, ImageShipped, NodeImage
from cluster.model.settings import Settings
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.node.base import Node
from cluster.node.engine import Engine
from cluster.plan.image import (
    STAMP_LABEL,
    Act,
    ImageState,
    ImageWish,
    RecipeFile,
    Tried,
    decide,
    held,
    image_key,
    same_image,
    stamp,
)

BUILD_LIMIT = Seconds(4 * 3600)
PARTIAL = "sparkctl.partial"
STAGING = "~/.cache/sparkctl/blobs"


@dataclass(frozen=True, slots=True)
class Holding:
    """One node's engine and its image of that name."""

    engine: EngineSeen
    image: ImageSeen | None


def wish_of(settings: Settings) -> ImageWish:
    image = settings.image
    return ImageWish(
        build=image.build,
        pull=image.pull,
        skip_build=image.skip_build,
        skip_pull=image.skip_pull,
        skip_ship=image.skip_ship,
        in_registry="/" in image.name,
        has_recipe=bool(image.folder),
    )


def bring(session: Session, emit: Emit, wish: ImageWish) -> ImageReport:
    """Act until every node has the one image, or refuse. A second time there is nothing to do."""
    settings = session.settings
    wanted = recipe_stamp(session) if wish.has_recipe else ""
    holdings = look(session)
    state = _state(settings, holdings, wanted, ImageState(held(None, "")))
    shipped: tuple[ImageShipped, ...] = ()
    warned = ""
    while True:
        choice = decide(wish, state)
        if choice.warning and choice.warning != warned:
            warned = choice.warning
            emit(Told(Severity.WARNING, f"{settings.image.name}: {warned}", settings.head.name))
        match choice.act:
            case Act.READY:
                return _report("bring", settings, holdings, shipped)
            case Act.REFUSE:
                raise Refused(choice.why, where=settings.image.name, evidence=_told_of(settings, holdings))
            case Act.PULL:
                state = replace(state, pulled=_tried(emit, session, settings.head.name, choice.why))
            case Act.PULL_ON_WORKER:
                outcomes = [_tried(emit, session, one.name, choice.why) for one in settings.workers]
                state = replace(state, worker_pulled=max(outcomes, default=Tried.FAILED, key=str))
            case Act.BUILD:
                build(session, emit, wanted, choice.why)
                state = replace(state, built=Tried.DONE)
            case Act.SHIP:
                shipped = send(session, emit, holdings)
                state = replace(state, shipped=Tried.DONE)
        holdings = look(session)
        state = _state(settings, holdings, wanted, state)


def _state(settings: Settings, holdings: dict[str, Holding], wanted: str, before: ImageState) -> ImageState:
    head = holdings[settings.head.name].image
    equal = head is not None and all(_is_same(head, holdings[one.name].image) for one in settings.workers)
    return replace(before, head=held(head, wanted), worker_equal=equal)


def _is_same(head: ImageSeen, other: ImageSeen | None) -> bool:
    return other is not None and same_image(head, other)


def look(session: Session) -> dict[str, Holding]:
    """The image of that name on every node, side by side."""

    def ask(node: Node) -> Holding:
        with engine_of(session.settings, node) as engine:
            return Holding(engine.seen(), engine.image(session.settings.image.name))

    return session.each(ask)


@contextmanager
def engine_of(settings: Settings, node: Node) -> Iterator[Engine]:
    engine = Engine(node, settings.container.engine)
    try:
        yield engine
    finally:
        engine.close()


def recipe_stamp(session: Session) -> str:
    """Of the files of the recipe as they lie on the head now."""
    folder = session.settings.image.folder
    rows = json.loads(told(session.head, session.head.run(agent("recipe", folder, limit=120.0))))
    return stamp(RecipeFile(row["path"], row["mode"], row["digest"]) for row in rows)


def _tried(emit: Emit, session: Session, name: str, why: str) -> Tried:
    """A registry that says no is not the end: there may be a recipe, or the head's image to send."""
    try:
        pull(session, emit, name, why)
    except SparkctlError as error:
        emit(Told(Severity.WARNING, f"{error.what}: {'; '.join(error.evidence)}", name))
        return Tried.FAILED
    return Tried.DONE


def pull(session: Session, emit: Emit, name: str, why: str) -> None:
    settings = session.settings
    reference = settings.image.name
    emit(StepStarted(STAGE, name, f"pull {reference}: {why}", f"docker pull {reference}"))
    layers: dict[str, tuple[int, int]] = {}

    def show(layer: str, done: int, total: int) -> None:
        layers[layer] = (done, total)
        at, whole = (sum(column) for column in zip(*layers.values(), strict=True))
        emit(Progress(STAGE, name, at, whole, "bytes", text="pulling layers"))

    def act(node: Node) -> None:
        with engine_of(settings, node) as engine:
            engine.pull(reference, show)

    session.on(name, act)


def build(session: Session, emit: Emit, wanted: str, why: str) -> None:
    """On the head, through the engine's command line, which alone knows every kind of builder."""
    image, head = session.settings.image, session.head
    if not image.folder:
        raise Refused("there is no recipe to build", where=image.name, fix="set IMAGE_FOLDER to its folder on the head")
    words = ["docker", "-H", f"unix://{session.settings.container.engine}", "build", "--tag", image.name]
    words += ["--label", f"{STAMP_LABEL}={wanted}", "--build-arg", f"RECIPE_STAMP={wanted}"]
    words += ["--platform", image.platform] if image.platform else []
    command = Command(("sh", "-c", f'cd {_home(image.folder)} && exec "$@"', "sh", *words, "."), limit=BUILD_LIMIT)
    emit(StepStarted(STAGE, head.name, f"build {image.name}: {why}", shlex.join([*words, image.folder])))
    last: list[str] = []

    def show(line: str) -> None:
        last.append(line)
        del last[:-40]
        if line.startswith(("Step ", "#")):
            emit(Progress(STAGE, head.name, 0, None, "", text=line[:100]))

    result = session.on(head.name, lambda node: node.stream(command, show))
    if result.exit:
        lines = (*last, *result.err_text.splitlines())[-40:]
        raise StepFailed(f"the build ended with exit code {result.exit}", where=head.name, evidence=lines)


def _home(folder: str) -> str:
    """For a shell: `~/` stays the node's home, all else is quoted."""
    return f'"$HOME"/{shlex.quote(folder[2:])}' if folder.startswith("~/") else shlex.quote(folder)


def send(session: Session, emit: Emit, holdings: dict[str, Holding]) -> tuple[ImageShipped, ...]:
    """To every worker whose image is another one, one after the other: the head's disk feeds one as fast as two."""
    settings, head = session.settings, holdings[session.settings.head.name]
    if head.image is None:
        raise Refused(f"no image {settings.image.name} to send", where=settings.head.name, fix="sparkctl image pull")
    differing = [one for one in settings.workers if not _is_same(head.image, holdings[one.name].image)]
    return tuple(
        _send_one(session, emit, head.image, one.name, head.engine, holdings[one.name].engine) for one in differing
    )


def _send_one(
    session: Session, emit: Emit, image: ImageSeen, name: str, from_engine: EngineSeen, to_engine: EngineSeen
) -> ImageShipped:
    settings = session.settings
    worker = session.node(name)
    if from_engine.architecture != to_engine.architecture:
        raise Refused(
            f"the image is for {image.architecture}, and this node is {to_engine.architecture}",
            where=name,
            fix="build or pull an image for it there",
        )
    way = Way(
        reach(session, name, emit),
        settings.image.ship,
        settings.image.worker_ship_dir or STAGING,
        settings.image.ship_keep,
    )
    emit(StepStarted(STAGE, name, f"send {settings.image.name} from {settings.head.name}"))
    with engine_of(settings, session.head) as ours, engine_of(settings, worker) as theirs:
        head = Side(session.head, ours, from_engine, settings.container.engine)
        there = Side(worker, theirs, to_engine, settings.container.engine)
        tag = (settings.image.name,) if "@" not in settings.image.name else image.tags[:1]
        return session.on(settings.head.name, lambda _: ship(head, there, image, tag, way, emit))


def prune(session: Session) -> dict[str, int]:
    """Remove what cut shipments left: images without a name that hold layers, and staged files. Bytes by node."""

    def clean(node: Node) -> int:
        freed = 0
        with engine_of(session.settings, node) as engine:
            for one in engine.images():
                if dict(one.labels).get(PARTIAL) and not one.tags:
                    freed += one.size
                    engine.remove_image(one.id)
        folder = session.settings.image.worker_ship_dir or STAGING
        return freed + int(told(node, node.run(agent("unstage", str(PurePosixPath(folder))))))

    return session.each(clean)


def report_of(session: Session, action: str, holdings: dict[str, Holding], *notes: str) -> ImageReport:
    return replace(_report(action, session.settings, holdings, ()), notes=notes)


def _report(
    action: str, settings: Settings, holdings: dict[str, Holding], shipped: tuple[ImageShipped, ...]
) -> ImageReport:
    head = holdings[settings.head.name].image
    equal = head is not None and all(_is_same(head, one.image) for one in holdings.values())
    rows = tuple(_row(name, settings.image.name, one) for name, one in holdings.items())
    return ImageReport(action, settings.image.name, equal, rows, shipped)


def _row(node: str, name: str, one: Holding) -> NodeImage:
    store = f"{one.engine.store} (containerd)" if one.engine.containerd_store else one.engine.store
    if one.image is None:
        return NodeImage(node, name, "", engine=one.engine.version, store=store)
    image = one.image
    return NodeImage(
        node,
        name,
        image_key(image),
        image.id,
        len(image.layers),
        image.size,
        f"{image.system}/{image.architecture}",
        dict(image.labels).get(STAMP_LABEL, ""),
        one.engine.version,
        store,
    )


def _told_of(settings: Settings, holdings: dict[str, Holding]) -> list[str]:
    return [f"{name}: {image_key(one.image) if one.image else 'no image'}" for name, one in holdings.items()]
