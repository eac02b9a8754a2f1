"""Say of folders whether they are there and on which file system. Runs on a node; no dead server can hold it up.

Argument: JSON {"paths": {name: folder}}. Answer: JSON {name: {"path", "kind": file system, "problem": text or ""}}.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict

from cluster.agent.touch import mount_of, touched, worded


def main(want: Dict[str, Any]) -> Dict[str, Any]:
    said = {}
    for name, folder in want["paths"].items():
        path = os.path.expanduser(folder)
        problem = touched(path)
        real = path if problem else os.path.realpath(path)
        said[name] = {"path": folder, "kind": mount_of(real)[1], "problem": worded(problem)}
    return said


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
