"""The line to the caller: what is taken from it, and the frames of an answer. A part of `wrap`."""

from __future__ import annotations

import errno
import json
import os
import struct

TYPE_CHECKING = False  # typing takes 10 ms to import, and every command would pay for it


def take(size: int) -> bytes:
    """Exactly `size` bytes of the caller's line, fewer only when it ended. Never reads ahead."""
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def frame(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">cI", kind, len(data)) + data


def end(how: str, **details: object) -> bytes:
    return frame(b"x", json.dumps(dict(details, how=how)).encode())


def failed(error: OSError) -> bytes:
    return end("failed", code=errno.errorcode.get(error.errno or 0, ""), text=os.strerror(error.errno or 0))


def send(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
