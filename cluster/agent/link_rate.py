"""Measure how fast ssh carries bytes to another node, over as many streams as a copy would use. Runs on the head.

Argument: JSON {"way": [words in front of a command there], "streams", "seconds"}. Answer: JSON {"rate": bytes a
second}. Zeros are sent, and thrown away on arrival: ciphers and links take them as they take weights.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List

BLOCK = bytes(1 << 20)
WARM = 4  # blocks that go before the clock runs: logging in takes longer than they do


class Stream:
    def __init__(self, words: List[str]) -> None:
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.sent, self.rate = 0, 0.0

    def run(self, seconds: float, ready: threading.Barrier) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, threading.BrokenBarrierError):
            for _ in range(WARM):
                self.process.stdin.write(BLOCK)
            ready.wait(30)
            began = time.monotonic()
            while time.monotonic() - began < seconds:
                self.process.stdin.write(BLOCK)
                self.sent += len(BLOCK)
            self.process.stdin.close()
            self.process.wait()
            self.rate = self.sent / (time.monotonic() - began)
        if not self.rate:
            ready.abort()
            self.process.kill()


def main(want: Dict[str, Any]) -> Dict[str, float]:
    words = [*want["way"], "cat", ">", "/dev/null"] if want["way"] else ["sh", "-c", "cat > /dev/null"]
    streams = [Stream(words) for _ in range(want["streams"])]
    ready = threading.Barrier(len(streams))
    threads = [threading.Thread(target=one.run, args=(want["seconds"], ready)) for one in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"rate": sum(one.rate for one in streams)}


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
