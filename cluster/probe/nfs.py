"""What NFS tells of itself: exports, mounts, volumes. Texts in, values out."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import PurePosixPath

EVERYBODY = ("*", "0.0.0.0/0", "<world>")


@dataclass(frozen=True, slots=True)
class Export:
    path: str
    client: str
    options: tuple[str, ...]


def parse_exports(text: str) -> tuple[Export, ...]:
    """Lines of `exportfs -s`, of /var/lib/nfs/etab or of /etc/exports: a path, then clients with their options."""
    found = []
    for line in text.splitlines():
        match = re.match(r'\s*("[^"]+"|[^\s#]+)\s+(.*)', line)
        if match is None:
            continue
        path = _unescaped(match[1].strip('"'))
        for client, options in re.findall(r"([^\s(]+)\(([^)]*)\)", match[2]):
            found.append(Export(path, client, tuple(options.split(","))))
    return tuple(found)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), text)


def escaped(path: str) -> str:
    """A path as /etc/exports wants it."""
    return re.sub(r"[\s#\\\"()]", lambda match: f"\\{ord(match[0]):03o}", path)


def admits(client: str, address: str) -> bool:
    """Whether a client of an export stands for this address. A host name cannot be told here, and counts as no."""
    if client in EVERYBODY:
        return True
    try:
        return IPv4Address(address) in IPv4Network(client, strict=False)
    except ValueError:
        return False


def rule_for(exports: Iterable[Export], path: str, address: str) -> Export | None:
    """The export that covers a path for an address: the nearest one above it, then the narrowest client."""
    wanted = PurePosixPath(path)
    covering = [one for one in exports if wanted.is_relative_to(one.path) and admits(one.client, address)]
    return max(covering, key=lambda one: (len(one.path), one.client == address, "/" in one.client), default=None)


def device_path(exports: Iterable[Export], path: str) -> str | None:
    """What a client mounts to see a path. An export with fsid=0 is the root of all: outside nothing is seen."""
    roots = [one.path for one in exports if "fsid=0" in one.options or "fsid=root" in one.options]
    if not roots:
        return path
    wanted = PurePosixPath(path)
    inside = [root for root in roots if wanted.is_relative_to(root)]
    if not inside:
        return None
    relative = str(wanted.relative_to(inside[0]))
    return "/" if relative == "." else f"/{relative}"


@dataclass(frozen=True, slots=True)
class MountSeen:
    """An NFS mount as the kernel tells of it. `read_ahead` in KiB."""

    target: str
    device: str
    options: tuple[str, ...]
    read_ahead: int | None = None

    @property
    def server(self) -> str:
        return self.device.partition(":/")[0]

    def option(self, name: str) -> str:
        return next((one.partition("=")[2] for one in self.options if one.partition("=")[0] == name), "")


@dataclass(frozen=True, slots=True)
class TransportSeen:
    """One NFS mount in /proc/self/mountstats; `transports` has one word for each of its connections."""

    device: str
    target: str
    options: tuple[str, ...]
    transports: tuple[str, ...]


def parse_mountstats(text: str) -> tuple[TransportSeen, ...]:
    found = []
    for block in re.split(r"^(?=device )", text, flags=re.MULTILINE):
        head = re.match(r"device (\S+) mounted on (\S+) with fstype nfs4?\b", block)
        if head is None:
            continue
        options = re.search(r"^\s*opts:\s*(\S+)", block, re.MULTILINE)
        transports = re.findall(r"^\s*xprt:\s*(\w+)", block, re.MULTILINE)
        words = tuple(options[1].split(",")) if options else ()
        found.append(TransportSeen(head[1], _unescaped(head[2]), words, tuple(transports)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class VolumeSeen:
    """A docker volume of the local driver, as `docker volume inspect` has it."""

    name: str
    kind: str
    device: str
    options: frozenset[str]
    labels: Mapping[str, str]


def parse_volume(seen: Mapping[str, object]) -> VolumeSeen:
    options, labels = seen.get("Options") or {}, seen.get("Labels") or {}
    if not isinstance(options, Mapping) or not isinstance(labels, Mapping):
        raise TypeError("options and labels of a volume are objects")
    words = frozenset(one for one in str(options.get("o", "")).split(",") if one)
    return VolumeSeen(str(seen["Name"]), str(options.get("type", "")), str(options.get("device", "")), words, labels)


def volume_diff(seen: VolumeSeen, device: str, options: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Option -> what the volume has, what is wanted. A create with the same name would keep the old ones silently."""
    has, wants = _by_name(seen.options), _by_name(options)
    found = {name: (has.get(name, ""), wants.get(name, "")) for name in sorted(has.keys() | wants.keys())}
    found["device"] = (seen.device, device)
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}


def _by_name(options: Iterable[str]) -> dict[str, str]:
    """`ro` -> "on"; the two names of the version are one."""
    split = (one.partition("=") for one in options)
    return {("vers" if name == "nfsvers" else name): (value if sign else "on") for name, sign, value in split}


def made_by(record: str | None) -> dict[str, object]:
    """What an attach of ours noted before it changed anything; empty when there is no note."""
    try:
        noted = json.loads(record or "{}")
    except ValueError:
        return {}
    return noted if isinstance(noted, dict) else {}
