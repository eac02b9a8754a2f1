"""The reports of the verbs that look at a pack of weights, write one anew, or repair what belongs to it."""

from dataclasses import dataclass
from enum import StrEnum


class Made(StrEnum):
    """What became of a file of the new pack."""

    WRITTEN = "written"
    LINKED = "linked"
    COPIED = "copied"
    KEPT = "kept"
    FAILED = "failed"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class PackFile:
    """One file of the new pack; `size` in bytes, `detail` says why it is made, or what went wrong."""

    name: str
    made: Made
    size: int
    seconds: float = 0.0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PackReport:
    """A pack written out of another one.

    written   bytes of the files that were, or would be, written
    needed    bytes that the disk must have free for it, the reserve included
    free      bytes that it had
    manifest  the file that lists names, sizes and digests, empty when there is none
    """

    verb: str
    source: str
    target: str
    ok: bool
    done: bool
    files: tuple[PackFile, ...]
    written: int
    needed: int
    free: int
    manifest: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AlignedShare:
    """All tensors of a pack of one type that a loader treats alike: aliased, copied or small."""

    reach: str
    dtype: str
    size: int
    count: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AlignmentReport:
    """How much of a pack can be mapped as it lies; `ok` when no more than `threshold` bytes would be copied."""

    pack: str
    ok: bool
    copied: int
    threshold: int
    shares: tuple[AlignedShare, ...]
    rewritten: tuple[str, ...]
    parts: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Width:
    """Bits per weight: how many EXL3 tensors have them, and their bytes."""

    bits: int
    count: int
    size: int


@dataclass(frozen=True, slots=True)
class LayerWidths:
    """The widths that one kind of tensor has in a run of layers; several mean that it is mixed."""

    first: int | None
    last: int | None
    kind: str
    widths: tuple[Width, ...]


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a model: bytes in its files, and resident on one box."""

    name: str
    disk: int
    resident: int


@dataclass(frozen=True, slots=True)
class InspectReport:
    """What a pack holds, read from headers and markers alone; `problems` are what a loader would trip over.

    bits  average over all EXL3 weights, 0 when there are none
    """

    pack: str
    ok: bool
    files: int
    tensors: int
    size: int
    codebook: str
    bits: float
    widths: tuple[Width, ...]
    layers: tuple[LayerWidths, ...]
    components: tuple[Component, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PackConfigReport:
    """What was repaired in a pack's config.json; `changes` are its lines before and after."""

    pack: str
    route: str
    changed: bool
    backup: str
    layer_bits: tuple[tuple[str, str], ...]
    changes: tuple[str, ...]
    done: bool = True


class PatchState(StrEnum):
    """How a file stands to the patches of a set."""

    PRISTINE = "pristine"
    PATCHED = "patched"
    PARTIAL = "partial"
    DRIFTED = "drifted"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class PatchedFile:
    """One file; `before` and `after` are sha256 digests, empty when not known."""

    path: str
    state: PatchState
    applied: tuple[str, ...]
    missing: tuple[str, ...]
    before: str = ""
    after: str = ""
    detail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PatchReport:
    """A set of patches on a package's files: how they stand, after what was done about it."""

    action: str
    patches: str
    root: str
    version: str
    state: PatchState
    changed: int
    files: tuple[PatchedFile, ...]
