"""Remove what cut shipments left in a staging folder. Argument: the folder. Prints the bytes that were freed."""

from __future__ import annotations

import json
import os
import re
import sys

BLOB = re.compile(r"[0-9a-f]{64}(\.part)?")


def unstage(folder: str) -> int:
    freed = 0
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        if BLOB.fullmatch(name):
            path = os.path.join(folder, name)
            freed += os.path.getsize(path)
            os.unlink(path)
    return freed


if __name__ == "__main__":
    print(unstage(os.path.expanduser(json.loads(sys.argv[1]))))
