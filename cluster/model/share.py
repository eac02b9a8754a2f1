"""The report of `share`: how each worker comes to have each folder of weights, and what proves it."""

from dataclasses import dataclass


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
class ShareReport:
    """`action` is attach or detach; `steps` were taken, none when all was so already."""

    deployment: str
    backend: str
    action: str
    steps: int
    folders: tuple[SharedFolder, ...]
    notes: tuple[str, ...] = ()
