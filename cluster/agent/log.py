"""The log of one rank: lines behind a UTC time, a new file in time, no death by a full disk."""

from __future__ import annotations

import os
from typing import List

from cluster.agent.own import stamp


class Log:
    """`log`, then `log.1`, `log.2`: older ones. A full disk costs lines, which are counted, never the server."""

    def __init__(self, path: str, limit: int, keep: int) -> None:
        self.path, self.limit, self.keep = path, limit, keep
        self.file, self.size, self.lost, self.why = -1, 0, 0, ""
        self.open()

    def open(self) -> None:
        fresh = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self.file >= 0:
            os.close(self.file)
        self.file, self.size = fresh, os.fstat(fresh).st_size

    def add(self, lines: List[bytes], at: float) -> None:
        prefix = stamp(at).encode() + b" "
        data = b"".join(prefix + line + b"\n" for line in lines)
        if self.size and self.size + len(data) > self.limit:
            self.rotate()
        if self.lost:
            told = "sparkctl: %d lines are missing here, they could not be written: %s\n" % (self.lost, self.why)
            data = prefix + told.encode() + data
        self.lost = 0 if self.write(data) else self.lost + len(lines)

    def write(self, data: bytes) -> bool:
        done = 0
        try:
            while done < len(data):
                done += os.write(self.file, data[done:])
        except OSError as error:
            self.why = str(error.strerror)
            os.ftruncate(self.file, os.fstat(self.file).st_size - done)  # no half line stays
            return False
        self.size = os.fstat(self.file).st_size  # somebody may have emptied it to make room
        return True

    def rotate(self) -> None:
        try:
            for number in range(self.keep, 0, -1):
                younger = self.path if number == 1 else "%s.%d" % (self.path, number - 1)
                if os.path.exists(younger):
                    os.replace(younger, "%s.%d" % (self.path, number))
            self.open()
        except OSError as error:
            self.why = str(error.strerror)  # the file in hand goes on


class Lines:
    r"""Bytes -> whole lines. Both \n and \r end one, as progress bars never send \n; empty ones are left out."""

    LONGEST = 65536

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> List[bytes]:
        parts = (self.rest + data).replace(b"\r", b"\n").split(b"\n")
        self.rest = parts.pop()
        if len(self.rest) > self.LONGEST:
            parts += self.flush()
        return [part for part in parts if part]

    def flush(self) -> List[bytes]:
        """What has no end yet, as a line of its own."""
        rest, self.rest = self.rest, b""
        return [rest] if rest else []
