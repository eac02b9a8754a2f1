"""What the overlay relies on in the server's own source. When a line has drifted, nothing else may be believed."""

import inspect
from dataclasses import dataclass
from typing import Any

SUPPORTED = ("0.32.", "0.33.")


class Unsupported(RuntimeError):
    """The server is not one that the overlay was written for. Ends the process: a stock server would not fit."""


@dataclass(frozen=True)
class Anchor:
    """`text` stands `count` times in the source of `name`, a dotted path from a module. `reason`: what relies on it."""

    name: str
    text: str
    reason: str
    count: int = 1


def check_version(version: str) -> None:
    if not version.startswith(SUPPORTED):
        wanted = " or ".join(f"{one}x" for one in SUPPORTED)
        raise Unsupported(f"spark_overlay supports vLLM {wanted}, and this is {version}")


def check_anchors(module: Any, anchors: tuple[Anchor, ...]) -> None:
    """Every anchor in its place, else Unsupported with all that are not."""
    drifted = [f"{anchor.name}: {anchor.reason}" for anchor in anchors if _found(module, anchor) != anchor.count]
    if drifted:
        raise Unsupported(f"{module.__name__} is not as spark_overlay knows it: {'; '.join(drifted)}")


def _found(module: Any, anchor: Anchor) -> int:
    held = module
    for part in anchor.name.split("."):
        held = getattr(held, part, None)
    if held is None:
        return 0
    return " ".join(inspect.getsource(held).split()).count(anchor.text)
