"""Hold the lock of this head while our caller is connected. Runs on the head, from standard input.

Argument: JSON {"path", "holder": {...}}. It prints one JSON line: {"held": true, "stale": {...} | null} once it has the
lock; {"held": false, "holder": {...}} or {"held": false, "error": sentence} and ends when it has not. The lock is
flock(2) on the file, so the kernel drops it when this program ends, however it ends; the text inside only says whose it
was. A text without the lock is a stale one, and a disk too full for the text is no reason not to lock.
"""

import fcntl
import json
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any


def main() -> None:
    want = json.loads(sys.argv[1])
    path = os.path.expanduser(want["path"])
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        tell({"held": False, "error": "cannot open the lock %s: %s" % (path, error.strerror)})
        return
    hold(file, want["holder"])


def hold(file: int, holder: dict[str, Any]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        tell({"held": False, "holder": read(file)})
        return
    stale = read(file)
    write(file, json.dumps(holder))
    tell({"held": True, "stale": stale or None})
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    try:
        while True:
            time.sleep(3600)
    finally:
        write(file, "")


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
