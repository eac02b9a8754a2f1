"""One patch in the text of one file: put in, found again, and why it cannot go in.

An applied patch stands between two comment lines that name it, so the file itself says what was done to it.
"""

import textwrap
from dataclasses import dataclass
from enum import StrEnum

from cluster.plan.anchors import Anchor, NotPython, has_top_level, nearest, places


class Put(StrEnum):
    """Where the text goes: before or after the anchor, in its place, or at the end of the file."""

    BEFORE = "before"
    AFTER = "after"
    REPLACE = "replace"
    END = "end"


@dataclass(frozen=True, slots=True)
class Patch:
    """One change of one file. `count`: how often its anchor must be there; `needs`: statements at the top level."""

    id: str
    file: str
    reason: str
    put: Put
    text: str
    anchor: Anchor | None = None
    count: int = 1
    needs: tuple[str, ...] = ()


def applied(patch: Patch, text: str) -> str:
    """The text with the patch at every place of its anchor; places are filled from the last to the first."""
    rows = text.splitlines(keepends=True)
    if rows and not rows[-1].endswith("\n"):
        rows[-1] += "\n"
    if patch.anchor is None or patch.put is Put.END:
        return "".join(rows) + "\n\n" + _block(patch, "")
    for place in reversed(places(text, patch.anchor)):
        block = _block(patch, place.indent).splitlines(keepends=True)
        match patch.put:
            case Put.BEFORE:
                rows[place.first - 1 : place.first - 1] = block
            case Put.AFTER:
                rows[place.last : place.last] = block
            case _:
                rows[place.first - 1 : place.last] = block
    return "".join(rows)


def why_not(patch: Patch, text: str) -> list[str]:
    """Why the patch cannot go in, as it stands."""
    try:
        missing = [f"{patch.id}: wants “{one}” at the top level" for one in patch.needs if not has_top_level(text, one)]
        if patch.anchor is None:
            return missing
        found = places(text, patch.anchor)
    except NotPython as error:
        return [f"{patch.id}: line {error.line} does not parse: {error}"]
    if len(found) == patch.count:
        return missing
    lines = [f"line {one.first}" for one in found] or list(nearest(text, patch.anchor))
    seen = f" ({'; '.join(lines)})" if lines else ""
    there = f"there {_times(len(found))}" if found else "not there"
    return [*missing, f"{patch.id}: its anchor must be there {_times(patch.count)}, and is {there}{seen}"]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def blocks(text: str, patch: Patch) -> tuple[int, int]:
    """How many blocks of the patch are whole, and how many are not."""
    mark = f"{_comment(patch.file)} sparkctl patch {patch.id}: "
    whole = stray = 0
    rows = text.splitlines()
    begins = [number for number, row in enumerate(rows) if row.strip() == mark + "begin"]
    for number in begins:
        indent = rows[number][: len(rows[number]) - len(rows[number].lstrip())]
        want = _block(patch, indent).splitlines()
        if rows[number : number + len(want)] == want:
            whole += 1
        else:
            stray += 1
    ends = sum(row.strip() == mark + "end" for row in rows)
    return whole, stray + max(0, ends - len(begins))


def _comment(file: str) -> str:
    return "#" if file.endswith((".py", ".sh", ".txt", ".cmake")) else "//"


def _block(patch: Patch, indent: str) -> str:
    mark = _comment(patch.file)
    body = textwrap.dedent(patch.text).strip("\n")
    text = f"{mark} sparkctl patch {patch.id}: begin\n{body}\n{mark} sparkctl patch {patch.id}: end\n"
    return textwrap.indent(text, indent)
