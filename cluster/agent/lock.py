"""Hold the lock of this head while our caller is connected. Runs on the head, from standard input.

Argument: JSON {"path", "holder": {...}}. It prints one JSON line: {"held": true, "stale": {...} | null} once it has the
lock, or {"held": false, "holder": {...}} and ends. The lock is flock(2) on the file, so the kernel drops it when this
program ends, however it ends; the text inside only says whose it was. A text without the lock is a stale one.
"""

import fcntl
import json
import os
import signal
import sys
import time
from typing import Any, TextIO


def main() -> None:
    want = json.loads(sys.argv[1])
    path = os.path.expanduser(want["path"])
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="utf-8") as file:
        hold(file, want["holder"])


def hold(file: TextIO, holder: dict[str, Any]) -> None:
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


def read(file: TextIO) -> dict[str, Any]:
    file.seek(0)
    text = file.read()
    try:
        return dict(json.loads(text)) if text else {}
    except ValueError:
        return {"command": "unreadable lock text"}


def write(file: TextIO, text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def tell(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
