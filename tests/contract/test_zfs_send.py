"""What is told of a ZFS stream that failed. The two ends are shell lines; `tests/vm/test_zfs.py` has real pools."""

import json
import subprocess
import sys

import pytest

from cluster.app.agents import source
from cluster.model.bundle import bundle

pytestmark = pytest.mark.contract

CONTENTS = "resume token contents:\nnvlist version: 0\n" + "".join(f"\t{name} = 0x{name}\n" for name in "abcdefghij")
BUSY = "cannot receive resume stream: dataset is busy"


def test_the_receiver_s_own_words_are_told_beside_what_a_resumed_send_says_of_its_token():
    want = {
        "send": ["sh", "-c", f"printf '{CONTENTS}' >&2; echo 'warning: cannot send' >&2; sleep 0.2; exit 1"],
        "dry": ["true"],
        "guid": ["echo", "1"],
        "way": ["sh", "-c", f"read line; case $line in *guid*) ;; *) cat >/dev/null; echo {BUSY} >&2; exit 1;; esac"],
        "zfs": ["zfs"],
        "receive": ["receive", "-s", "tank/m"],
        "dataset": "tank/m",
        "snapshot": "one",
    }
    program = bundle(source(part) for part in ("zfs_said", "zfs_send"))
    done = subprocess.run(
        (sys.executable, "-IS", "-", json.dumps(want)), input=program, capture_output=True, timeout=60, check=False
    )
    told = done.stderr.decode().splitlines()
    assert (done.returncode, told) == (1, [BUSY, "warning: cannot send", "something else works on the dataset"])
