"""OpenSSH's known_hosts: which lines speak of a host, and what they say about the key it shows."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One line. `marker` is empty, `@revoked` or `@cert-authority`."""

    file: Path
    line: int
    marker: str
    patterns: tuple[str, ...]
    kind: str
    key: str

    def speaks_of(self, name: str) -> bool:
        found = False
        for pattern in self.patterns:
            if pattern.startswith("!") and fnmatchcase(name, _literal(pattern[1:])):
                return False
            found = found or _fits(pattern, name)
        return found


@dataclass(frozen=True, slots=True)
class Known:
    pass


@dataclass(frozen=True, slots=True)
class Unknown:
    pass


@dataclass(frozen=True, slots=True)
class Changed:
    lines: tuple[KnownKey, ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    line: KnownKey


Verdict = Known | Unknown | Changed | Revoked


def parse(text: str, file: Path) -> tuple[KnownKey, ...]:
    """Lines that are no entry are skipped, as ssh does."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) >= 3 and not fields[0].startswith("#"):
            found.append(KnownKey(file, number, marker, tuple(fields[0].split(",")), fields[1], fields[2]))
    return tuple(found)


def load(files: Iterable[Path]) -> tuple[KnownKey, ...]:
    found: list[KnownKey] = []
    for file in files:
        try:
            found += parse(file.read_text("utf-8", "replace"), file)
        except (FileNotFoundError, NotADirectoryError):
            continue
    return tuple(found)


def host_name(host: str, port: int) -> str:
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def kinds_for(lines: Iterable[KnownKey], name: str) -> tuple[str, ...]:
    """Key types on record, to be asked for first: a host has several keys and we may know only one."""
    return tuple(dict.fromkeys(each.kind for each in lines if not each.marker and each.speaks_of(name)))


def judge(lines: Iterable[KnownKey], host: str, port: int, kind: str, key: str) -> Verdict:
    """What is on record about this key (`kind` and base64) at this place."""
    lines = tuple(lines)
    name = host_name(host, port)
    for each in lines:
        if each.marker == "@revoked" and each.key == key and each.speaks_of(name):
            return Revoked(each)
    ours = tuple(each for each in lines if not each.marker and each.speaks_of(name))
    if any((each.kind, each.key) == (kind, key) for each in ours):
        return Known()
    if ours:
        return Changed(ours)
    # As ssh does: a key on record without a port counts on another port too, but only when it is the same.
    plain = host.lower()
    if any((each.kind, each.key) == (kind, key) and not each.marker and each.speaks_of(plain) for each in lines):
        return Known()
    return Unknown()


def fingerprint(key: str) -> str:
    """As `ssh-keygen -l` prints it."""
    digest = hashlib.sha256(base64.b64decode(key)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def remember(file: Path, name: str, kind: str, key: str) -> None:
    """Add a line to the file."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    text = file.read_text("utf-8", "replace")
    with file.open("a", encoding="utf-8") as out:
        out.write(("\n" if text and not text.endswith("\n") else "") + f"{name} {kind} {key}\n")


def _fits(pattern: str, name: str) -> bool:
    if not pattern.startswith("|1|"):
        return fnmatchcase(name, _literal(pattern.lower()))
    try:
        salt, digest = (base64.b64decode(part) for part in pattern[3:].split("|"))
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)


def _literal(pattern: str) -> str:
    """`[` starts a class in fnmatch but is part of `[host]:port` here."""
    return pattern.replace("[", "[[]")
