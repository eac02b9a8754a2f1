"""What an error of `zfs send` or `zfs receive` means, and what can be done about it. A part of programs for a node."""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

# Kind -> words that its message has, line breaks and quotes aside; the first that fits.
KINDS: List[Tuple[str, str]] = [
    ("nothing_to_abort", r"does not have any resumable receive state to abort"),
    ("token_gone", r"used in the initial send no longer exists"),
    ("token_other", r"is no longer the same snapshot used in the initial send"),
    ("partial", r"contains partially-complete state from"),
    ("modified", r"has been modified since most recent snapshot"),
    ("no_base", r"most recent snapshot of .* does not match incremental source"),
    ("exists", r"must specify -F"),
    ("quota", r"quota exceeded"),
    ("no_space", r"out of space|no space left"),
    ("flags", r"requires -L \(--large-block\)"),
    ("key", r"(inherited|source) key must be loaded|encryption key must be loaded"),
    ("plain", r"cannot perform raw receive on top of existing unencrypted dataset"),
    ("old_pool", r"pool must be upgraded"),
    ("cut", r"checksum mismatch or incomplete stream|incomplete stream|stream is too short"),
    ("denied", r"permission denied"),
    ("busy", r"dataset is busy|is busy"),
    ("absent", r"dataset does not exist"),
    ("not_root", r"may only be mounted by root"),
]
GO_ON = "what came is kept: the same command again goes on with it"
MEANINGS: Dict[str, str] = {
    "not_root": "",
    "nothing_to_abort": "",
    "token_gone": "the snapshot that it was on the way to is gone",
    "token_other": "the snapshot that it was on the way to was replaced",
    "partial": "an earlier receive was cut off; the same command again goes on with it",
    "modified": "something wrote to the worker's dataset since it was looked at; nothing was changed",
    "no_base": "the worker's dataset changed since it was looked at; nothing was changed",
    "exists": "the worker's dataset is there already and is not overwritten",
    "quota": "a quota on the worker stopped it; raise it, %s" % GO_ON,
    "no_space": "the worker's pool is full; make room, %s" % GO_ON,
    "flags": "the worker's dataset came from a send with other flags; remove it, or receive into another one",
    "key": "a key is not loaded: zfs load-key",
    "plain": "the worker's dataset is not encrypted, and the head's is",
    "old_pool": "the worker's pool is older than the stream: zpool upgrade",
    "cut": "the stream was cut off; %s" % GO_ON,
    "denied": "the user lacks a right; see zfs allow",
    "busy": "something else works on the dataset",
    "absent": "",
    "other": "",
}
# After these a receive is given up, once, and the next stream starts from what both have. All else is not retried.
ABANDON = ("token_gone", "token_other")


def kind_of(text: str) -> str:
    """Messages are broken over lines where they are long."""
    joined = re.sub(r"\s+", " ", text)
    return next((kind for kind, words in KINDS if re.search(words, joined)), "other")


def keeps_token(kind: str) -> bool:
    """What came so far must not be thrown away."""
    return kind in ("no_space", "quota", "cut", "busy", "denied", "key", "other")
