import json

import pytest

from cluster.errors import Unreadable
from cluster.model.units import Bytes
from cluster.probe.zfs import (
    Dataset,
    Estimate,
    Place,
    Snapshot,
    ZfsSeen,
    parse_datasets,
    parse_estimate,
    parse_holds,
    parse_snapshots,
    parse_token,
    parse_zfs,
    rights_of,
)

LIST = "models/dsv41-exl3\t397284474880\t211601563424\t/data/model\tyes\t0\t-\toff\t-\toff\t-\t-\n"
SNAPSHOTS = (
    "models/dsv41-exl3@s1\t1147031234567890123\t120\t211601563424\n"
    "models/dsv41-exl3@s2\t17000000000000000002\t340\t141000192\n"
)
TOKEN = """resume token contents:
nvlist version: 0
\tobject = 0x8
\toffset = 0x1400000
\tbytes = 0x1a2b3c4
\ttoguid = 0xebec2ca6c2190002
\ttoname = models/dsv41-exl3@s2
cannot resume send: 'models/dsv41-exl3@s2' used in the initial send no longer exists
"""
ALLOW = """---- Permissions on models/dsv41-exl3 --------------------------------
Local permissions:
\tuser spark hold,release
---- Permissions on models -------------------------------------------
Permission sets:
\t@copy create,mount,receive
Local+Descendent permissions:
\tuser spark @copy,rollback
\tuser other destroy
\tgroup docker readonly,atime
\tgroup wheel snapshot
\teveryone userprop
"""


def test_a_dataset_is_read_with_what_it_can_take():
    assert parse_datasets(LIST) == (
        Dataset("models/dsv41-exl3", Bytes(397284474880), Bytes(211601563424), "/data/model", True),
    )


def test_a_cut_receive_an_absent_key_and_our_label_are_seen():
    line = "tank/x\t1\t2\tnone\tno\t141000192\t1-abc-def\taes-256-gcm\tunavailable\ton\tsparkctl-demo\t/srv\n"
    (seen,) = parse_datasets(line)
    assert (seen.token, seen.written, seen.is_encrypted, seen.has_key) == ("1-abc-def", 141000192, True, False)
    assert (seen.read_only, seen.owner, seen.mountpoint, seen.mounted) == (True, "sparkctl-demo", "", False)
    assert seen.made == "/srv"


def test_guids_keep_all_their_64_bits_and_the_order_is_that_of_creation():
    backwards = "".join(reversed(SNAPSHOTS.splitlines(keepends=True)))
    assert parse_snapshots(backwards, {"s2": ("sparkctl",)}) == (
        Snapshot("s1", 1147031234567890123, 120, Bytes(211601563424)),
        Snapshot("s2", 17000000000000000002, 340, Bytes(141000192), ("sparkctl",)),
    )


def test_holds_are_kept_by_snapshot():
    text = "models/m@s1\tsparkctl\tMon Nov 30 20:00 2026\nmodels/m@s1\tbackup\tMon Nov 30 20:01 2026\n"
    assert parse_holds(text) == {"s1": ("sparkctl", "backup")}


def test_a_token_says_where_it_was_going_even_when_it_leads_nowhere():
    assert parse_token(TOKEN) == 0xEBEC2CA6C2190002
    assert parse_token("cannot resume send: bad token") == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("full\ttank/m@s1\t83914352\nsize\t83914352\n", Estimate(Bytes(83914352), "", "tank/m@s1")),
        ("incremental\ts1\ttank/m@s2\t624\nsize\t624\n", Estimate(Bytes(624), "s1", "tank/m@s2")),
        ("incremental\ts1\ttank/m@s2\n", Estimate(Bytes(0), "s1", "tank/m@s2")),
        (TOKEN + "full\ttank/my model@s1\t99\nsize\t99\n", Estimate(Bytes(99), "", "tank/my model@s1")),
    ],
)
def test_dry_runs_of_all_versions_are_read(text, expected):
    assert parse_estimate(text) == expected


def test_rights_come_from_the_user_the_groups_and_sets():
    expected = {"hold", "release", "create", "mount", "receive", "rollback", "readonly", "atime", "userprop"}
    assert rights_of(ALLOW, "spark", ["spark", "docker"]) == expected
    assert rights_of("", "spark", []) == frozenset()


def test_a_whole_answer():
    nothing = dict.fromkeys(("holds", "token", "allow", "problem", "absent"), "")
    place = {"list": LIST, "snapshots": SNAPSHOTS, "listing": "ab", "hidden": False} | nothing
    said = {"zfs": ["sudo", "-n", "/usr/sbin/zfs"], "user": "spark", "groups": [], "problem": "", "list": LIST,
            "places": {"model": place}}  # fmt: skip
    (dataset,) = parse_datasets(LIST)
    full = Dataset(dataset.name, dataset.available, dataset.referenced, "/data/model", True,
                   snapshots=parse_snapshots(SNAPSHOTS, {}))  # fmt: skip
    assert parse_zfs(json.dumps(said), "b") == ZfsSeen(
        ("sudo", "-n", "/usr/sbin/zfs"), "spark", True, "", {dataset.name: dataset}, {"model": Place(full, "", "ab")}
    )
    with pytest.raises(Unreadable):
        parse_zfs("bash: zfs", "b")
