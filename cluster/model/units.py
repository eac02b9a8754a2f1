"""Bytes and durations: parse what people write, print what people read."""

import re
from typing import NewType

Bytes = NewType("Bytes", int)
Seconds = NewType("Seconds", float)

_BINARY = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_LETTER = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SECONDS = {"": 1.0, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def parse_bytes(text: str) -> Bytes:
    """`2684354560`, `2.5GiB`, `64M` (as vLLM reads it: a power of two) -> bytes. ValueError says what is allowed."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    factor = (_BINARY | _LETTER).get(found[2]) if found else None
    if not found or factor is None:
        raise ValueError("a size is a number with an optional unit B, KiB, MiB, GiB or TiB")
    amount = float(found[1]) * factor if "." in found[1] else int(found[1]) * factor
    if amount != int(amount):
        raise ValueError("a size must be a whole number of bytes")
    return Bytes(int(amount))


def format_bytes(amount: int) -> str:
    """`106837311488` -> `99.5 GiB`; below one KiB plain bytes."""
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(amount) >= factor:
            return f"{amount / factor:.1f} {unit}"
    return f"{amount} B"


def parse_duration(text: str) -> Seconds:
    """`420`, `90s`, `25min`, `1.5h` -> seconds. ValueError says what is allowed."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|)", text.strip().lower())
    if not found:
        raise ValueError("a duration is a number of seconds, or has the unit s, min or h")
    return Seconds(float(found[1]) * _SECONDS[found[2]])


def format_duration(seconds: float) -> str:
    """`4.21` -> `4.2 s`, `1500` -> `25 min`, `5400` -> `1 h 30 min`."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
