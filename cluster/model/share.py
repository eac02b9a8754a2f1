"""The report of `share`: how each worker comes to have each folder of weights, and what proves it."""

from dataclasses import dataclass

from cluster.model.kit import Sync


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """One folder on one worker.

    path     where the rank reads it, on the node or inside its container
    source   where the head has it
    how      what came of it, e.g. the transport and options of a mount as they were read back
    files    files that were compared, `compared` bytes of them; none when it was taken away
    """

    what: str
    node: str
    path: str
    source: str
    how: str
    files: int = 0
    size: int = 0
    compared: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """What one backend would cost.

    moves         bytes to send; nothing for one that reads over the link while it is used
    seconds       for that, over the link as it was measured; None when that could not be done
    disk_left     of the worker's, None where none is taken
    if_head_dies  what becomes of the weights on the worker
    impossible    why it cannot be used, empty when it can
    in_use        it is attached
    """

    kind: Sync
    moves: int | None = None
    seconds: float | None = None
    disk_left: int | None = None
    if_head_dies: str = ""
    impossible: str = ""
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class ShareCosts:
    """What `auto` weighs, and what it takes. `rate` is the link's, in bytes a second; None when it was not measured."""

    deployment: str
    chosen: Sync
    why: str
    rate: float | None
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class ShareReport:
    """`action` is attach or detach; `steps` were taken, none when all was so already."""

    deployment: str
    backend: str
    action: str
    steps: int
    folders: tuple[SharedFolder, ...]
    notes: tuple[str, ...] = ()
