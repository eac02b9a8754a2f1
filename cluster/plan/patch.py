"""Sets of patches, and what they make of a package's files: planned as a whole, or refused as a whole.

Receipts keep the digests before and after each patch, so that what nobody recorded is noticed.
"""

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.errors import Refused
from cluster.model.packs import PatchState
from cluster.plan.anchors import NotPython, parse
from cluster.plan.patched import Patch, applied, blocks, why_not

SHOWN = 12


@dataclass(frozen=True, slots=True)
class Versions:
    """From `low` on and below `below`; an empty text is no limit."""

    low: str = ""
    below: str = ""

    def __contains__(self, version: object) -> bool:
        have = _numbers(str(version))
        return (not self.low or have >= _numbers(self.low)) and (not self.below or have < _numbers(self.below))


@dataclass(frozen=True, slots=True)
class PatchSet:
    """Patches that belong together, for some versions of one package. Order counts within a file."""

    name: str
    package: str
    versions: Versions
    patches: tuple[Patch, ...]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.file for one in self.patches))


@dataclass(frozen=True, slots=True)
class Receipt:
    """One patch that was applied; digests are sha256 of the whole file."""

    patches: str
    id: str
    file: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Edit:
    """What one file becomes; `steps` are the texts before each patch, in order."""

    file: str
    before: str
    after: str
    receipts: tuple[Receipt, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """How one file stands to the patches of a set."""

    file: str
    state: PatchState
    applied: tuple[str, ...]
    missing: tuple[str, ...]
    problems: tuple[str, ...] = ()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def standing(file: str, text: str | None, patches: Iterable[Patch]) -> Standing:
    """What the file itself says: which patches are in it whole, and what is wrong with the others."""
    mine = tuple(one for one in patches if one.file == file)
    if text is None:
        return Standing(file, PatchState.MISSING, (), tuple(one.id for one in mine), ("the file is not there",))
    done, missing, problems, is_partial, now = [], [], [], False, text
    for one in mine:
        whole, stray = blocks(text, one)
        if whole == one.count and not stray:
            done.append(one.id)
            continue
        missing.append(one.id)
        if whole or stray:
            is_partial = True
            problems.append(
                f"{one.id}: {whole} of {one.count} places are patched"
                + (f", {stray} blocks are not as they were written" if stray else "")
            )
        elif wrong := why_not(one, now):
            problems += wrong
        else:
            now = applied(one, now)  # a later patch may have its place in what this one brings
    if is_partial or (done and missing and not problems):
        state = PatchState.PARTIAL
    elif problems:
        state = PatchState.DRIFTED
    else:
        state = PatchState.PRISTINE if missing else PatchState.PATCHED
    return Standing(file, state, tuple(done), tuple(missing), tuple(problems))


def plan_apply(
    found: PatchSet,
    files: Mapping[str, str | None],
    receipts: Sequence[Receipt],
    expected: Mapping[str, str],
    where: str,
) -> tuple[Edit, ...]:
    """Every edit, or Refused with everything that stands against any of them. Files that are patched need none."""
    problems: list[str] = []
    edits: list[Edit] = []
    for file in found.files:
        text = files[file]
        stands = standing(file, text, found.patches)
        changed = drift(file, text, receipts, expected)
        problems += [f"{file}: {one}" for one in (*stands.problems, *changed)]
        if text is not None and not stands.problems and not changed and stands.missing:
            edit, wrong = _edit(found, file, text, stands.missing)
            problems += wrong
            edits += [edit] if edit else []
    if problems:
        raise Refused(
            f"{found.name} does not fit these files, and nothing was changed",
            where=where,
            evidence=problems,
            fix="install the version it is for, or take the files back: sparkctl patch revert",
        )
    return tuple(edits)


def _edit(found: PatchSet, file: str, text: str, missing: Sequence[str]) -> tuple[Edit | None, list[str]]:
    steps, receipts, now = [], [], text
    for one in found.patches:
        if one.file == file and one.id in missing:
            wrong = why_not(one, now)  # an earlier patch of the set may have taken the anchor away
            if wrong:
                return None, [f"{file}: {problem}" for problem in wrong]
            made = applied(one, now)
            steps.append(now)
            receipts.append(Receipt(found.name, one.id, file, digest(now), digest(made)))
            now = made
    if file.endswith(".py"):
        try:
            parse(now)
        except NotPython as error:
            return None, [f"{file}: would not parse any more, line {error.line}: {error}"]
    return Edit(file, text, now, tuple(receipts), tuple(steps)), []


def plan_revert(
    receipts: Sequence[Receipt], files: Mapping[str, str | None], patches: str, expected: Mapping[str, str], where: str
) -> tuple[Receipt, ...]:
    """Receipts to take back, the newest first. Refused when a file is not as its newest receipt left it."""
    mine = [one for one in receipts if not patches or one.patches == patches]
    problems = []
    for file in dict.fromkeys(one.file for one in mine):
        chain = [one for one in receipts if one.file == file]
        later = _later(chain, patches)
        if later:
            problems.append(f"{file}: {later.patches} was applied after it; revert that first")
        problems += [f"{file}: {one}" for one in drift(file, files[file], receipts, expected)]
    if problems:
        raise Refused(
            "the files are not as the patches left them, and nothing was changed",
            where=where,
            evidence=problems,
            fix="reinstall the package: its own files are then back, and the receipts are void",
        )
    return tuple(reversed(mine))


def drift(file: str, text: str | None, receipts: Sequence[Receipt], expected: Mapping[str, str]) -> tuple[str, ...]:
    """Empty when the file is as its newest receipt left it, or as before one of them: an ended run never wrote it.

    `expected` is the text that the newest receipt left, where it was kept: then the lines that changed are told.
    """
    chain = [one for one in receipts if one.file == file]
    if not chain or text is None or digest(text) in {chain[-1].after, *(one.before for one in chain)}:
        return ()
    lines = changed_lines(expected[file], text) if file in expected else ()
    return (f"somebody changed it after {chain[-1].id} was applied", *lines)


def changed_lines(expected: str, actual: str) -> tuple[str, ...]:
    """The lines that differ, with their numbers in the file as it is."""
    told = []
    line = 0
    for row in difflib.unified_diff(expected.splitlines(), actual.splitlines(), n=0, lineterm=""):
        if row.startswith("@@"):
            line = int(re.search(r"\+(\d+)", row)[1])  # type: ignore[index]  # every hunk has its numbers
        elif row.startswith("+") and not row.startswith("+++"):
            told.append(f"line {line}: + {row[1:]}")
            line += 1
        elif row.startswith("-") and not row.startswith("---"):
            told.append(f"line {line}: - {row[1:]}")
    more = (f"... {len(told) - SHOWN} more lines",) if len(told) > SHOWN else ()
    return (*told[:SHOWN], *more)


def must_be_for(found: PatchSet, version: str, where: str) -> None:
    if version not in found.versions:
        limits = " and ".join(
            text
            for text in (
                f"from {found.versions.low}" if found.versions.low else "",
                f"below {found.versions.below}" if found.versions.below else "",
            )
            if text
        )
        raise Refused(
            f"{found.name} is for {found.package} {limits}, installed is {version or 'an unknown version'}",
            where=where,
            fix="install a version it is for, or pass --any-version: the anchors still must fit",
        )


def overall(states: Iterable[PatchState]) -> PatchState:
    """One state for all files: they are alike, or the set is only partly there."""
    seen = set(states)
    for worst in (PatchState.MISSING, PatchState.DRIFTED):
        if worst in seen:
            return worst
    return next(iter(seen)) if len(seen) == 1 else PatchState.PARTIAL


def _later(chain: Sequence[Receipt], patches: str) -> Receipt | None:
    if not patches:
        return None
    last = max(number for number, one in enumerate(chain) if one.patches == patches)
    return next((one for one in chain[last + 1 :]), None)


def _numbers(version: str) -> tuple[int, ...]:
    """`0.28.1rc1.dev324+ga5` -> (0, 28, 1): a candidate counts as the version that it leads to."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
