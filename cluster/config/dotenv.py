"""The text of a `.env` file to values with their lines. It is parsed, never run: no expansion, no commands.

Read is what shells, Compose, docker and python-dotenv read alike; where they differ the line is refused, with the
form on which they agree. `$` stays as it is written.
"""

import re
from dataclasses import dataclass

from cluster.model.table import Caution, Problem

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RUNS_ELSEWHERE = ";&|<>()`"
_ESCAPED = {'"': '"', "\\": "\\", "$": "$", "`": "`"}
_UNQUOTED = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]{}^~!*?-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class Dotenv:
    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...]
    cautions: tuple[Caution, ...]

    @property
    def values(self) -> dict[str, str]:
        return {one.name: one.value for one in self.entries}


class _Wrong(ValueError):
    """What is wrong with a line, and what to write instead."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.fix = fix


def parse(data: bytes, where: str = ".env") -> Dotenv:
    """Every line that can be read, and what is wrong with the others. Later entries with the same name come last."""
    cautions: list[Caution] = []
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
        cautions.append(
            Caution("bom", f"{where}:1", "starts with a byte order mark, which is skipped; save it without")
        )
    lines = data.split(b"\n")
    ending = next((number for number, line in enumerate(lines, 1) if line.endswith(b"\r")), None)
    if ending:
        cautions.append(
            Caution("crlf", f"{where}:{ending}", "has Windows line ends, which are skipped; save it with Unix ones")
        )
    entries: list[Entry] = []
    problems: list[Problem] = []
    for number, line in enumerate(lines, 1):
        try:
            entry = _line(_decoded(line.removesuffix(b"\r")), number)
        except _Wrong as wrong:
            problems.append(Problem(f"{where}:{number}", str(wrong), wrong.fix))
            continue
        if entry:
            entries.append(entry)
            if "$" in entry.value and not _single_quoted(line):
                text = f"{entry.name} keeps its `$` as it is written, for nothing is expanded; single quotes say so"
                cautions.append(Caution("dollar", f"{where}:{number}", text))
    doubled, said_twice = _doubles(entries, where)
    return Dotenv(tuple(entries), (*problems, *doubled), (*cautions, *said_twice))


def quote(value: str) -> str:
    """A value as a line of `.env` that every reader understands alike. ValueError when there is no such line."""
    if _UNQUOTED.fullmatch(value) and not value.startswith("~"):
        return value
    if any((ord(char) < 32 and char != "\t") or ord(char) == 127 for char in value):
        raise ValueError("a control character cannot be written in .env")
    if "'" not in value:
        return f"'{value}'"
    return '"' + "".join(f"\\{char}" if char in _ESCAPED else char for char in value) + '"'


def _decoded(line: bytes) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise _Wrong("is not UTF-8", "save the file as UTF-8") from error
    if any((ord(char) < 32 and char != "\t") or ord(char) == 127 for char in text):
        raise _Wrong("has a control character in it")
    return text


def _line(text: str, number: int) -> Entry | None:
    text = text.strip(" \t")
    if not text or text.startswith("#"):
        return None
    text = re.sub(r"^export[ \t]+", "", text)
    name = _NAME.match(text)
    if not name:
        raise _Wrong("does not start with a name", "write NAME=value, or # before a comment")
    rest = text[name.end() :]
    if not rest.startswith("="):
        raise _no_equals(name[0], rest)
    rest = rest[1:]
    if rest.startswith((" ", "\t")) and rest.strip(" \t") and not rest.strip(" \t").startswith("#"):
        raise _Wrong(f"{name[0]} has a blank after `=`", f"write {name[0]}=value without blanks")
    return Entry(name[0], _value(name[0], rest), number)


def _no_equals(name: str, rest: str) -> _Wrong:
    # A value is never repeated in a message: it may be a token.
    if rest.lstrip(" \t").startswith("="):
        return _Wrong(f"{name} has a blank before `=`", f"write {name}=value without blanks")
    return _Wrong(f"{name} has no `=`", f"write {name}=value, or # before a comment")


def _value(name: str, rest: str) -> str:
    match rest[:1]:
        case "'":
            return _single(name, rest)
        case '"':
            return _double(name, rest)
        case _:
            return _bare(name, rest)


def _single(name: str, rest: str) -> str:
    end = rest.find("'", 1)
    if end < 0:
        raise _Wrong(f"{name} has a quote that does not end on its line")
    _check_after(name, rest[end + 1 :])
    return rest[1:end]


def _double(name: str, rest: str) -> str:
    value: list[str] = []
    position = 1
    while position < len(rest):
        char = rest[position]
        if char == '"':
            _check_after(name, rest[position + 1 :])
            return "".join(value)
        if char == "`" or rest.startswith("$(", position):
            raise _Wrong(
                f"{name} has a command in it, which a shell would run", "use single quotes, or write the value"
            )
        if char == "\\":
            position += 1
            char = _ESCAPED.get(rest[position : position + 1], "")
            if not char:
                raise _Wrong(f"{name} has a backslash that readers take differently", "use single quotes")
        value.append(char)
        position += 1
    raise _Wrong(f"{name} has a quote that does not end on its line")


def _check_after(name: str, rest: str) -> None:
    """After a closing quote only blanks and a comment may stand."""
    if rest.strip(" \t") and not re.match(r"[ \t]+#", rest):
        raise _Wrong(f"{name} goes on after its closing quote", "put the whole value in quotes")


def _bare(name: str, rest: str) -> str:
    value = re.split(r"[ \t]+#", rest, maxsplit=1)[0].rstrip(" \t")
    if "$(" in value:
        raise _Wrong(f"{name} has a command in it, which a shell would run", "use single quotes, or write the value")
    for char in value:
        if char in " \t":
            raise _Wrong(f"{name} has more than one word", "put the value in single quotes")
        if char in _RUNS_ELSEWHERE:
            raise _Wrong(
                f"{name} has a `{char}`, at which a shell would do something", "put the value in single quotes"
            )
        if char in "'\"\\":
            raise _Wrong(f"{name} has a `{char}` that readers take differently", "put the value in single quotes")
    return value


def _doubles(entries: list[Entry], where: str) -> tuple[list[Problem], list[Caution]]:
    """The same name twice: with two values one of the lines is a mistake, with one value it is only said."""
    first: dict[str, Entry] = {}
    problems, cautions = [], []
    for entry in entries:
        before = first.setdefault(entry.name, entry)
        if before is entry:
            continue
        both = f"{entry.name} stands on lines {before.line} and {entry.line}"
        if before.value == entry.value:
            cautions.append(Caution("duplicate", f"{where}:{entry.line}", f"{both}, with the same value"))
        else:
            problems.append(Problem(f"{where}:{entry.line}", f"{both}, with two values", "remove one of them"))
    return problems, cautions


def _single_quoted(line: bytes) -> bool:
    return b"='" in line
