"""What a folder of weights must hold, and what the files found there are: names, exact sizes, digests."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from cluster.errors import Refused, Unreadable
from cluster.model.units import format_bytes
from cluster.model.weights import FileState, WeightFile
from cluster.weights.safetensors import BadShard, header_end

INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
SHARD = ".safetensors"
_LFS = b"version https://git-lfs"
_PAGES = (b"<!doctype html", b"<html")
# Read by servers beside the shards; everything else of a repository is for people or for other programs.
_BESIDE = (".json", ".txt", ".model", ".jinja", ".py", ".tiktoken")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file as its publisher has it. `sha256` of large files, `sha1` (git's) of small ones; empty when not known."""

    name: str
    size: int
    sha256: str = ""
    sha1: str = ""

    @property
    def kind(self) -> str:
        """How its content is to be read: git's sha1 only where nobody tells a better one."""
        return "sha1" if self.sha1 and not self.sha256 else "sha256"

    @property
    def digest(self) -> str:
        told = self.sha256 or self.sha1
        return f"{self.kind}:{told}" if told else ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a repository at one revision that somebody needs."""

    repo: str
    revision: str
    files: tuple[Entry, ...]

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files)

    def entry(self, name: str) -> Entry | None:
        return next((one for one in self.files if one.name == name), None)


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file as a node sees it.

    size      None when it is not there, or is a link that leads nowhere (`dangling`)
    first     its first bytes
    expected  the size that its header asks for; None when it is no safetensors file or has no readable header
    header    what is wrong with the header; empty when nothing is
    digest    "sha256:..." or "sha1:..." of its content, empty when nobody looked
    part      bytes of it in an unfinished download
    link      where it really lies, when it is a link
    """

    name: str
    size: int | None
    first: bytes = b""
    expected: int | None = None
    header: str = ""
    digest: str = ""
    cached: bool = False
    part: int = 0
    link: str = ""
    dangling: bool = False
    error: str = ""


def judge(fact: FileFact, entry: Entry | None) -> WeightFile:
    """What a file is, by the strongest evidence there is: an exit code or a count proves nothing."""
    name, size = fact.name, fact.size
    if fact.error:
        return WeightFile(name, FileState.WRONG, size, "unreadable", fact.error)
    if size is None:
        return _absent(fact)
    fault = _bad_shard(fact) if name.endswith(SHARD) else _not_itself(fact.first)
    if fault:
        return WeightFile(name, FileState.WRONG, size, *fault)
    if entry is not None and size != entry.size:
        short = "truncated" if size < entry.size else "trailing_bytes"
        return WeightFile(name, FileState.WRONG, size, short, f"{size} bytes, must be {entry.size}")
    if entry is None or not entry.digest or not fact.digest:
        return WeightFile(name, FileState.NOT_CHECKED, size)
    if fact.digest != entry.digest:
        return WeightFile(name, FileState.WRONG, size, "digest", f"is {fact.digest}, must be {entry.digest}")
    return WeightFile(name, FileState.RIGHT, size)


def _absent(fact: FileFact) -> WeightFile:
    if fact.dangling:
        return WeightFile(fact.name, FileState.MISSING, None, "dangling", f"a link to {fact.link}, which is not there")
    if fact.part:
        told = f"{format_bytes(fact.part)} of it are there: sparkctl fetch goes on with them"
        return WeightFile(fact.name, FileState.PARTIAL, None, "resumable", told)
    return WeightFile(fact.name, FileState.MISSING, None, "missing", "is not there")


def _bad_shard(fact: FileFact) -> tuple[str, str] | None:
    if page := _not_itself(fact.first):
        return page
    size = fact.size or 0
    try:
        end = header_end(fact.first[:size], fact.name)
    except BadShard as error:
        return error.fault.name.lower(), "; ".join((error.what, *error.evidence))
    if size < end:
        return "truncated_header", f"{size} bytes, the header alone takes {end}"
    if fact.header or fact.expected is None:
        return "bad_header", fact.header or "its header was not read"
    if size != fact.expected:
        return "truncated" if size < fact.expected else "trailing_bytes", f"{size} bytes, must be {fact.expected}"
    return None


def _not_itself(first: bytes) -> tuple[str, str] | None:
    """What servers and git put in the place of a file."""
    if first.startswith(_LFS):
        return "lfs_pointer", "a Git LFS pointer, not the file it stands for"
    if first.lstrip().lower().startswith(_PAGES):
        return "html", "a web page, saved under the name of the file"
    return None


def compare(facts: Mapping[str, Mapping[str, FileFact]], *, contents: bool) -> dict[str, frozenset[str]]:
    """Node -> names that are not as on the first node; for folders of which nobody has a manifest."""

    def held(node: str) -> dict[str, str]:
        return {name: (one.digest if contents else "") or f"{one.size}" for name, one in facts[node].items()}

    first = held(next(iter(facts)))
    found = {}
    for node in facts:
        mine = held(node)
        found[node] = frozenset(name for name in first.keys() | mine.keys() if first.get(name) != mine.get(name))
    return found


def needed(files: Iterable[Entry], index: Mapping[str, str] | None, more: Sequence[str] = ()) -> tuple[Entry, ...]:
    """The files of a repository that a server of the whole model reads; `more` are patterns of further ones."""
    there = tuple(files)
    shards = set((index or {}).values()) or {
        one.name for one in there if one.name.endswith(SHARD) and "/" not in one.name
    }
    absent = shards - {one.name for one in there}
    if absent:
        raise Refused(
            f"the index names {len(absent)} shards that the repository does not have",
            where=INDEX,
            evidence=sorted(absent)[:5],
        )
    return tuple(
        one
        for one in there
        if one.name in shards
        or ("/" not in one.name and one.name.endswith(_BESIDE))
        or any(PurePosixPath(one.name).match(pattern) for pattern in more)
    )


def only(files: Iterable[Entry], names: Iterable[str]) -> tuple[Entry, ...]:
    """Exactly these files; Refused when the repository has not all of them."""
    by_name = {one.name: one for one in files}
    wanted = tuple(dict.fromkeys(names))
    absent = [name for name in wanted if name not in by_name]
    if absent:
        raise Refused("the repository does not have every file that is needed", evidence=absent)
    return tuple(by_name[name] for name in wanted)


@dataclass(frozen=True, slots=True)
class Exposure:
    """What must be mounted for a folder's links to lead somewhere inside, and the folder's path below it."""

    mount: str
    inner: str


def exposure(folder: str, facts: Iterable[FileFact]) -> Exposure | None:
    """None when no link leads out of the folder. A container that sees only the folder would not find the files."""
    root = PurePosixPath(folder)
    targets = [
        PurePosixPath(one.link) for one in facts if one.link and not PurePosixPath(one.link).is_relative_to(root)
    ]
    if not targets:
        return None
    common = root
    while not all(one.is_relative_to(common) for one in targets):
        common = common.parent
    return Exposure(str(common), str(root.relative_to(common)))


def rendered(manifest: Manifest) -> bytes:
    files = {
        one.name: {"size": one.size}
        | ({"sha256": one.sha256} if one.sha256 else {"sha1": one.sha1} if one.sha1 else {})
        for one in manifest.files
    }
    return json.dumps({"repo": manifest.repo, "revision": manifest.revision, "files": files}, indent=1).encode() + b"\n"


def parse(data: bytes, where: str) -> Manifest:
    try:
        read = json.loads(data)
        files = tuple(
            Entry(str(name), int(one["size"]), str(one.get("sha256", "")), str(one.get("sha1", "")))
            for name, one in read["files"].items()
        )
        return Manifest(str(read["repo"]), str(read["revision"]), files)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable("the manifest is damaged", where=where, evidence=[str(error)], fix="sparkctl fetch") from error
