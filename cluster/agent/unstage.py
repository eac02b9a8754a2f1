"""Remove what shipments left: staged layers, and the blobs of the registry that they went through.

Argument: JSON {"staging": folder, "registry": folder}. Prints the bytes that were freed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
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


def forget_registry(folder: str) -> int:
    """Only one that was made for us: it has our configuration."""
    if not os.path.exists(os.path.join(folder, "config.yml")):
        return 0
    freed = sum(os.path.getsize(os.path.join(place, name)) for place, _, names in os.walk(folder) for name in names)
    shutil.rmtree(folder)
    return freed


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    print(unstage(os.path.expanduser(wanted["staging"])) + forget_registry(os.path.expanduser(wanted["registry"])))
