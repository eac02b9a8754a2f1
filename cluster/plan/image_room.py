"""Room for an image on a worker's disks, before a byte is sent; and what an engine's last words mean."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cluster.model.kit import Ship
from cluster.model.units import Bytes, format_bytes

RESERVE = Bytes(5 * 2**30)
# Files of an unpacked image by its size: Python images have one per 40 KiB or more.
BYTES_PER_INODE = 40 * 2**10
INODE_RESERVE = 20_000
OLDEST_WITH_PLATFORM = 28
UNPACKED_OVER_PACKED = 2.5  # libraries and Python code, as gzip and zstd have them


@dataclass(frozen=True, slots=True)
class Disk:
    """One file system of a node: `mount` tells two of them apart."""

    mount: str
    available: Bytes
    inodes: int | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """What one way of sending takes on the disk that is shortest of room."""

    way: Ship
    need: Bytes
    have: Bytes
    where: str
    fits: bool
    inodes: bool = True

    @property
    def sentence(self) -> str:
        if not self.inodes:
            return f"{self.where} has too few free inodes"
        return f"{format_bytes(self.need)} needed on {self.where}, {format_bytes(self.have)} free"


def need_of(way: Ship, archive: Bytes, unpacked: Bytes, partial: Bytes, store: Disk, staging: Disk) -> Need:
    """`partial` of the archive is staged already: it takes no more room than it has."""
    inodes = store.inodes is None or store.inodes >= unpacked // BYTES_PER_INODE + INODE_RESERVE
    staged = Bytes(archive - partial)
    match way:
        case Ship.STREAM | Ship.AUTO:
            need = Bytes(unpacked + RESERVE)
        case Ship.REGISTRY:
            need = Bytes(archive + unpacked + RESERVE)  # an engine downloads into its own folder and unpacks there
        case Ship.RSYNC if store.mount == staging.mount:
            need = Bytes(staged + unpacked)
        case _:
            if staging.available < staged:
                return Need(way, staged, staging.available, staging.mount, fits=False, inodes=inodes)
            need = Bytes(unpacked + RESERVE)
    return Need(way, need, store.available, store.mount, store.available >= need and inodes, inodes)


def choose_way(asked: Ship, archive: Bytes, unpacked: Bytes, partial: Bytes, store: Disk, staging: Disk) -> Need:
    """`auto` stages what it can, since only a staged layer is taken up where it was cut off."""
    if asked is not Ship.AUTO:
        return need_of(asked, archive, unpacked, partial, store, staging)
    staged = need_of(Ship.RSYNC, archive, unpacked, partial, store, staging)
    return staged if staged.fits else need_of(Ship.STREAM, archive, unpacked, partial, store, staging)


class EngineSaid(StrEnum):
    """What the command line of an engine meant when it failed: only MISSING means that there is no image."""

    MISSING = "missing"
    PERMISSION = "docker_permission"
    DOWN = "docker_down"
    SSH = "ssh"
    NO_SPACE = "no_space"
    OTHER = "other"


_SSH_EXIT = 255
_SAID = (
    ("no such image", EngineSaid.MISSING),
    ("permission denied while trying to connect", EngineSaid.PERMISSION),
    ("cannot connect to the docker daemon", EngineSaid.DOWN),
    ("error during connect", EngineSaid.DOWN),
    ("no space left on device", EngineSaid.NO_SPACE),
    ("disk quota exceeded", EngineSaid.NO_SPACE),
)


def engine_said(exit_code: int, err: str) -> EngineSaid:
    low = err.lower()
    found = next((meaning for words, meaning in _SAID if words in low), None)
    if found is not None:
        return found
    return EngineSaid.SSH if exit_code == _SSH_EXIT else EngineSaid.OTHER


def platform_words(engine: str, client_said: str, system: str, architecture: str) -> tuple[str, ...]:
    """For `save` and `load`: an index names blobs of other platforms that are not here. Both must be 28 or later.

    The command line may be older than the engine, and one that does not know a word does nothing at all.
    """
    found = re.search(r"version (\d+)", client_said)
    knows = min(_major(engine), int(found.group(1)) if found else 0) >= OLDEST_WITH_PLATFORM
    return ("--platform", f"{system}/{architecture}") if knows else ()


def _major(version: str) -> int:
    major = version.partition(".")[0]
    return int(major) if major.isdigit() else 0


def unpacked_size(layers: Iterable[tuple[str, Bytes]]) -> Bytes:
    """Of layers by their media type and size, as they are kept: a store may have them packed."""
    return Bytes(round(sum(size * (UNPACKED_OVER_PACKED if _is_packed(media) else 1) for media, size in layers)))


def _is_packed(media: str) -> bool:
    return media.endswith(("gzip", "zstd"))
