"""Drop a model's files from the page cache, and nobody else's. Runs on a node; needs no more than to read them.

Argument: JSON {"model": folder}. Answer: JSON {"files": n, "free_before": bytes, "free_after": bytes}.

Clean pages count as available already, so that MemAvailable does not change; MemFree does, and on a GB10 that is what
CUDA sees. Pages that are mapped or not written yet stay.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import sys


def free() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        found = re.search(r"^MemFree:\s+(\d+)", file.read(), re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


def drop(folder: str) -> int:
    """Follows links: in a download cache the files are links to where the bytes lie."""
    count = 0
    for path in glob.glob(os.path.join(glob.escape(folder), "*.safetensors")):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            count += 1
    return count


if __name__ == "__main__":
    before = free()
    files = drop(os.path.expanduser(json.loads(sys.argv[1])["model"]))
    json.dump({"files": files, "free_before": before, "free_after": free()}, sys.stdout)
