"""Read layers inside a helper container, where the engine's store is root's.

Arguments as one JSON object: {"do": "describe", ...} prints what `describe` returns, {"do": "read", "layer": 3,
"offset": 0, ...} writes the bytes of one blob.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict

from cluster.agent.layers import NotReadable, describe, open_store


def serve_layers(wanted: Dict[str, Any]) -> None:
    store = open_store(wanted)
    if wanted["do"] == "describe":
        print(json.dumps(describe(store, wanted["first"])), flush=True)
        return
    for data in store.read(wanted["layer"], wanted["offset"]):
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]


if __name__ == "__main__":
    try:
        serve_layers(json.loads(sys.argv[1]))
    except NotReadable as error:
        print(error, file=sys.stderr)
        sys.exit(3)
