"""Read the log of one rank: what is new, the last lines, or follow it across its files."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from typing import BinaryIO, Callable, Deque, Iterator, List, NamedTuple, Optional, Tuple

from cluster.agent.own import Json, processes, shim_of, whole_path

Place = Tuple[int, int]  # inode of a log file, offset in it
HEARTBEAT = 5.0


class News(NamedTuple):
    """Whole lines, where to go on, bytes not read yet, and whether the place was gone (rotated away)."""

    lines: List[str]
    place: Optional[Place]
    behind: int
    lost: bool


def log_files(folder: str) -> List[BinaryIO]:
    """Opened, oldest first: an open file keeps its content while it is renamed."""
    files: List[BinaryIO] = []
    number = 0
    while True:
        path = os.path.join(folder, "log.%d" % number if number else "log")
        try:
            files.insert(0, open(path, "rb"))  # noqa: SIM115  closed by the readers
        except OSError:
            return files
        number += 1


def new_lines(folder: str, place: Optional[Place], most: int = 1 << 18) -> News:
    """The lines after a place, from the very first when there is none; at most so many bytes."""
    files = log_files(folder)
    try:
        inodes = [os.fstat(file.fileno()).st_ino for file in files]
        lost = place is not None and place[0] not in inodes
        at = inodes.index(place[0]) if place and not lost else 0
        offset = place[1] if place and not lost else 0
        if files and offset > os.fstat(files[at].fileno()).st_size:  # emptied, or a new file under an old number
            lost, offset = True, 0
        data = b""
        while at < len(files):
            files[at].seek(offset)
            piece = files[at].read(most - len(data))
            piece = piece[: piece.rfind(b"\n") + 1]
            data, offset = data + piece, offset + len(piece)
            if at + 1 == len(files) or os.fstat(files[at].fileno()).st_size > offset:
                break
            at, offset = at + 1, 0
        behind = sum(os.fstat(file.fileno()).st_size for file in files[at:]) - offset if files else 0
        return News(text_lines(data), (inodes[at], offset) if files else None, behind, lost)
    finally:
        for file in files:
            file.close()


def last_lines(folder: str, count: int, most: int = 1 << 18) -> News:
    """The last lines, out of an older file too when the present one has just begun."""
    files = log_files(folder)
    try:
        data, size = b"", 0
        for file in reversed(files):
            size = os.fstat(file.fileno()).st_size
            begin = max(0, size - (most - len(data)))
            file.seek(begin)
            piece = file.read(size - begin)
            data = (piece[piece.find(b"\n") + 1 :] if begin else piece) + data
            if data.count(b"\n") >= count or begin:
                break
        place = (os.fstat(files[-1].fileno()).st_ino, os.fstat(files[-1].fileno()).st_size) if files else None
        lines = text_lines(data)
        return News(lines[-count:] if count else [], place, 0, False)
    finally:
        for file in files:
            file.close()


def text_lines(data: bytes) -> List[str]:
    return [line.decode("utf-8", "replace") for line in data.split(b"\n") if line]


def told_lines(news: News) -> List[str]:
    """With a line in the place of those that nobody will read any more."""
    if not (news.lost and news.lines):
        return news.lines
    at = news.lines[0].partition(" ")[0]
    return [at + " sparkctl: lines are missing here, newer ones took their place before they were read", *news.lines]


def tail(request: Json) -> Iterator[str]:
    """Lines with their times; when following, an empty one every few seconds shows whether somebody still reads.

    Ends with the rank: a log without a shim gets no more lines.
    """
    folder = whole_path(request["dir"])
    since, pattern = request.get("since") or "", re.compile(request.get("grep") or "")

    def is_wanted(line: str) -> bool:
        stamp, _, text = line.partition(" ")
        return stamp >= since and bool(pattern.search(text))

    place: Optional[Place] = None
    kept: Deque[str] = deque(maxlen=request.get("lines"))
    while True:
        news = new_lines(folder, place)
        kept.extend(line for line in told_lines(news) if is_wanted(line))
        if request.get("lines") is None:
            yield from kept
            kept.clear()
        place = news.place
        if not news.lines:
            break
    yield from kept
    if request.get("follow"):
        yield from follow(folder, place, is_wanted)


def follow(folder: str, place: Optional[Place], is_wanted: Callable[[str], bool]) -> Iterator[str]:
    quiet_since = time.monotonic()
    while True:
        lives = shim_of(folder, processes()) is not None
        news = new_lines(folder, place)
        place = news.place
        yield from filter(is_wanted, told_lines(news))
        if not news.lines and not lives:
            return
        if news.lines:
            quiet_since = time.monotonic()
            continue
        if time.monotonic() > quiet_since + HEARTBEAT:
            quiet_since = time.monotonic()
            yield ""
        time.sleep(0.25)
