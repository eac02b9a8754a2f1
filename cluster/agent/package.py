"""Find an installed Python package and its version. Runs on a node.

Argument: {"root": the package's own folder, or empty; "venv": folder; "package": name}.
Answer: {"root": real path, or empty when it is not there; "version": text, or empty when nothing says it}.
"""

from __future__ import annotations

import glob
import json
import os
import re
import sys
from typing import Dict


def look(root: str, venv: str, package: str) -> Dict[str, str]:
    if not root and venv:
        pattern = os.path.join(os.path.expanduser(venv), "lib", "python3*", "site-packages", package)
        root = next((one for one in sorted(glob.glob(pattern)) if os.path.isdir(one)), "")
    root = os.path.realpath(os.path.expanduser(root)) if root else ""
    if not root or not os.path.isdir(root):
        return {"root": "", "version": ""}
    named = os.path.join(os.path.dirname(root), package.replace("-", "_") + "-*.dist-info")
    versions = [re.sub(r"^.*?-|\.dist-info$", "", os.path.basename(one)) for one in glob.glob(named)]
    return {"root": root, "version": versions[0] if len(versions) == 1 else ""}


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    json.dump(look(wanted["root"], wanted["venv"], wanted["package"]), sys.stdout)
