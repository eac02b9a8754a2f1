"""Hold the lock of this head while our caller is connected. Runs on the head, from standard input.

Argument: JSON {"path", "holder": {...}}. It prints one JSON line: {"held": true, "stale": {...} | null} once it has the
lock; {"held": false, "holder": {...}} or {"held": false, "error": sentence} and ends when it has not. The lock is
flock(2) on the file, so the kernel drops it when this program ends, however it ends; the text inside only says whose it
was. A text without the lock is a stale one, and a disk too full for the text is no reason not to lock. In the end the
file and the folders that were made for it are gone again.
"""

import errno
import fcntl
import json
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any

ATTEMPTS = 10


def main() -> None:
    want = json.loads(sys.argv[1])
    path = os.path.expanduser(want["path"])
    folders = missing(os.path.dirname(path))
    try:
        file, is_ours = take(path)
    except OSError as error:
        tell({"held": False, "error": "cannot open the lock %s: %s" % (path, error.strerror)})
        return
    if is_ours:
        hold(file, path, folders, want["holder"])
    else:
        tell({"held": False, "holder": read(file)})


def missing(folder: str) -> list[str]:
    """The folders on the way that are not there yet, innermost first."""
    found = []
    while folder and not os.path.isdir(folder):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


def take(path: str) -> tuple[int, bool]:
    """The open file, and whether we hold it. Who held it before may remove what we just opened: then once more."""
    for _ in range(ATTEMPTS):
        with suppress(FileNotFoundError):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return file, False
            if is_at(file, path):
                return file, True
            os.close(file)
    raise OSError(errno.EAGAIN, "it is made and removed all the time")


def is_at(file: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def hold(file: int, path: str, folders: list[str], holder: dict[str, Any]) -> None:
    stale = read(file)
    write(file, json.dumps(holder))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    try:
        tell({"held": True, "stale": stale or None})
        while True:
            time.sleep(3600)
    finally:
        remove(path, folders)


def remove(path: str, folders: list[str]) -> None:
    """While it is still ours. A folder that others use by now is not empty and stays."""
    with suppress(OSError):
        os.unlink(path)
        for folder in folders:
            os.rmdir(folder)


def read(file: int) -> dict[str, Any]:
    text = os.pread(file, 65536, 0).decode("utf-8", "replace")
    try:
        return dict(json.loads(text)) if text else {}
    except ValueError:
        return {"command": "unreadable lock text"}


def write(file: int, text: str) -> None:
    with suppress(OSError):  # the disk is full: the lock holds all the same
        os.ftruncate(file, 0)
        os.pwrite(file, text.encode(), 0)


def tell(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
