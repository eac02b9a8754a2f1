"""Send the head's image to one worker: only the layers it lacks, over ssh between the nodes, proved afterwards."""

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from cluster.app.agents import agent, source
from cluster.app.observe import told
from cluster.app.registry import NoRegistry, pull, push, registry
from cluster.app.ship_said import NotTaken, Said, placed
from cluster.errors import Refused, SparkctlError, StepFailed
from cluster.model.bundle import bundle
from cluster.model.containers import EngineSeen, ImageSeen
from cluster.model.events import Bound, Emit, Progress, Severity, Told
from cluster.model.images import ImageShipped
from cluster.model.kit import Ship
from cluster.model.steps import Command
from cluster.model.units import Bytes, Seconds
from cluster.node.base import Node
from cluster.node.engine import Engine
from cluster.plan.image import missing_layers
from cluster.plan.image_room import Disk, Need, choose_way, platform_words, unpacked_size

LONGEST = Seconds(6 * 3600)
STAGE = "image"
PARTIAL = "sparkctl.partial"
STAGED = "~/.cache/sparkctl/blobs"
REGISTRY = "~/.cache/sparkctl/registry"
GZIP_MEDIA = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True, slots=True)
class Side:
    """A node with its engine; `socket` is the engine's path there."""

    node: Node
    engine: Engine
    seen: EngineSeen
    socket: str

    @property
    def host(self) -> str:
        return f"unix://{self.socket}"


@dataclass(frozen=True, slots=True)
class Way:
    """How to send: `reach` are the words that run a command on the worker from the head; none when it is here."""

    reach: tuple[str, ...]
    ship: Ship = Ship.AUTO
    staging: str = STAGED
    keep: bool = False
    port: int = 5055
    registry: str = REGISTRY


def ship(head: Side, worker: Side, image: ImageSeen, tags: tuple[str, ...], way: Way, emit: Emit) -> ImageShipped:
    """The worker has the image afterwards, or an error says why not and nothing half is left."""
    there = worker.engine.images()
    missing = missing_layers(image.layers, (one.layers for one in there))
    request = _request(head, worker, image, tags, missing)
    done = _prove(worker, image, tags, _bring(head, worker, image, request, way, emit))
    for one in there:
        if is_partial(one) and one.layers == image.layers[: len(one.layers)]:
            worker.engine.remove_image(one.id)  # a cut shipment left it; its layers are the whole image's now
    return done


def is_partial(image: ImageSeen) -> bool:
    """An image that only holds the layers that a shipment has brought so far."""
    return PARTIAL in dict(image.labels) and not image.tags


def _bring(head: Side, worker: Side, image: ImageSeen, request: dict[str, Any], way: Way, emit: Emit) -> ImageShipped:
    """By the way that was asked for, else by the next that can."""
    if way.ship is Ship.REGISTRY:
        try:
            return _by_registry(head, worker, image, request, way, emit)
        except NoRegistry as error:
            words = "; ".join([error.what, *error.evidence])
            emit(Told(Severity.NOTE, f"not by a registry ({words}); sending the missing layers instead", error.where))
            way = replace(way, ship=Ship.AUTO)
    try:
        described = _described(head, request)
    except StepFailed as error:
        note = f"cannot read the engine's store ({'; '.join(error.evidence)}); exporting the whole image instead"
        emit(Told(Severity.NOTE, note, head.node.name))
        return _full(head, worker, image, request, way, emit)
    there = _blobs(worker, [one["digest"] for one in described["layers"]])
    sent = [one for one in described["layers"] if one["digest"] not in there]
    request |= {"skip": there} | _staged(worker, way, sent)
    try:
        done = _send(head, worker, request, way, emit)
    except NotTaken as error:
        if not worker.seen.containerd_store:
            raise
        name = request["tags"][0] if request["tags"] else image.id
        worker.engine.remove_image(name)  # it would pass for an image, and cannot run
        note = f"the layers alone did not do ({error.what}); sending the whole image"
        emit(Told(Severity.NOTE, note, head.node.name))
        return _full(head, worker, image, request, way, emit)
    return replace(done, layers=len(sent))


def _request(
    head: Side, worker: Side, image: ImageSeen, tags: tuple[str, ...], missing: tuple[str, ...]
) -> dict[str, Any]:
    """What the program on the head is asked. A containerd store knows blobs, not chains: it is offered all of them."""
    return {
        "engine": head.host,
        "to": worker.host,
        "to_containerd": worker.seen.containerd_store,
        "roots": list(head.seen.keeps or (head.seen.root,)),
        "driver": head.seen.store,
        "containerd": head.seen.containerd_store,
        "id": image.id,
        "architecture": image.architecture,
        "first": 0 if worker.seen.containerd_store else len(image.layers) - len(missing),
        "skip": [],
        "media": GZIP_MEDIA,
        "tags": list(tags),
        "platform": _platform(worker, image),
        "save_platform": _platform(head, image),
        "size": image.size,
        "reader": base64.b64encode(bundle(map(source, ("layers", "read_layers")))).decode(),
    }


def _platform(side: Side, image: ImageSeen) -> list[str]:
    client = side.node.run(Command(("docker", "--version"))).text
    return list(platform_words(side.seen.version, client, image.system, image.architecture))


def _blobs(worker: Side, digests: list[str]) -> list[str]:
    """What a containerd store has already, by the names that it gives its blobs."""
    if not worker.seen.containerd_store:
        return []
    wanted = {"roots": worker.seen.keeps, "digests": digests}
    found: list[str] = json.loads(told(worker.node, worker.node.run(agent("blobs", wanted))))
    return found


def _staged(worker: Side, way: Way, layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Room on the worker's disks, seen before a byte is sent."""
    need = _room(worker, way.ship, *_sizes(layers), way.staging)
    return {"stage": need.way is Ship.RSYNC, "staging": way.staging, "keep": way.keep}


def _sizes(layers: list[dict[str, Any]]) -> tuple[Bytes, Bytes]:
    """As they are sent, and unpacked."""
    kept = [(one["media"], Bytes(one["size"])) for one in layers]
    return Bytes(sum(size for _, size in kept)), unpacked_size(kept)


def _room(side: Side, ship: Ship, sent: Bytes, unpacked: Bytes, staging: str = "/") -> Need:
    """The way that fits on the node's disks, or a refusal with the numbers."""
    if side.seen.containerd_store:
        unpacked = Bytes(unpacked + sent)  # it keeps both
    stores = side.seen.keeps or (side.seen.root,)
    rows = json.loads(told(side.node, side.node.run(agent("room", [stores, [staging]]))))
    store, beside = (Disk(str(row["mount"]), Bytes(row["available"]), row["inodes"]) for row in rows)
    if rows[0]["device"] == rows[1]["device"]:
        beside = replace(beside, mount=store.mount)
    need = choose_way(ship, sent, unpacked, Bytes(0), store, beside)
    if not need.fits:
        raise Refused(
            f"no room for the image: {need.sentence}",
            where=side.node.name,
            fix=f"on {side.node.name}: docker system df, then docker image prune; or sparkctl image prune",
        )
    return need


def _by_registry(
    head: Side, worker: Side, image: ImageSeen, request: dict[str, Any], way: Way, emit: Emit
) -> ImageShipped:
    """Raises NoRegistry where another way must do."""
    tags = tuple(request["tags"])
    name = tags[0] if tags else image.id
    layers, need = [], (image.size, image.size)
    with suppress(StepFailed):  # a store that cannot be read: then as much as the whole image
        layers = _described(head, request)["layers"]
        need = _sizes(layers)
    _room(worker, Ship.REGISTRY, *need)
    with registry(head.node, way.reach, (way.port, way.registry), name) as doors:
        digest = push(head.engine, head.node.name, image, name, doors, need[0], emit)
        sizes = {one["digest"]: one["size"] for one in layers}
        return pull(worker.engine, worker.node.name, doors, name, digest, tags, sizes, emit)


def _described(head: Side, request: dict[str, Any]) -> dict[str, Any]:
    return _talk(head, {**request, "do": "describe"}, lambda said: None)


def _send(head: Side, worker: Side, request: dict[str, Any], way: Way, emit: Emit) -> ImageShipped:
    program = source("receive")
    path = f".cache/sparkctl/receive-{sha256(program).hexdigest()[:12]}.py"
    worker.node.write(f"~/{path}", program, 0o600)
    words = [*way.reach, "python3", "-IS", path] if way.reach else ["sh", "-c", f'exec python3 -IS "$HOME/{path}"']
    return _carried(head, worker, {**request, "do": "send", "receiver": words}, emit, Bound.EXACT)


def _full(head: Side, worker: Side, image: ImageSeen, request: dict[str, Any], way: Way, emit: Emit) -> ImageShipped:
    """The last way. An engine of the older kind puts a whole archive on its disk before it exports or loads it."""
    for side in (head, worker):
        if not side.seen.containerd_store or side is worker:
            _room(side, Ship.STREAM if side is head else Ship.REGISTRY, image.size, image.size)
    words = [*way.reach, "docker", "-H", worker.host, "load", *request["platform"]]
    return _carried(head, worker, {**request, "do": "full", "receiver": words}, emit, Bound.UPPER)


def _carried(head: Side, worker: Side, request: dict[str, Any], emit: Emit, bound: Bound) -> ImageShipped:
    seconds = 0.0

    def show(said: dict[str, Any]) -> None:
        nonlocal seconds
        if "at" not in said:
            return
        rate = (said["at"] - said.get("before", 0)) / said["seconds"] if said["seconds"] else None
        seconds = said["seconds"]
        total = max(said["total"], said["at"])  # headers between layers come on top of their sizes
        emit(Progress(STAGE, worker.node.name, said["at"], total, "bytes", bound, rate, text="sending layers"))

    try:
        done = _talk(head, request, show)
    except SparkctlError as error:
        raise placed(error, head.node.name, worker.node.name) from error
    return ImageShipped(worker.node.name, done["how"], done["sent"], done["before"], 0, seconds)


def _talk(head: Side, request: dict[str, Any], on_said: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run the program on the head to its last word."""
    last: dict[str, Any] = {}

    def hear(line: str) -> None:
        nonlocal last
        said = json.loads(line)
        if "done" in said or "error" in said or "layers" in said:
            last = said
        else:
            on_said(said)

    argv = ("python3", "-IS", "-", json.dumps(request))
    program = bundle(map(source, ("layers", "ship")))
    result = head.node.stream(Command(argv, stdin=program, limit=LONGEST), hear)
    if last and "error" not in last:
        return last
    words = last.get("words") or result.err_text.strip().splitlines()[-5:]
    failed = Said("the image could not be sent", where=head.node.name, evidence=words)
    failed.kind = last.get("error", "")
    raise failed


def _prove(worker: Side, image: ImageSeen, tags: tuple[str, ...], done: ImageShipped) -> ImageShipped:
    """Inspecting is no proof: its layers are compared, and a container of it is created."""
    name = tags[0] if tags else image.id
    seen = worker.engine.image(name)
    if seen is None or seen.layers != image.layers:
        layers = "no image" if seen is None else f"{len(seen.layers)} layers"
        raise StepFailed(
            "the image is not the head's after it was sent",
            where=worker.node.name,
            evidence=[f"{name}: {layers}, {len(image.layers)} expected"],
        )
    try:
        worker.engine.prove(seen.id)
    except SparkctlError:
        worker.engine.remove_image(name)
        raise
    return done
