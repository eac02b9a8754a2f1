"""Say of folders whether they are there and on which file system. Runs on a node; no dead server can hold it up.

Argument: JSON {"paths": {name: folder}}. Answer: JSON {name: {"path", "kind": file system, "problem": text or ""}}.
Each folder is touched in a child process: one that waits for a server that is gone is killed after a few seconds.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from typing import Any, Dict, List, Tuple

PATIENCE = 8.0
WORDS = {
    errno.ENOENT: "is not there",
    errno.ENOTDIR: "is no folder",
    errno.EACCES: "no permission to read it",
    errno.ESTALE: "stale file handle: it was exported anew under a live mount; unmount it and mount it again",
    errno.ETIMEDOUT: "the file server does not answer",
    errno.ENOTCONN: "the mount is dead: its SSHFS or FUSE process ended",
}


def unescaped(text: str) -> str:
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, letter)
    return text


def mounts() -> List[Tuple[str, str]]:
    """(folder, file system), the last mounted last; read from the kernel, so that no file system is touched."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            found.append((unescaped(left.split()[4]), right.split()[0]))
    return found


def kind_of(path: str) -> str:
    best = ("", "unknown")
    for folder, kind in mounts():
        if (path == folder or path.startswith(folder.rstrip("/") + "/")) and len(folder) >= len(best[0]):
            best = (folder, kind)
    return best[1]


def touched(path: str) -> str:
    """What is wrong with a folder, seen by a child that can be killed; empty when nothing is."""
    child = os.fork()
    if child == 0:
        try:
            os.scandir(path).close()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        gone, status = os.waitpid(child, os.WNOHANG)
        if gone:
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1
            return WORDS.get(code, os.strerror(code)) if code else ""
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)  # not waited for: it may stay in the kernel for as long as the server is gone
    return WORDS[errno.ETIMEDOUT]


def main(want: Dict[str, Any]) -> Dict[str, Any]:
    said = {}
    for name, folder in want["paths"].items():
        path = os.path.expanduser(folder)
        problem = touched(path)
        real = path if problem else os.path.realpath(path)
        said[name] = {"path": folder, "kind": kind_of(real), "problem": problem}
    return said


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
