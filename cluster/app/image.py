"""The image's life: look, pull, build, send, verify, prune; what is done is decided by `plan.image`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath

from cluster.app.agents import agent
from cluster.app.build import build, read_recipe
from cluster.app.observe import told
from cluster.app.reach import reach
from cluster.app.registry import login
from cluster.app.session import Session
from cluster.app.ship import REGISTRY, STAGE, STAGED, Side, Way, is_partial, ship
from cluster.errors import Interrupted, Refused, SparkctlError, StepFailed
from cluster.model.containers import EngineSeen, ImageSeen, shipped_name
from cluster.model.events import Emit, Progress, Severity, StepStarted, Told
from cluster.model.images import ImageReport, ImageShipped, NodeImage
from cluster.model.settings import Settings
from cluster.node.base import Node
from cluster.node.engine import Engine
from cluster.node.failures import NoSpace
from cluster.plan.image import (
    STAMP_LABEL,
    Act,
    Held,
    ImageState,
    ImageWish,
    Tried,
    decide,
    held,
    image_key,
    same_image,
)


@dataclass(frozen=True, slots=True)
class Holding:
    """One node's engine and its image of that name; `broken` is why an image that it shows is none."""

    engine: EngineSeen
    image: ImageSeen | None
    broken: str = ""


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
    recipe = read_recipe(session) if wish.has_recipe else None
    wanted = recipe.stamp if recipe else ""
    state, warned = ImageState(held(None, "")), ""
    shipped: list[ImageShipped] = []
    failed: SparkctlError | None = None
    while True:
        holdings = look(session)
        state = _state(settings, holdings, wanted, state)
        choice = decide(wish, state)
        if choice.warning and choice.warning != warned:
            warned = choice.warning
            emit(Told(Severity.WARNING, f"{settings.image.name}: {warned}", settings.head.name))
        match choice.act:
            case Act.READY:
                return _report("bring", settings, holdings, tuple(shipped))
            case Act.REFUSE:
                raise failed or Refused(choice.why, where=settings.image.name, evidence=_told_of(settings, holdings))
            case Act.PULL:
                tried, error = _try_to_pull(session, emit, settings.head.name, choice.why)
                state, failed = replace(state, pulled=tried), error if tried is Tried.NO_ROOM else None
            case Act.PULL_ON_WORKER:
                outcomes = [_try_to_pull(session, emit, one.name, choice.why)[0] for one in settings.workers]
                state = replace(state, worker_pulled=max(outcomes, key=list(Tried).index))
            case Act.BUILD:
                tried, failed = _attempt(partial(build, session, emit, recipe or read_recipe(session), choice.why))
                state = replace(state, built=tried)
            case Act.SHIP:
                tried, failed = _attempt(lambda: shipped.extend(send(session, emit, look(session))))
                state = replace(state, shipped=tried)


def _attempt(work: Callable[[], None]) -> tuple[Tried, SparkctlError | None]:
    """What came of it, for the decision that follows."""
    try:
        work()
    except Interrupted:
        raise
    except NoSpace as error:
        return Tried.NO_ROOM, error
    except SparkctlError as error:
        return Tried.FAILED, error
    return Tried.DONE, None


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
            return hold(engine, session.settings.image.name)

    return session.each(ask)


def hold(engine: Engine, name: str) -> Holding:
    """A load that failed leaves an image in containerd's store that inspecting accepts: there one is proved first."""
    seen, image = engine.seen(), engine.image(name)
    if image is None or not seen.containerd_store:
        return Holding(seen, image)
    try:
        engine.prove(image.id)
    except NoSpace:
        raise
    except StepFailed as error:
        return Holding(seen, None, f"the engine shows {name}, and cannot run it: {'; '.join(error.evidence)}")
    return Holding(seen, image)


@contextmanager
def engine_of(settings: Settings, node: Node) -> Iterator[Engine]:
    engine = Engine(node, settings.container.engine)
    try:
        yield engine
    finally:
        engine.close()


def _try_to_pull(session: Session, emit: Emit, name: str, why: str) -> tuple[Tried, SparkctlError | None]:
    """A registry that says no is not the end: there may be a recipe, or the head's image to send."""
    tried, error = _attempt(partial(pull, session, emit, name, why))
    if error is not None:
        emit(Told(Severity.WARNING, "; ".join((error.what, *error.evidence)), name))
    return tried, error


def pull(session: Session, emit: Emit, name: str, why: str) -> None:
    settings = session.settings
    reference = settings.image.name
    emit(StepStarted(STAGE, name, f"pull {reference}: {why}", f"docker pull {reference}"))
    layers: dict[str, tuple[int, int]] = {}

    def show(layer: str, done: int, total: int) -> None:
        layers[layer] = (done, total)
        at, whole = (sum(column) for column in zip(*layers.values(), strict=True))
        if whole:
            emit(Progress(STAGE, name, at, whole, "bytes", text="pulling layers"))

    def act(node: Node) -> None:
        with engine_of(settings, node) as engine:
            engine.pull(reference, show, login(settings))

    session.on(name, act)


def build_once(session: Session, emit: Emit, *, again: bool) -> str:
    """Build what the recipe says now; nothing when the head's image has its stamp. What was done, in a sentence."""
    recipe, head = read_recipe(session), session.settings.head.name
    if held(look(session)[head].image, recipe.stamp) is Held.RIGHT and not again:
        return f"{head} has the image of this recipe, stamp {recipe.stamp[:12]}: nothing was built"
    build(session, emit, recipe, "asked for")
    if held(look(session)[head].image, recipe.stamp) is not Held.RIGHT:
        raise StepFailed(
            "the build left no image with the recipe's stamp", where=head, fix="sparkctl image build --again"
        )
    return f"built from the recipe with the stamp {recipe.stamp[:12]}"


def against_recipe(session: Session) -> tuple[str, ...]:
    """Whether the head's image is what its recipe says now; nothing where there is no recipe."""
    if not session.settings.image.folder:
        return ()
    recipe, head = read_recipe(session), session.settings.head.name
    match held(look(session)[head].image, recipe.stamp):
        case Held.MISSING:
            return ()
        case Held.RIGHT:
            return (f"the image is the recipe's, stamp {recipe.stamp[:12]}",)
        case Held.STALE:
            return (f"the image on {head} does not have the recipe's stamp {recipe.stamp[:12]}: sparkctl image build",)


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
        settings.image.worker_ship_dir or STAGED,
        settings.image.ship_keep,
        settings.image.registry_port,
    )
    emit(StepStarted(STAGE, name, f"send {settings.image.name} from {settings.head.name}"))
    with engine_of(settings, session.head) as ours, engine_of(settings, worker) as theirs:
        head = Side(session.head, ours, from_engine, settings.container.engine)
        there = Side(worker, theirs, to_engine, settings.container.engine)
        tags = (shipped_name(settings.image.name),)
        return session.on(settings.head.name, lambda _: ship(head, there, image, tags, way, emit))


def prune(session: Session) -> dict[str, int]:
    """Remove what cut shipments left: images without a name that hold layers, and staged files. Bytes by node."""

    def clean(node: Node) -> int:
        freed = 0
        with engine_of(session.settings, node) as engine:
            for one in engine.images():
                if is_partial(one):
                    freed += one.size
                    engine.remove_image(one.id)
        folder = session.settings.image.worker_ship_dir or STAGED
        left = {"staging": str(PurePosixPath(folder)), "registry": REGISTRY}
        return freed + int(told(node, node.run(agent("unstage", left))))

    return session.each(clean)


def report_of(session: Session, action: str, holdings: dict[str, Holding], *notes: str) -> ImageReport:
    broken = (f"{name}: {one.broken}" for name, one in holdings.items() if one.broken)
    return replace(_report(action, session.settings, holdings, ()), notes=(*broken, *notes))


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
    return [
        f"{name}: {image_key(one.image) if one.image else one.broken or 'no image'}" for name, one in holdings.items()
    ]
