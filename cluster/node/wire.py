"""The talk with `agent/wrap.py` as plain data: the request in bytes, the answer from bytes. No input or output here."""

import json
import math
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from cluster.model.bundle import bundle
from cluster.model.steps import Command

# Reads from fd 0 exactly, never ahead: what follows the source belongs to it. It has no quote, backslash, dollar or
# exclamation mark, so that any shell passes it on unchanged between quotes of either kind.
BOOT = (
    "import os;r=lambda n:(lambda d:d+r(n-len(d))if d else d)(os.read(0,n))if n else bytes();"
    "g=dict();exec(r(int(r(8))),g);g[str().join(map(chr,(109,97,105,110)))]()"  # main
)
# The wrapper's parts, as they are joined.
WRAPPER = ("wrap_line", "wrap_find", "wrap_files", "wrap_copy", "wrap_call", "wrap")
ALIVE = b"."
STOP = b"s"


@cache
def _source() -> bytes:
    return bundle(resources.files("cluster.agent").joinpath(f"{part}.py").read_bytes() for part in WRAPPER)


def run_request(command: Command, marker: str, patience: float | None) -> bytes:
    """`patience`: seconds without a sign of life after which the node takes the caller for gone."""
    if any("\0" in text for text in command.argv) or not command.argv:
        raise ValueError(f"not an argument list a system can run: {command.argv!r}")
    request = {
        "do": "run",
        "argv": command.argv,
        "env": dict(command.env),
        "cwd": str(command.cwd) if command.cwd else None,
        "limit": command.limit if math.isfinite(command.limit) else None,
        "patience": patience,
    }
    return _packed(request, marker, command.stdin)


def read_request(path: str, start: int, length: int | None, marker: str) -> bytes:
    return _packed({"do": "read", "path": path, "start": start, "length": length}, marker, b"")


def write_request(path: str, data: bytes, mode: int, marker: str) -> bytes:
    return _packed({"do": "write", "path": path, "mode": mode}, marker, data)


def _packed(request: dict[str, Any], marker: str, data: bytes) -> bytes:
    head = json.dumps({**request, "marker": marker, "size": len(data)}).encode()
    return b"%08d%s%08d%s%s" % (len(_source()), _source(), len(head), head, data)


@dataclass(frozen=True, slots=True)
class End:
    """How it ended: `exit`, or ended by us for `limit` or `stop`, or `missing` or `failed` before it could start.

    alive  something of it is still there although it was killed
    """

    how: str
    exit: int = 0
    alive: bool = False
    tried: tuple[str, ...] = ()
    code: str = ""
    text: str = ""


class Garbled(Exception):
    """Something else than the wrapper writes into its output."""


@dataclass(slots=True)
class Reply:
    """Takes the bytes as they come and tells noise, output and end apart."""

    marker: bytes
    noise: bytearray = field(default_factory=bytearray)
    end: End | None = None
    started: bool = False
    _rest: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """The pieces of output, (`o` or `e`, bytes), that are complete now."""
        self._rest += data
        if not self.started and not self._find_marker():
            return []
        pieces = []
        while self.end is None and len(self._rest) >= 5:
            kind, size = chr(self._rest[0]), int.from_bytes(self._rest[1:5], "big")
            if kind not in "oex":
                raise Garbled(bytes(self._rest[:200]))
            if len(self._rest) < 5 + size:
                break
            payload = bytes(self._rest[5 : 5 + size])
            del self._rest[: 5 + size]
            if kind == "x":
                self.end = _end(payload)
            else:
                pieces.append((kind, payload))
        return pieces

    def _find_marker(self) -> bool:
        before, found, after = self._rest.partition(self.marker)
        if found:
            self.started = True
            self.noise += before
            self._rest = after
        return self.started

    def heard(self) -> bytes:
        """What came instead of an answer, when none came."""
        return bytes(self.noise if self.started else self._rest)


def _end(payload: bytes) -> End:
    answer = json.loads(payload)
    answer["tried"] = tuple(answer.get("tried", ()))
    return End(**answer)
