"""Read a file in pieces, and write one so that nobody ever sees half of it. A part of `wrap`."""

from __future__ import annotations

import contextlib
import os

from cluster.agent.wrap_line import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_file(path: str, start: int, length: int | None) -> Iterator[bytes]:
    """Yields the bytes in pieces."""
    with open(os.path.expanduser(path), "rb") as file:
        if start:
            file.seek(start)
        while length is None or length > 0:
            data = file.read(1 << 20 if length is None else min(length, 1 << 20))
            if not data:
                return
            length = None if length is None else length - len(data)
            yield data


def write_file(path: str, data: bytes, mode: int) -> None:
    """Nobody ever sees half a file: temporary name, fsync, rename, fsync of the folder."""
    path = os.path.expanduser(path)
    folder = os.path.dirname(path) or "."
    make_folders(folder)
    temporary = "%s.%d.%s.new" % (path, os.getpid(), os.urandom(4).hex())
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: str) -> None:
    if os.path.isdir(folder):
        return
    make_folders(os.path.dirname(folder) or ".")
    with contextlib.suppress(FileExistsError):  # somebody else made it, or a file is in the way: opening says which
        os.mkdir(folder, 0o700)
