"""The profile that allows io_uring is Moby's own, as it was published, and three calls."""

import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PUBLISHED = ROOT / "tests" / "golden" / "engram" / "moby-26.1.5-seccomp.json"
OURS = ROOT / "cluster" / "seccomp" / "io_uring.json"
CALLS = ["io_uring_enter", "io_uring_register", "io_uring_setup"]


def test_the_published_profile_is_the_pinned_one():
    assert hashlib.sha256(PUBLISHED.read_bytes()).hexdigest() == (
        "9c1025c88ccaa517b648da571961838744ea2137f176bfe6a48b21294cae9c76"
    )


def test_the_published_profile_allows_none_of_the_calls():
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    assert published["defaultAction"] == "SCMP_ACT_ERRNO"
    assert not [name for rule in published["syscalls"] for name in rule.get("names", ()) if "io_uring" in name]


def test_ours_has_one_rule_more_and_no_other_change():
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    published["syscalls"].append({"names": CALLS, "action": "SCMP_ACT_ALLOW"})
    assert json.loads(OURS.read_text(encoding="utf-8")) == published
