"""What each node gives its rank's container, and whether all ranks would run the same image."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cluster.model.containers import LABEL, Box, ContainerSeen, EngineSeen, ImageSeen, Mount, with_targets
from cluster.model.events import Finding, Severity
from cluster.model.nodes import NodeSettings
from cluster.model.settings import Settings
from cluster.plan.engram import inside, needs_proof, source_folder
from cluster.plan.image import same_image
from cluster.plan.share import volume_of

CACHES = (
    ("cache", "/root/.cache/vllm"),
    ("triton_cache", "/root/.triton/cache"),
    ("tilelang_cache", "/root/.tilelang/cache"),
)
# Named, for with the engine's own hook alone a daemon-reload of the host takes them from a running rank.
NVIDIA = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
RDMA = "/dev/infiniband"
LIVING = ("running", "paused", "restarting")


@dataclass(frozen=True, slots=True)
class BoxSeen:
    """One node as a container's host.

    devices   those of RDMA and NVIDIA that exist there
    labelled  containers that carry the label of this deployment
    """

    engine: EngineSeen
    image: ImageSeen | None
    home: str
    devices: tuple[str, ...]
    labelled: tuple[ContainerSeen, ...] = ()


def box_of(settings: Settings, node: NodeSettings, seen: BoxSeen) -> Box:
    """The image by its id on this node, so that a tag that moves meanwhile changes nothing."""
    return Box(
        image=seen.image.id if seen.image else settings.image.name,
        engine=settings.container.engine,
        home=seen.home,
        mounts=_mounts(settings, node),
        devices=seen.devices,
        gpus=gives_gpus(seen),
        io_uring=needs_proof(settings),
    )


def gives_gpus(seen: BoxSeen) -> bool:
    """Whether there is a GPU to give: by the engine's runtimes, or by the node's devices."""
    return "nvidia" in seen.engine.runtimes or any(one in seen.devices for one in NVIDIA)


def planned_box(settings: Settings, node: NodeSettings) -> Box:
    """A box as far as it is known without asking the node."""
    container, mounts = settings.container, _mounts(settings, node)
    return Box(
        settings.image.name,
        container.engine,
        home="~",
        mounts=mounts,
        stamped=container.cache_stamp,
        io_uring=needs_proof(settings),
    )


def _mounts(settings: Settings, node: NodeSettings) -> tuple[Mount, ...]:
    """The model and its tables read-only; caches of compiled kernels writable, as each boot would compile them anew."""
    caches = tuple(
        Mount(getattr(node, name), target, read_only=False) for name, target in CACHES if getattr(node, name)
    )
    source_tables = volume_of(settings, node, "engram") or source_folder(settings, node)
    folders = zip((source_tables, node.packed), inside(settings), strict=True)
    tables = tuple(Mount(folder, target) for folder, target in folders if folder)
    further = (further_mount(one) for one in settings.container.mounts)
    source = volume_of(settings, node, "model") or node.model or settings.serve.model
    model = with_targets(Mount(source, settings.serve.model))
    return (*model, *tables, *caches, *further)


def further_mount(text: str) -> Mount:
    source, target, *rest = text.split(":")
    return Mount(source, target, read_only=rest != ["rw"])


BROUGHT = "start brings the head's to every node, or says what it lacks for that"


def check_later(settings: Settings, seen: Mapping[str, BoxSeen]) -> tuple[Finding, ...]:
    """The same before the image was brought: what a start mends is no refusal."""
    return tuple(
        replace(one, severity=Severity.NOTE, expected="", fix="", details=(BROUGHT,))
        if one.severity is Severity.REFUSAL
        else one
        for one in check_boxes(settings, seen)
    )


def check_boxes(settings: Settings, seen: Mapping[str, BoxSeen]) -> tuple[Finding, ...]:
    """IMAGE.PRESENT on every node, RANKS.IMAGE over all of them; nothing where no node has an engine to look into."""
    found = [_present(settings, name, one) for name, one in seen.items()]
    images = {name: one.image for name, one in seen.items() if one.image is not None}
    if images and len(images) == len(seen):
        found.append(_equal(images))
    return tuple(found)


def label_of(settings: Settings) -> dict[str, str]:
    """By which containers of a deployment are found."""
    return {f"{LABEL}deployment": settings.deployment}


def check_labelled(settings: Settings, seen: Mapping[str, BoxSeen]) -> tuple[Finding, ...]:
    """CONTAINER.LABEL, when no rank of ours is on record as living. What ended of our own making is no trouble."""
    return tuple(_labelled(settings, name, one) for name, one in seen.items())


def _labelled(settings: Settings, node: str, seen: BoxSeen) -> Finding:
    strays = [one for one in seen.labelled if is_stray(settings, one)]
    if not strays:
        return Finding("CONTAINER.LABEL", Severity.OK, node, f"none but ours has the label {settings.deployment}")
    names = ", ".join(f"{one.name} ({one.state})" for one in strays)
    observed = f"{names} has the label of deployment {settings.deployment}, and no start on record made it"
    fix = f"on {node}: docker rm -f {' '.join(one.name for one in strays)}; or another name: DEPLOYMENT="
    return Finding("CONTAINER.LABEL", Severity.REFUSAL, node, observed, "no such container", fix)


def is_stray(settings: Settings, one: ContainerSeen) -> bool:
    """It lives although no rank of ours does, or it does not have a name as we give."""
    return one.state in LIVING or not one.name.startswith(f"sparkctl-{settings.deployment}-rank")


def _present(settings: Settings, node: str, seen: BoxSeen) -> Finding:
    name = settings.image.name
    if seen.image is None:
        fix = f"put it there: docker save {name} | ssh {node} docker load, or docker pull {name} on {node}"
        return Finding("IMAGE.PRESENT", Severity.REFUSAL, node, f"no image {name}", "the image on every node", fix)
    arch = f"{seen.image.system}/{seen.image.architecture}"
    if seen.image.architecture != _architecture(seen.engine):
        expected = f"an image for {_architecture(seen.engine)}"
        fix = f"build it here, or docker pull --platform linux/{_architecture(seen.engine)} {name}"
        return Finding("IMAGE.PRESENT", Severity.REFUSAL, node, f"{name} is for {arch}", expected, fix)
    observed = f"{name}, {len(seen.image.layers)} layers, engine {seen.engine.version}"
    return Finding("IMAGE.PRESENT", Severity.OK, node, observed)


def _architecture(engine: EngineSeen) -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(engine.architecture, engine.architecture)


def _equal(images: Mapping[str, ImageSeen]) -> Finding:
    """By the ordered layer list: ids differ between image stores, and save and load lose the digests."""
    names = list(images)
    if all(same_image(images[names[0]], images[name]) for name in names):
        return Finding("RANKS.IMAGE", Severity.OK, "", f"one image on {', '.join(names)}, layer by layer")
    told = ", ".join(f"{name} {_short(image)}" for name, image in images.items())
    fix = "load the head's image on every node, or pull the same digest everywhere"
    return Finding("RANKS.IMAGE", Severity.REFUSAL, "", told, "the same layers on all ranks", fix)


def _short(image: ImageSeen) -> str:
    last = image.layers[-1].removeprefix("sha256:")[:12] if image.layers else "none"
    return f"{len(image.layers)} layers, the last {last}"
