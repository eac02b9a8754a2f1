"""Text to a setting's value and back, by the setting's type. Every refusal says what is allowed."""

import re
import shlex
from decimal import Decimal
from enum import Enum
from typing import Any, get_args, get_origin

from cluster.model.table import Gid, Meta, Row, Secret
from cluster.model.units import Bytes, Seconds, parse_bytes, parse_duration

Raw = str | tuple[str, ...] | None

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def parse(row: Row, raw: Raw) -> Any:
    """The value of what a layer wrote; None and an empty text mean unset. ValueError says what is allowed."""
    kind, optional = plain_kind(row.kind)
    if raw is None or raw == "":
        return _unset(kind, optional)
    if get_origin(kind) is tuple:
        return _items(kind, raw, row.meta)
    if isinstance(raw, tuple):
        raise ValueError("one value is wanted, not a list")  # noqa: TRY004  # the callers' one type
    value = _one(kind, raw.strip() if kind is not str else raw, row.meta)
    _check_bounds(value, row.meta)
    return value


def plain_kind(kind: Any) -> tuple[Any, bool]:
    """`int | None` -> `int`, True."""
    args = get_args(kind)
    if type(None) in args:
        return next(one for one in args if one is not type(None)), True
    return kind, False


def _unset(kind: Any, optional: bool) -> Any:
    if optional:
        return None
    if kind is str:
        return ""
    if get_origin(kind) is tuple:
        return ()
    raise ValueError("is empty; give a value, or remove the line to have the default")


def _items(kind: Any, raw: str | tuple[str, ...], meta: Meta) -> tuple[Any, ...]:
    if get_args(kind)[0] is int:
        words = raw.replace(",", " ").split() if isinstance(raw, str) else raw
        numbers = tuple(_integer(word) for word in words)
        for number in numbers:
            _check_bounds(number, meta)
        return numbers
    if not isinstance(raw, str):
        return tuple(raw)
    try:
        return tuple(shlex.split(raw))
    except ValueError as error:
        raise ValueError("has a quote that does not end") from error


def _one(kind: Any, text: str, meta: Meta) -> Any:
    if kind is bool:
        return _boolean(text)
    if kind is Gid:
        return _gid(text)
    if kind is int:
        return _integer(text)
    if kind is Decimal:
        return _decimal(text)
    if kind is Secret:
        return Secret(text)
    if kind in (Bytes, Seconds):
        if not text.isascii():
            raise ValueError(f"{text!r} is not written in ASCII digits")
        return parse_bytes(text) if kind is Bytes else parse_duration(text)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _choice(kind, text)
    return _text(text, meta)


def _boolean(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ValueError(f"{text!r} is neither yes nor no; write 1, true, yes, on, or 0, false, no, off")
    return _WORDS[text.lower()]


def _gid(text: str) -> Gid | None:
    # NCCL would read 010 as octal and cut `3 # note` at the blank, so only the plain form may pass.
    if text == "auto":
        return None
    if not re.fullmatch(r"0|[1-9][0-9]{0,2}", text):
        raise ValueError(f"{text!r} is not a GID index; write 0 to 255 in plain decimal, or auto")
    return Gid(int(text))


def _integer(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]+", text):
        raise ValueError(f"{text!r} is not a whole number; write decimal digits only")
    digits = text.lstrip("-").lstrip("0") or "0"
    if len(digits) > 19:  # compared as text: no number is too long to be refused
        raise ValueError(f"{text[:20]}... is far too large")
    return -int(digits) if text.startswith("-") else int(digits)


def _decimal(text: str) -> Decimal:
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12}", text):
        raise ValueError(f"{text!r} is not a number; write digits with a dot, e.g. 1.5")
    return Decimal(text)


def _choice(kind: type[Enum], text: str) -> Enum:
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not one of {', '.join(str(one.value) for one in kind)}") from error


def _text(text: str, meta: Meta) -> str:
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise ValueError("has a control character in it")
    if meta.pattern and not re.fullmatch(meta.pattern, text, re.ASCII):
        raise ValueError(f"{text!r} is not {meta.allowed}")
    if meta.is_path:
        _check_path(text)
    return text


def _check_path(text: str) -> None:
    if "$" in text:
        raise ValueError(f"{text!r} has a `$`, and no variable is expanded; write the folder, or `~/` for the home")
    if not (text == "~" or text.startswith(("/", "~/"))):
        raise ValueError(f"{text!r} is neither absolute nor under `~/`: it is a path on the nodes")


def _check_bounds(value: Any, meta: Meta) -> None:
    if value is None or isinstance(value, bool | str | Secret | Enum):
        return
    low = meta.low if meta.low is not None else 0
    if value < low or (meta.high is not None and value > meta.high):
        raise ValueError(f"{show(value)} is out of bounds; {bounds(meta)}")
    if meta.above is not None and value <= meta.above:
        raise ValueError(f"{show(value)} is out of bounds; {bounds(meta)}")
    if meta.step is not None and value % meta.step:
        raise ValueError(f"{show(value)} is not a multiple of {meta.step}")


def bounds(meta: Meta) -> str:
    """`1 to 65535`, `more than 0, at most 1`, `at least 1`."""
    if meta.above is not None:
        return f"more than {meta.above:.10g}" + (f", at most {meta.high:.10g}" if meta.high is not None else "")
    low = f"{meta.low or 0:.10g}"
    text = f"{low} to {meta.high:.10g}" if meta.high is not None else f"at least {low}"
    return f"{text}, a multiple of {meta.step}" if meta.step else text


def show(value: Any) -> str:
    """A value as a person reads it, and as `.env` would take it; a secret stays masked."""
    match value:
        case None:
            return ""
        case bool():
            return "1" if value else "0"
        case float():
            return f"{value:.10g}"
        case tuple() if all(isinstance(one, int) for one in value):
            return ",".join(str(one) for one in value)
        case tuple() if all(isinstance(one, str) for one in value):
            return shlex.join(value)
        case tuple():
            return " ".join(f"{name}={shlex.join(text) if isinstance(text, tuple) else text}" for name, text in value)
        case _:
            return str(value)


def plain(value: Any) -> Any:
    """A value for JSON: numbers, texts, lists, maps; a secret stays masked."""
    match value:
        case None | bool() | int() | float():
            return value
        case Decimal():
            return float(value)
        case Enum():
            return value.value
        case tuple() if value and all(isinstance(one, tuple) for one in value):
            return {name: plain(item) for name, item in value}
        case tuple():
            return [plain(one) for one in value]
        case _:
            return str(value)
