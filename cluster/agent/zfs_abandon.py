"""Give up a receive that was cut off and leads nowhere any more. Runs on a worker.

Argument: JSON {"argv": [words of `zfs receive -A DATASET`]}. That there is none left is as good.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import List

from cluster.agent.zfs_said import kind_of


def main(argv: List[str]) -> int:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, env=dict(os.environ, LC_ALL="C"))
    text = done.stderr.decode("utf-8", "replace")
    if not done.returncode or kind_of(text) == "nothing_to_abort":
        return 0
    sys.stderr.write(text)
    return 1


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])["argv"]))
