"""Reports about weights: what was fetched, what was proven, what lies on the nodes and who needs it."""

from dataclasses import dataclass
from enum import StrEnum


class FileState(StrEnum):
    """What a file of a model is found to be.

    right        its content has the digest that it must have
    equal        nobody says which digest it must have; it is the same on all nodes
    not_checked  whole by its size and its header, but its content was not looked at
    partial      begun and not ended; a fetch goes on with it
    """

    RIGHT = "right"
    EQUAL = "equal"
    NOT_CHECKED = "not_checked"
    MISSING = "missing"
    PARTIAL = "partial"
    WRONG = "wrong"

    @property
    def is_gap(self) -> bool:
        return self in (FileState.MISSING, FileState.PARTIAL, FileState.WRONG)


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One file. `fault` for programs: missing, resumable, truncated, lfs_pointer, digest ...; `detail` for people."""

    name: str
    state: FileState
    size: int | None = None
    fault: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProvenFolder:
    """A folder of weights on one node.

    right, not_checked  how many files are so; equal ones count as right
    hashed              bytes that were read for it now; what was proven before and did not change is not read again
    wrong               every file that is missing, partial or wrong
    problems            what is wrong beside the files
    """

    node: str
    path: str
    ok: bool
    files: int
    size: int
    right: int
    not_checked: int
    hashed: int
    seconds: float
    repo: str = ""
    revision: str = ""
    wrong: tuple[WeightFile, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """`ok`: no file is missing, partial or wrong. `quick`: contents were not looked at."""

    deployment: str
    ok: bool
    quick: bool
    folders: tuple[ProvenFolder, ...]


@dataclass(frozen=True, slots=True)
class FetchedFolder:
    """A repository at one revision, in its folder on the head; `fetched` in bytes, `kept` files were there already."""

    path: str
    repo: str
    revision: str
    files: int
    size: int
    fetched: int
    kept: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FetchReport:
    """All folders are whole, and every file is proven."""

    deployment: str
    node: str
    folders: tuple[FetchedFolder, ...]


@dataclass(frozen=True, slots=True)
class HeldFolder:
    """Weights that sparkctl knows of on a node.

    size, partial  bytes of whole files, and of files begun and not ended
    claims         who needs it: settings that name it, processes that use it
    pin            why somebody wants it kept; empty when nobody said so
    lease          who changes it just now
    blind          processes that could not be looked into
    freed          bytes that a prune freed, or would free; None when it stays
    """

    node: str
    path: str
    repo: str
    revision: str
    files: int
    size: int
    partial: int = 0
    claims: tuple[str, ...] = ()
    pin: str = ""
    lease: str = ""
    blind: int = 0
    freed: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WeightsReport:
    """`preview`: this is what a prune would do, and nothing was done."""

    deployment: str
    action: str
    preview: bool
    folders: tuple[HeldFolder, ...]
