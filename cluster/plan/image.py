"""What to do about the image before a start: build, pull, ship or refuse; and whether two images are the same."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import PurePosixPath

from cluster.model.containers import LABEL, ImageSeen

STAMP_LABEL = f"{LABEL}recipe.stamp"
_JUNK_PARTS = frozenset({"__pycache__", ".git", ".DS_Store"})
_JUNK_ENDINGS = (".pyc", ".so", ".o", "~", ".swp", ".orig", ".rej")
_OF_ITS_OWNER = 0o100


@dataclass(frozen=True, slots=True)
class RecipeFile:
    """One file of an image's recipe; `digest` is the sha256 of its content in hex."""

    path: str
    mode: int
    digest: str


def belongs(path: str) -> bool:
    """Whether a file counts: what compilers, editors and version control leave lying about does not."""
    pure = PurePosixPath(path)
    return not (_JUNK_PARTS & set(pure.parts)) and not pure.name.endswith(_JUNK_ENDINGS)


def stamp(files: Iterable[RecipeFile], arguments: Iterable[str] = ()) -> str:
    """Content hash of all that goes into the image. Of a mode only the x bit counts: the rest is the umask's."""
    counted = sorted((one for one in files if belongs(one.path)), key=lambda one: one.path.encode())
    lines = (f"{one.digest} {'x' if one.mode & _OF_ITS_OWNER else '-'} {one.path}\n" for one in counted)
    told = (f"argument {one}\n" for one in sorted(arguments))
    return sha256("".join((*lines, *told)).encode()).hexdigest()


class Held(StrEnum):
    """The image on the head, against the recipe."""

    MISSING = "missing"
    STALE = "stale"
    RIGHT = "right"


def held(image: ImageSeen | None, wanted_stamp: str) -> Held:
    """Without a recipe any image of that name is right."""
    if image is None:
        return Held.MISSING
    label = dict(image.labels).get(STAMP_LABEL, "")
    return Held.RIGHT if label == wanted_stamp or not wanted_stamp else Held.STALE


class Tried(StrEnum):
    NOT_YET = "not yet"
    DONE = "done"
    FAILED = "failed"
    NO_ROOM = "no room"  # a disk is full: what needs as much room there need not be tried


class Act(StrEnum):
    PULL = "pull"
    BUILD = "build"
    PULL_ON_WORKER = "pull on worker"
    SHIP = "ship"
    READY = "ready"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class ImageWish:
    """What the user asked for; the skips are promises never to do it."""

    build: bool = False
    pull: bool = False
    skip_build: bool = False
    skip_pull: bool = False
    skip_ship: bool = False
    in_registry: bool = True
    has_recipe: bool = False


@dataclass(frozen=True, slots=True)
class ImageState:
    """What is known by now."""

    head: Held
    worker_equal: bool = False
    pulled: Tried = Tried.NOT_YET
    built: Tried = Tried.NOT_YET
    worker_pulled: Tried = Tried.NOT_YET
    shipped: Tried = Tried.NOT_YET


@dataclass(frozen=True, slots=True)
class Choice:
    """The next act and why. Where `warning` is not empty it is said once, and the act goes on all the same."""

    act: Act
    why: str
    warning: str = ""


def decide(wish: ImageWish, state: ImageState) -> Choice:
    """The next thing to do; asked again with what came of it, until it says READY or REFUSE."""
    may_pull = wish.in_registry and (wish.pull or not wish.skip_pull)
    return _for_head(wish, state, may_pull) or _for_worker(wish, state, may_pull)


def _for_head(wish: ImageWish, state: ImageState, may_pull: bool) -> Choice | None:
    """None when the head's image is the one to go on with. A build that failed ends it: another image is not meant."""
    if Tried.NO_ROOM in (state.pulled, state.built):
        return Choice(Act.REFUSE, "there is no room for the image on the head")
    if state.built is Tried.FAILED:
        return Choice(Act.REFUSE, "the build failed")
    if wish.build:
        if not wish.has_recipe:
            return Choice(Act.REFUSE, "there is no recipe to build it from")
        return Choice(Act.BUILD, "--build") if state.built is Tried.NOT_YET else None
    wants_pull = state.head is not Held.RIGHT or wish.pull
    if may_pull and wants_pull and state.pulled is Tried.NOT_YET:
        return Choice(Act.PULL, "--pull" if wish.pull else f"the image is {state.head} on the head")
    may_build = wish.has_recipe and not wish.skip_build
    if state.head is not Held.RIGHT and may_build and state.built is Tried.NOT_YET:
        return Choice(Act.BUILD, f"the image is {state.head} on the head")
    if state.head is Held.MISSING:
        return Choice(Act.REFUSE, _why_missing(wish, state, may_pull))
    return None


def _why_missing(wish: ImageWish, state: ImageState, may_pull: bool) -> str:
    pull = (
        "the pull failed"
        if state.pulled is Tried.FAILED
        else "--no-pull forbids to pull it"
        if not may_pull and wish.in_registry
        else "its name is of no registry"
        if not wish.in_registry
        else "the pull brought none"
    )
    build = (
        "--no-build forbids to build it"
        if wish.skip_build and wish.has_recipe
        else "there is no recipe to build it from"
        if not wish.has_recipe
        else "the build made none"
    )
    return f"no image on the head: {pull}, and {build}"


def _for_worker(wish: ImageWish, state: ImageState, may_pull: bool) -> Choice:
    warning = "the image does not have the recipe's stamp" if state.head is Held.STALE else ""
    if state.worker_equal:
        return Choice(Act.READY, "one image on all nodes", warning)
    if wish.skip_ship:
        return Choice(Act.REFUSE, "the worker's image differs, and --no-ship forbids to send it", warning)
    fetched = may_pull and not wish.build and state.built is not Tried.DONE
    if fetched and state.worker_pulled is Tried.NOT_YET and state.pulled is Tried.DONE:
        return Choice(Act.PULL_ON_WORKER, "the registry has it", warning)
    if state.shipped is Tried.NO_ROOM:
        return Choice(Act.REFUSE, "the worker has no room for the image", warning)
    if state.shipped is Tried.FAILED:
        return Choice(Act.REFUSE, "the image could not be sent to the worker", warning)
    if state.shipped is Tried.DONE:
        return Choice(Act.REFUSE, "the worker's image still differs after it was sent", warning)
    return Choice(Act.SHIP, "the worker's image differs or is missing", warning)


def same_image(one: ImageSeen, other: ImageSeen) -> bool:
    """Ids match, a registry digest is shared, or the layer lists are equal; never across architectures."""
    if (one.system, one.architecture) != (other.system, other.architecture):
        return False
    if one.id == other.id or set(_digests(one)) & set(_digests(other)):
        return True
    return bool(one.layers) and one.layers == other.layers


def _digests(image: ImageSeen) -> tuple[str, ...]:
    return tuple(digest.partition("@")[2] for digest in image.digests)


def image_key(image: ImageSeen) -> str:
    """A short name of the content, the same on every store."""
    return "layers:" + sha256(",".join(image.layers).encode()).hexdigest()[:16]


def missing_layers(layers: tuple[str, ...], there: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Layers to send: a store knows one by its whole chain from the base, not by its own digest."""
    known = max((_common(layers, other) for other in there), default=0)
    return layers[known:]


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
