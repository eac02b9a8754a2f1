"""Bring an image to a worker through a registry on the head's loopback: pushed here, pulled there through an ssh."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic
from typing import Any

from cluster.app.agents import agent
from cluster.errors import SparkctlError, StepFailed, Unreachable
from cluster.model.containers import ImageSeen
from cluster.model.events import Emit, Progress
from cluster.model.images import ImageShipped
from cluster.model.settings import Settings
from cluster.model.table import Secret
from cluster.model.units import Bytes, format_bytes
from cluster.node.base import Node
from cluster.node.engine import Engine
from cluster.plan.image import image_key
from cluster.plan.image_room import RESERVE

STAGE = "image"
LONGEST = 6 * 3600.0
PATIENCE = 60.0
NEWS = 2.0  # an engine may notice that a way broke before we hear of it
HOW = "registry"
SHORT = 12  # characters of a layer's digest by which an engine speaks of it


@dataclass(frozen=True, slots=True)
class Doors:
    """One registry by its two addresses: `here` on the head, `there` on the worker; `free` on its disk, if it is ours.

    knows  whether it has had this repository, so that only changed layers come to it
    lost   set once nobody holds it any more
    """

    here: str
    there: str
    free: int | None
    knows: bool
    lost: Event


class NoRegistry(StepFailed):
    """There is none to be had here: another way must do."""


def login(settings: Settings) -> tuple[str, Secret] | None:
    """Only for the registry that the token is of."""
    image = settings.image
    if image.ghcr_token is None or not image.name.startswith("ghcr.io/"):
        return None
    return image.ghcr_user or "token", image.ghcr_token  # it reads the token alone


def repository(name: str) -> str:
    """`ghcr.io/a/b:1` is kept as `sparkctl/ghcr.io/a/b`."""
    path = name.partition("@")[0]
    head, slash, last = path.rpartition("/")
    return "sparkctl/" + re.sub(r"[^a-z0-9._/-]", "-", head.lower() + slash + last.partition(":")[0].lower())


@contextmanager
def registry(head: Node, reach: tuple[str, ...], place: tuple[int, str], name: str) -> Iterator[Doors]:
    """The registry for as long as we are in here, at this port, in this folder if we start it. Raises NoRegistry."""
    heard, stop, lost = Event(), Event(), Event()
    answer: dict[str, Any] = {}
    port, folder = place
    want = {"port": port, "folder": folder, "repository": repository(name), "reach": list(reach)}

    def hear(line: str) -> None:
        answer.update(json.loads(line))
        heard.set()

    def hold() -> None:
        try:
            result = head.stream(agent("registry", want, LONGEST), hear, stop)
            answer.setdefault("error", "; ".join(result.err_text.strip().splitlines()[-2:]))
        except SparkctlError as error:
            answer.setdefault("error", error.what)
        lost.set()
        heard.set()

    thread = Thread(target=hold, name="registry", daemon=True)
    thread.start()
    try:
        if not heard.wait(PATIENCE) or "here" not in answer:
            raise NoRegistry(answer.get("error") or "it did not answer", where=head.name)
        yield Doors(answer["here"], answer["there"], answer["free"], answer["knows"], lost)
    finally:
        stop.set()
        thread.join(10)


def push(engine: Engine, where: str, image: ImageSeen, name: str, doors: Doors, missing: Bytes, emit: Emit) -> str:
    """The digest by which the worker can ask for it. Layers that the registry has are not sent to it again."""
    need = Bytes((missing if doors.knows else image.size) + RESERVE)
    if doors.free is not None and doors.free < need:
        free = format_bytes(doors.free)
        raise NoRegistry(f"{format_bytes(need)} needed for the registry, {free} free", where=where)
    target, tag = f"{doors.here}/{repository(name)}", image_key(image).replace(":", "-")
    engine.tag(image.id, target, tag)
    try:
        digest = engine.push(target, tag, _Shown(emit, where, "bringing layers to the registry").show)
    except StepFailed as error:
        raise NoRegistry(error.what, where=where, evidence=error.evidence) from error
    finally:
        engine.remove_image(f"{target}:{tag}")  # the name alone: the image has others
    if not digest:
        raise NoRegistry("the engine told no digest of what it pushed", where=where)
    return digest


def pull(
    engine: Engine,
    where: str,
    doors: Doors,
    name: str,
    digest: str,
    tags: tuple[str, ...],
    sizes: Mapping[str, int],
    emit: Emit,
) -> ImageShipped:
    """By digest, so that whoever else may reach the loopback port cannot put another image there.

    `sizes` of layers by their digests count for those of which the engine tells none.
    """
    reference = f"{doors.there}/{repository(name)}@{digest}"
    shown, began = _Shown(emit, where, "pulling layers from the head", sizes), monotonic()
    try:
        engine.pull(reference, shown.show, goes_on=lambda: not doors.lost.is_set())
    except StepFailed as error:
        if doors.lost.wait(NEWS):
            raise Unreachable("the way to the head's registry broke", where=where, evidence=error.evidence) from error
        raise
    for tag in tags:
        engine.tag(reference, *_split(tag))
    if tags:
        engine.remove_image(reference)
    return ImageShipped(where, HOW, shown.bytes, 0, shown.layers, monotonic() - began)


def _split(tag: str) -> tuple[str, str]:
    head, _, last = tag.rpartition(":")
    return (head, last) if head and "/" not in last else (tag, "latest")


class _Shown:
    """Progress of an engine's own transfer, layer by layer, as it tells of it: what is packed counts packed."""

    def __init__(self, emit: Emit, where: str, text: str, sizes: Mapping[str, int] | None = None) -> None:
        self._emit, self._where, self._text = emit, where, text
        self._sizes = {digest.partition(":")[2][:SHORT]: size for digest, size in (sizes or {}).items()}
        self._seen: dict[str, tuple[int, int]] = {}
        self._began = monotonic()

    def show(self, layer: str, done: int, total: int) -> None:
        if not total:
            done = total = self._sizes.get(layer, 0)
        self._seen[layer] = (min(max(done, self._seen.get(layer, (0, 0))[0]), total), total)
        at, whole = (sum(column) for column in zip(*self._seen.values(), strict=True))
        if not whole:
            return
        rate = at / max(monotonic() - self._began, 0.001)
        self._emit(Progress(STAGE, self._where, at, whole, "bytes", rate=rate, text=self._text))

    @property
    def bytes(self) -> int:
        return sum(total for _, total in self._seen.values())

    @property
    def layers(self) -> int:
        return len(self._seen)
