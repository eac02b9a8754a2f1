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


def ended(**changes: object) -> tuple[int, list[str]]:
    """How the sender ended, and what it told."""
    program = bundle(source(part) for part in ("zfs_said", "zfs_send"))
    want = {
        "send": ["true"],
        "dry": ["true"],
        "guid": ["echo", "1"],
        "way": ["true"],
        "zfs": ["zfs"],
        "receive": ["receive", "-s", "tank/m"],
        "dataset": "tank/m",
        "snapshot": "one",
    }
    argv = (sys.executable, "-IS", "-", json.dumps(want | changes))
    done = subprocess.run(argv, input=program, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stderr.decode().splitlines()


def test_a_stream_goes_on_from_where_the_worker_is_now_and_not_where_it_was_looked_at():
    line = "read line; case $line in *_token*) echo 1-new-token;; *guid*) ;; *) cat >/dev/null; exit 1;; esac"
    send = ["sh", "-c", 'echo "goes on from $2" >&2; sleep 0.2; exit 1', "zfs", "-t", "1-old-token"]
    code, told = ended(send=send, way=["sh", "-c", line])
    assert (code, told[0]) == (1, "goes on from 1-new-token")


def test_the_receiver_s_own_words_are_told_beside_what_a_resumed_send_says_of_its_token():
    send = ["sh", "-c", f"printf '{CONTENTS}' >&2; echo 'warning: cannot send' >&2; sleep 0.2; exit 1"]
    line = f"read line; case $line in *guid*) ;; *) cat >/dev/null; echo {BUSY} >&2; exit 1;; esac"
    assert ended(send=send, way=["sh", "-c", line]) == (
        1,
        [BUSY, "warning: cannot send", "something else works on the dataset"],
    )
