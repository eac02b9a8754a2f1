"""Where a program is looked for, and the one that is run. A part of `wrap`."""

from __future__ import annotations

import os
import sys

# A non-login shell leaves these out, and zfs, exportfs, snap's docker and nvcc live in them.
EXTRA_DIRS = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/snap/bin",
    "/usr/local/cuda/bin",
    "~/.local/bin",
)


def search_path(given: str) -> list[str]:
    dirs = [part for part in given.split(":") if part]
    for part in EXTRA_DIRS:
        full = os.path.expanduser(part)
        if full not in dirs:
            dirs.append(full)
    return dirs


def find(program: str, dirs: list[str], cwd: str | None) -> tuple[str | None, list[str]]:
    """The file to run and where we looked; None when it is in none of these places."""
    if "/" in program:
        candidates = [os.path.join(cwd or "", program)]
    else:
        candidates = [os.path.join(part, program) for part in dirs]
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate, dirs
    return None, candidates if "/" in program else dirs


def named(program: str) -> str:
    """`python3` is the one that runs us: it works, and the first on the path may be a version manager's slow script."""
    return sys.executable if program == "python3" and sys.executable else program
