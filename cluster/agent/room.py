"""How much room a node's disks have. Argument: a JSON list of places, each a list of paths; `~/` is the node's home.

Of a place the first path counts that is there; where none is, or none may be seen, the first.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List


def room(paths: List[str]) -> Dict[str, Any]:
    """Of the file system that the path is on, or would be on: a folder may not be made yet, or not ours to enter."""
    expanded = [os.path.expanduser(path) for path in paths]
    place = next(filter(os.path.exists, expanded), expanded[0])
    while not _can_see(place):
        place = os.path.dirname(place)
    seen, disk = os.stat(place), os.statvfs(place)
    inodes = disk.f_favail if disk.f_files else None
    return {"mount": place, "device": seen.st_dev, "available": disk.f_bavail * disk.f_frsize, "inodes": inodes}


def _can_see(place: str) -> bool:
    try:
        os.statvfs(place)
    except OSError:
        return place in ("/", "")
    return True


if __name__ == "__main__":
    print(json.dumps([room(paths) for paths in json.loads(sys.argv[1])]))
