"""Data as YAML text that every reader of YAML takes the same way: what could be anything but a text is quoted."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@-]*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def documents(each: tuple[Mapping[str, Any], ...]) -> str:
    """Several documents of one stream."""
    return "---\n".join("\n".join(_lines(one, "")) + "\n" for one in each)


def _lines(value: Any, indent: str) -> Iterator[str]:
    match value:
        case Mapping():
            for key, one in value.items():
                yield from _entry(f"{indent}{scalar(key)}:", one, indent + "  ")
        case list() | tuple():
            for one in value:
                if isinstance(one, Mapping | list | tuple) and one:
                    first, *rest = _lines(one, indent + "  ")
                    yield f"{indent}- {first.lstrip()}"
                    yield from rest
                else:
                    yield f"{indent}- {scalar(one)}"
        case _:
            yield f"{indent}{scalar(value)}"


def _entry(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping | list | tuple) and value:
        yield head
        yield from _lines(value, indent)
    else:
        yield f"{head} {scalar(value)}"


def scalar(value: Any) -> str:
    """A text in single quotes unless it is plainly one; then a backslash stays a backslash."""
    match value:
        case str() if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        case str() if all(char.isprintable() for char in value):
            return "'" + value.replace("'", "''") + "'"
        case Mapping():
            return "{}"
        case list() | tuple():
            return "[]"
        case _:
            return json.dumps(value)
