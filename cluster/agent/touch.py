"""Touch folders so that no file server that is gone can hold us up, and say which mount a path lies on.

A part of programs that run on a node. Whoever touches a dead hard mount waits for ever, and can only be killed: a
child of ours touches.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from typing import List, Tuple

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


def mounts() -> List[Tuple[str, str, str]]:
    """(folder, file system, options), the last mounted last; from the kernel, so that no file system is touched."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            words, after = left.split(), right.split()
            found.append((unescaped(words[4]), after[0], words[5] + "," + after[-1]))
    return found


def mount_of(path: str) -> Tuple[str, str, str]:
    """The mount that a path without links lies on."""
    best = ("", "unknown", "")
    for one in mounts():
        if (path == one[0] or path.startswith(one[0].rstrip("/") + "/")) and len(one[0]) >= len(best[0]):
            best = one
    return best


def touched(path: str) -> int:
    """The errno that a folder gives a child of ours that can be killed; 0 when it can be read."""
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
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else errno.EIO
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)  # not waited for: it may stay in the kernel for as long as the server is gone
    return errno.ETIMEDOUT


def worded(code: int) -> str:
    return WORDS.get(code, os.strerror(code)) if code else ""
