"""What the verbs of `sparkctl image` tell: the image on every node, and what was sent."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeImage:
    """An image as one node's engine has it. `key` names the content, and is the same in every store; "" is no image."""

    node: str
    name: str
    key: str
    id: str = ""
    layers: int = 0
    size: int = 0
    architecture: str = ""
    stamp: str = ""
    engine: str = ""
    store: str = ""


@dataclass(frozen=True, slots=True)
class ImageShipped:
    """One shipment. `sent` counts bytes that left the head, `kept` those that an earlier, cut shipment had brought."""

    node: str
    how: str
    sent: int
    kept: int
    layers: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ImageReport:
    """The end of an image verb. `equal` says that all nodes have one image, layer by layer."""

    action: str
    image: str
    equal: bool
    nodes: tuple[NodeImage, ...]
    shipped: tuple[ImageShipped, ...] = ()
    notes: tuple[str, ...] = ()
