"""Lines as data: spans of text with a tone, tables and wrapping. What is shown is decided before how it is painted."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple
from unicodedata import combining, east_asian_width


class Tone(StrEnum):
    """How a span is meant; the value is the terminal's code for it."""

    PLAIN = ""
    STRONG = "1"
    DIM = "2"
    GOOD = "32"
    WARN = "33"
    BAD = "1;31"
    LINK = "36"


RANK_CODES = ("36", "35", "34", "33", "32")


class Span(NamedTuple):
    """`tone` is a Tone, or one of RANK_CODES for what belongs to a rank."""

    text: str
    tone: str = Tone.PLAIN


Line = tuple[Span, ...]


def line(*parts: str | Span) -> Line:
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def paint(one: Line, color: bool) -> str:
    """The line as it is written."""
    if not color:
        return "".join(span.text for span in one).rstrip()
    return "".join(f"\x1b[{span.tone}m{span.text}\x1b[0m" if span.tone and span.text else span.text for span in one)


_CLAUSE = re.compile(r"(?<=;) |   (?=\()|(?<=, then:) ")  # where a line to be typed begins or ends
_TYPED = re.compile(
    r"(?:[\w ]+: )?(?:sudo|echo|mv|ip|ping|ssh\S*|journalctl|loginctl|umask|openssl|sparkctl|docker|~?/\S+) "
)
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # titles, links
    r"|\x1b[PX^_][^\x1b\n]*(?:\x1b\\)?"
    r"|\x1b[ -/]*[0-~]"
)
# what moves the cursor, what reorders text on the screen, and half characters
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def clean(text: str) -> str:
    """Foreign text made harmless: no escape reaches the terminal, and an overwritten progress line shows its end."""
    text = _ESCAPES.sub("", text)
    rows = ([part for part in row.split("\r") if part.strip()] for row in text.split("\n"))
    text = "\n".join(parts[0] if len(parts) == 1 else parts[-1].strip() if parts else "" for parts in rows)
    return _UNSAFE.sub(_named, text.expandtabs(4))


def _named(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def cells(text: str) -> int:
    """How many columns the text takes on a terminal."""
    return len(text) if text.isascii() else sum(_columns(one) for one in text)


def _columns(one: str) -> int:
    return 0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1


def shorten(text: str, width: int) -> str:
    """At most `width` columns, the end cut."""
    if cells(text) <= width:
        return text
    used, kept = 1, ""
    for one in text:
        used += _columns(one)
        if used > width:
            break
        kept += one
    return kept.rstrip() + "…" if width > 0 else ""


def wrap(text: str, width: int | None) -> list[str]:
    """Lines of at most `width` columns; None leaves lines as long as they are. Long words stay whole where they fit."""
    rows = text.splitlines() or [""]
    if width is None:
        return rows
    return [part for row in rows for part in textwrap.wrap(row, max(width, 16), break_on_hyphens=False) or [""]]


def hanging(first: Span, text: str, width: int | None, tone: str = Tone.PLAIN) -> list[Line]:
    """A coloured beginning and a sentence after it; further lines stand in by two."""
    rows = wrap(first.text + text, None if width is None else width - 2)
    start = rows[0].removeprefix(first.text)
    return [(first, Span(start, tone)), *((Span(f"  {more}", tone),) for more in rows[1:])]


def labelled(label: str, text: str, width: int | None, tone: str = Tone.PLAIN, column: int = 8) -> list[Line]:
    """A word at the left, its text beside it, further lines under the text."""
    indent = 2 + column
    first, *rest = wrap(text, None if width is None else width - indent)
    return [
        (Span(f"  {label:<{column}}", Tone.DIM), Span(first, tone)),
        *((Span(" " * indent), Span(more, tone)) for more in rest),
    ]


def command(before: Span, words: Sequence[str], width: int | None, tone: str = Tone.PLAIN) -> list[Line]:
    """A shell command, its words already quoted; what is too long goes on as in a shell, so that it can be copied."""
    rows, indent = [""], cells(before.text) + 2
    for word in words:
        room = None if width is None else width - indent - 2
        if rows[-1] and room is not None and cells(rows[-1]) + 1 + cells(word) > room:
            rows.append(word)
        else:
            rows[-1] += f" {word}" if rows[-1] else word
    parts = [row if at == len(rows) - 1 else f"{row} \\" for at, row in enumerate(rows)]
    return [(before, Span(parts[0], tone)), *((Span(" " * indent), Span(part, tone)) for part in parts[1:])]


def advice(label: str, text: str, width: int | None, tone: str, column: int = 8) -> list[Line]:
    """What to do: a sentence is wrapped, a line to be typed stays whole wherever it ends."""
    if width is None or cells(text) + 2 + column <= width:
        return labelled(label, text, None, tone, column)
    parts = _CLAUSE.split(text)
    rows = [row for part in parts for row in ([part] if _TYPED.match(part) else wrap(part, width - 2 - column))]
    return [part for at, row in enumerate(rows) for part in labelled("" if at else label, row, None, tone, column)]


def grid(
    header: Sequence[str],
    rows: Iterable[Sequence[str | Span]],
    *,
    width: int | None = None,
    indent: int = 2,
    wrapped: bool = False,
) -> list[Line]:
    """A table without frames. Columns that are empty in all rows are left out; the last one may wrap under itself."""
    body = [[cell if isinstance(cell, Span) else Span(cell) for cell in row] for row in rows]
    used = [at for at in range(len(header)) if any(row[at].text for row in body)]
    if not used:
        return []
    table = [[Span(header[at].upper(), Tone.DIM) for at in used]] if any(header) else []
    table += [[row[at] for at in used] for row in body]
    wide = [max(cells(row[at].text) for row in table) for at in range(len(used))]
    before = indent + sum(wide[:-1]) + 2 * (len(used) - 1)
    room = None if width is None or not wrapped else max(width - before, 20)
    return [part for row in table for part in _row(row, wide, indent, before, room)]


def _row(row: list[Span], wide: list[int], indent: int, before: int, room: int | None) -> list[Line]:
    *fixed, last = row
    padded = [
        Span(cell.text + " " * (size - cells(cell.text) + 2), cell.tone)
        for cell, size in zip(fixed, wide, strict=False)
    ]
    first, *rest = wrap(last.text, room)
    start: Line = (Span(" " * indent), *padded, Span(first, last.tone))
    return [start, *((Span(" " * before), Span(more, last.tone)) for more in rest)]
