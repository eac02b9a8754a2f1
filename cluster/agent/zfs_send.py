"""Send a ZFS stream to a worker, and say how far it is. Runs on the head.

Argument: JSON {"send", "dry", "guid": [words of commands here], "way": [words that reach zfs_take], "zfs": [words
there], "receive": [words], "dataset", "snapshot"}. Answer: lines of JSON {"done", "total", "rate"}. What counts is the
guid of the snapshot that the worker has afterwards: exit codes lie both ways. The stream does not pass through here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Dict, List, Optional

from cluster.agent.zfs_said import ABANDON, MEANINGS, kind_of

SSH_EXIT = 255
TOKEN = re.compile(rb"resume token contents:|nvlist version: |\s+\w+ = ")  # told of a stream that goes on, no error

Json = Dict[str, Any]


def tell(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def size_of(words: List[str]) -> Optional[int]:
    """What a dry run says; older versions say it on standard error."""
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    rows = [line.split("\t") for line in done.stdout.decode("utf-8", "replace").splitlines()]
    sizes = [int(row[1]) for row in rows if row[0] == "size" and len(row) > 1 and row[1].isdigit()]
    return sizes[-1] if sizes else None


def request(argv: List[str], dataset: str) -> bytes:
    return json.dumps({"argv": argv, "dataset": dataset}).encode() + b"\n"


def there(want: Json, *words: str, dataset: str = "") -> "subprocess.CompletedProcess[bytes]":
    """A command of zfs on the worker."""
    asked = request([*want["zfs"], *words], dataset)
    return subprocess.run(want["way"], input=asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)


def is_received(want: Json) -> bool:
    mine = subprocess.run(want["guid"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    theirs = there(want, "get", "-Hp", "-o", "value", "guid", "%s@%s" % (want["dataset"], want["snapshot"]))
    lines = theirs.stdout.split()  # a login shell may have printed something before
    return mine.returncode == 0 and theirs.returncode == 0 and mine.stdout.strip() in lines


def with_newest_token(want: Json) -> Json:
    """Where to go on from. A receive whose sender was cut off may have written after its token was looked at: then the
    old token is refused, in words about kernel modules. It is ended first, by whoever asks for the dataset."""
    if "-t" not in want["send"]:
        return want
    old = want["send"][want["send"].index("-t") + 1]
    asked = there(want, "get", "-Hp", "-o", "value", "receive_resume_token", want["dataset"], dataset=want["dataset"])
    newest = [word for word in asked.stdout.decode("utf-8", "replace").split() if word[:2] == old[:2]]
    if not newest:
        return want
    return dict(want, **{key: [newest[-1] if word == old else word for word in want[key]] for key in ("send", "dry")})


class Sending:
    """`zfs send`, joined to a receive on the worker."""

    def __init__(self, want: Json) -> None:
        self.want = want
        self.total = size_of(want["dry"])
        self.said = tempfile.TemporaryFile()  # noqa: SIM115  # read after its end
        self.errors: List[str] = []
        self.done, self.rate, self.at = 0, 0.0, time.monotonic()

    def run(self) -> bool:
        take = subprocess.Popen(self.want["way"], stdin=subprocess.PIPE, stdout=self.said, stderr=self.said)
        assert take.stdin is not None
        try:
            take.stdin.write(request([*self.want["zfs"], *self.want["receive"]], self.want["dataset"]))
            take.stdin.flush()
        except BrokenPipeError:
            self.codes = (0, take.wait())
            return False
        send = subprocess.Popen(self.want["send"], stdin=subprocess.DEVNULL, stdout=take.stdin, stderr=subprocess.PIPE)
        with contextlib.suppress(BrokenPipeError):
            take.stdin.close()
        listener = threading.Thread(target=self.listen, args=(send,), daemon=True)
        listener.start()
        taken = take.wait()
        if taken and send.poll() is None:
            send.kill()  # it may not notice for long that nobody takes it
        self.codes = (send.wait(), taken)
        listener.join()
        return self.codes == (0, 0)

    def listen(self, send: "subprocess.Popen[bytes]") -> None:
        """With -P it tells each second: time, bytes so far, snapshot."""
        assert send.stderr is not None
        for line in send.stderr:
            words = line.decode("utf-8", "replace").rstrip("\n").split("\t")
            if len(words) == 3 and words[0].count(":") == 2 and words[1].isdigit():
                self.progress(int(words[1]))
            elif words[0] not in ("full", "incremental", "size") and not TOKEN.match(line):
                self.errors.append("\t".join(words))

    def progress(self, done: int) -> None:
        now = time.monotonic()
        self.rate = (done - self.done) / max(now - self.at, 1e-3)
        self.done, self.at = done, now
        total = None if self.total is None else max(self.total, done)
        tell(done=done, total=total, rate=self.rate)

    def words(self) -> List[str]:
        self.said.seek(0)
        theirs = self.said.read().decode("utf-8", "replace").splitlines()
        return [line for side in (theirs, self.errors) for line in [one for one in side if one.strip()][-8:]]


def main(want: Json) -> int:
    os.environ["LC_ALL"] = "C"
    want = with_newest_token(want)
    sending = Sending(want)
    fine = sending.run()
    words = sending.words()
    kind = kind_of("\n".join(words))
    if not fine and kind in ABANDON:
        # Once: the plan that is made next starts from what both have. That there is nothing to abort is as good.
        there(want, "receive", "-A", want["dataset"], dataset=want["dataset"])
        tell(abandoned=MEANINGS[kind])
        return 0
    if is_received(want):
        tell(received=want["snapshot"])
        return 0
    meaning = MEANINGS[kind] or "zfs send ended with %d, zfs receive with %d" % sending.codes
    if SSH_EXIT in sending.codes:
        meaning = "the way to the worker broke; " + MEANINGS["cut"].partition("; ")[2]
    sys.stderr.write("\n".join([*words, meaning]) + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
