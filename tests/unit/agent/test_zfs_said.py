import pytest

from cluster.agent.zfs_said import ABANDON, keeps_token, kind_of

CANNOT = "cannot receive incremental stream: "
SAID = [
    (CANNOT + "destination models/dsv41-exl3 has been modified\nsince most recent snapshot", "modified"),
    (CANNOT + "most recent snapshot of models/dsv41-exl3 does not\nmatch incremental source", "no_base"),
    ("cannot receive new filesystem stream: destination 'models/x' exists\nmust specify -F to overwrite it", "exists"),
    ('cannot receive resume stream: destination x contains partially-complete state from "zfs receive -s".', "partial"),
    ("cannot receive new filesystem stream: out of space", "no_space"),
    (CANNOT + "destination models/x space quota exceeded.", "quota"),
    (CANNOT + "incremental send stream requires -L (--large-block), to match previous receive.", "flags"),
    (CANNOT + "inherited key must be loaded", "key"),
    (CANNOT + "cannot perform raw receive on top of existing unencrypted dataset", "plain"),
    ("cannot receive new filesystem stream: pool must be upgraded to receive this stream.", "old_pool"),
    ("cannot receive: checksum mismatch or incomplete stream.\nPartially received snapshot is saved.", "cut"),
    ("cannot resume send: 'models/x@s1' used in the initial send no longer exists", "token_gone"),
    ("cannot resume send: 'models/x@s1' is no longer the same snapshot used in the initial send", "token_other"),
    ("'models/x' does not have any resumable receive state to abort", "nothing_to_abort"),
    ("filesystem successfully created, but it may only be mounted by root", "not_root"),
    ("cannot receive new filesystem stream: permission denied", "denied"),
    ("cannot destroy 'models/x@s1': dataset is busy", "busy"),
    ("cannot open 'models/x': dataset does not exist", "absent"),
    ("something new", "other"),
]


@pytest.mark.parametrize(("text", "kind"), SAID, ids=[kind for _, kind in SAID])
def test_every_message_has_its_kind_across_line_breaks(text, kind):
    assert kind_of(text) == kind


def test_a_receive_is_given_up_only_when_its_snapshot_is_gone_or_replaced():
    """ZFS-02, ZFS-05: what came before a full pool, a cut or a missing right is kept."""
    kinds = {kind for _, kind in SAID}
    assert {kind for kind in kinds if kind in ABANDON} == {"token_gone", "token_other"}
    assert all(keeps_token(kind) for kind in ("no_space", "quota", "cut", "denied"))
    assert not any(keeps_token(kind) for kind in ABANDON)
