"""Run the packer in this process and end it with SIGKILL before its n-th call that changes a file (0: let it finish).

Standard input: the packer. Arguments: its request, n. Says at the end how many such calls there were,
and how much memory it had at most.
"""

import json
import os
import signal
import sys
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

CHANGES = ("pwritev", "fdatasync", "write", "fsync", "ftruncate", "rename", "unlink")


def main(request: str, last: int) -> int:
    calls = count(1)

    def watched(real: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            if next(calls) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **more)

        return call

    def collect_one(results: Any, most: int, patience: float) -> dict[int, int]:
        """Every chunk made durable on its own: the number of calls is always the same."""
        result = results.get()
        if isinstance(result, Exception):
            raise result
        return {result[0]: result[1]}

    pack: Any = ModuleType("pack")
    exec(compile(sys.stdin.buffer.read(), "pack", "exec"), pack.__dict__)  # as a node does
    pack.collect = collect_one
    for name in CHANGES:
        setattr(os, name, watched(getattr(os, name)))
    code: int = pack.main(json.loads(request))
    status = Path("/proc/self/status").read_text(encoding="ascii").split()
    peak = int(status[status.index("VmHWM:") + 1]) * 1024
    print(json.dumps({"kind": "calls", "count": next(calls) - 1, "peak": peak}))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
