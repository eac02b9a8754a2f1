"""What a container engine means by its words, as errors that say what to type next."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.errors import ImageMissing, NameTaken, SparkctlError, StepFailed
from cluster.node.failures import NoSpace

NAME_TAKEN = 409
MISSING = 404
NAME_HINT = "docker ps -a shows whose it is; sparkctl removes only containers that carry its labels"
IMAGE_HINT = "sparkctl image ls shows which node has it; sparkctl start brings it where it is missing"
LOGIN_HINT = "docker login where sparkctl runs; for ghcr.io set GHCR_TOKEN"
AGAIN_HINT = "the same again; then whoever keeps the registry has to look at it"
CONTAINERD = "/var/lib/containerd"
SYSTEM_CONTAINERD = ("/run/containerd/containerd.sock", "/var/run/containerd/containerd.sock")
MOUNT_HINT = "make it on that node, or take it out of MOUNTS"


@dataclass(frozen=True, slots=True)
class _Meaning:
    """Any of these words, in lower case, mean that."""

    words: tuple[str, ...]
    means: str
    fix: str = ""


_MEANINGS = (
    _Meaning(("no basic auth credentials", "unauthorized", "denied:"), "the registry wants a login", LOGIN_HINT),
    _Meaning(
        ("verification failed", "does not match", "unexpected commit"),
        "a layer is not what its digest says",
        AGAIN_HINT,
    ),
    _Meaning(("manifest unknown", "not found: manifest", "name unknown"), "the registry has no such image"),
    _Meaning(("dial tcp", "no such host", "i/o timeout", "tls handshake"), "the registry does not answer"),
    _Meaning(("bind source path does not exist",), "a folder to be mounted is not there", MOUNT_HINT),
)


def meant(doing: str, where: str, said: str, status: int | None) -> SparkctlError:
    """The most telling error for what an engine said; `status` is that of its API, where it came from there."""
    low = said.lower()
    if "no space left" in low or "disk quota exceeded" in low:
        return NoSpace(f"{doing} failed: no space left", where=where, evidence=[said], fix="docker system df")
    if status == NAME_TAKEN and "already in use" in low:
        return NameTaken(f"{doing} failed: the name is taken", where=where, evidence=[said], fix=NAME_HINT)
    if status == MISSING and "no such image" in low:
        return ImageMissing(f"{doing} failed: no such image", where=where, evidence=[said], fix=IMAGE_HINT)
    for one in _MEANINGS:
        if any(words in low for words in one.words):
            return StepFailed(f"{doing} failed: {one.means}", where=where, evidence=[said], fix=one.fix)
    return StepFailed(f"{doing} failed", where=where, evidence=[said])


def keeps(info: Mapping[str, Any]) -> tuple[str, ...]:
    """The system's containerd has a folder of its own; one that the engine started lies below the engine's."""
    below = f"{info['DockerRootDir']}/containerd/daemon"
    told = (info.get("Containerd") or {}).get("Address") or ""  # from Docker 27 on
    return (below, CONTAINERD) if told and told not in SYSTEM_CONTAINERD else (CONTAINERD, below)
