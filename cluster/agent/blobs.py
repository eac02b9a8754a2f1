"""Which blobs a containerd store has already. Arguments as one JSON object: {"roots": [...], "digests": [...]}.

Prints those that are there; none where the store is not ours to look into.
"""

from __future__ import annotations

import json
import os
import sys
from typing import List

CONTENT_PLACE = "io.containerd.content.v1.content/blobs/sha256"


def blobs_there(roots: List[str], digests: List[str]) -> List[str]:
    places = [os.path.join(root, CONTENT_PLACE) for root in roots]
    return [one for one in digests if any(os.path.exists(os.path.join(p, one.partition(":")[2])) for p in places)]


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    print(json.dumps(blobs_there(wanted["roots"], wanted["digests"])))
