"""Evict the files of folders from the page cache, and nobody else's, and say what that costs. Runs on a node.

Argument: JSON {"folders": [folder, ...], "all": bool, "price": bool}. `all`: everybody's pages too, which needs root.
Answer: JSON {"files": n, "size": bytes, "free_before": bytes, "free_after": bytes, "resident_before": bytes | null,
"resident_after", "kept": [names of files that kept pages], "rate": bytes a second of reading again | null}.

Clean pages count as available already, so that MemAvailable does not change; MemFree does, and on a GB10 that is what
CUDA sees. Pages that are mapped or not written yet stay. Who may not write a file is told that all of it is resident:
then nothing is said of that. The price is measured on a piece of the largest file, which is evicted again.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import os
import re
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional

PIECE, SECONDS = 256 << 20, 2.0
PROT_READ, MAP_SHARED = 1, 1
LOWEST = bytes(number & 1 for number in range(256))


def free() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        found = re.search(r"^MemFree:\s+(\d+)", file.read(), re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


def weights(folder: str) -> List[str]:
    """Links are followed later: in a download cache the files are links to where the bytes lie."""
    return sorted(glob.glob(os.path.join(glob.escape(os.path.expanduser(folder)), "*.safetensors")))


def resident(path: str) -> Optional[int]:
    """Bytes of a file in memory, by mincore; None where the kernel would not tell us the truth."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    numbers = [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *numbers]
    library.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    seen = os.stat(path)
    if os.geteuid() not in (0, seen.st_uid):
        return None
    if not seen.st_size:
        return 0
    page = os.sysconf("SC_PAGESIZE")
    with open(path, "rb") as file:
        at = library.mmap(None, seen.st_size, PROT_READ, MAP_SHARED, file.fileno(), 0)
    if at in (None, ctypes.c_void_p(-1).value):
        return None
    pages = ctypes.create_string_buffer((seen.st_size + page - 1) // page)
    failed = library.mincore(at, seen.st_size, pages)
    library.munmap(at, seen.st_size)
    # only the lowest bit of each byte means something
    return None if failed else min(seen.st_size, page * pages.raw.translate(LOWEST).count(1))


def evict(path: str) -> None:
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def evict_all() -> None:
    os.sync()
    act = ["sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"]
    subprocess.run(act if os.geteuid() == 0 else ["sudo", "-n", *act], check=True)


def rate(path: str) -> Optional[float]:
    """How fast it is read when it is not in memory."""
    read, began = 0, time.monotonic()
    with open(path, "rb", buffering=0) as file:
        while read < PIECE and time.monotonic() - began < SECONDS:
            got = len(file.read(8 << 20))
            if not got:
                break
            read += got
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    spent = time.monotonic() - began
    return read / spent if read and spent else None


def main(want: Dict[str, Any]) -> Dict[str, Any]:
    paths = [path for folder in want["folders"] for path in weights(folder)]
    before, free_before, files = {}, free(), []
    for path in paths:
        with contextlib.suppress(OSError):
            before[path] = resident(path)
            files.append(path)
    if want.get("all"):
        evict_all()
    for path in files:
        with contextlib.suppress(OSError):
            evict(path)
    free_after, after = free(), {path: resident(path) for path in files}
    known = None not in [*before.values(), *after.values()]
    largest = max(files, key=os.path.getsize, default=None)
    return {
        "files": len(files),
        "size": sum(os.path.getsize(path) for path in files),
        "free_before": free_before,
        "free_after": free_after,
        "resident_before": sum(one or 0 for one in before.values()) if known else None,
        "resident_after": sum(one or 0 for one in after.values()) if known else None,
        "kept": [os.path.basename(path) for path in files if after[path]] if known else [],
        "rate": rate(largest) if largest and want.get("price") else None,
    }


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
