import json

import pytest

from cluster.agent.touch import WORDS
from cluster.probe.nfs import (
    Export,
    MountSeen,
    TransportSeen,
    admits,
    device_path,
    escaped,
    made_by,
    parse_exports,
    parse_mountstats,
    parse_volume,
    rule_for,
    volume_diff,
)

# `exportfs -s` of a head: (a) a folder above the weights is the root, (b) the weights are, (c) nothing is
ROOT_ABOVE = (
    "/exports/hf  10.40.0.0/24(sync,wdelay,hide,crossmnt,no_subtree_check,fsid=0,sec=sys,ro,secure,root_squash)\n"
)
ROOT_ITSELF = "/exports/dsv41-exl3  10.40.0.0/24(sync,wdelay,no_subtree_check,fsid=0,sec=sys,ro,secure,root_squash)\n"
NO_ROOT = "/exports/dsv41-exl3  10.40.0.2(sync,wdelay,no_subtree_check,sec=sys,ro,secure,root_squash)\n"
OPTIONS = "ro,vers=4.2,rsize=262144,wsize=262144,namlen=255,acregmin=3600,hard,nocto,proto=rdma,port=20049,sec=sys"
STATS = f"""\
device rootfs mounted on / with fstype rootfs
device 10.40.0.1:/weights/model.0f3a mounted on /models/dsv41\\040exl3 with fstype nfs4 statvers=1.1
    opts:	{OPTIONS}
    age:	12
    xprt:	rdma 0 0 1 0 11 113 113 0 2147 0 2 0 1 3 0 2 0 0 0 0
    per-op statistics
            NULL: 1 1 0 44 24 5 0 5 0
device 10.40.0.9:/home mounted on /home with fstype nfs4 statvers=1.1
    opts:	rw,vers=4.2,rsize=1048576,proto=tcp,nconnect=2
    xprt:	tcp 0 0 2 0 11 9 9 0 9 0 2 0 0
    xprt:	tcp 0 0 1 0 11 9 9 0 9 0 2 0 0
device proc mounted on /proc with fstype proc
"""
VOLUME = """\
[{"CreatedAt":"2026-09-02T08:11:40Z","Driver":"local","Labels":null,
"Mountpoint":"/var/lib/docker/volumes/dsv41-exl3-weights/_data","Name":"dsv41-exl3-weights",
"Options":{"device":":/dsv41-exl3","o":"addr=10.40.0.9,nfsvers=4.2,ro","type":"nfs"},"Scope":"local"}]
"""


def test_exports_are_read_from_exportfs_and_from_files():
    assert parse_exports("# comment\n/data/my\\040models \\\n".replace("\\\n", "10.40.0.2(ro,sync) *.lan(rw)\n")) == (
        Export("/data/my models", "10.40.0.2", ("ro", "sync")),
        Export("/data/my models", "*.lan", ("rw",)),
    )
    assert parse_exports('"/with space"\t10.40.0.2(ro)') == (Export("/with space", "10.40.0.2", ("ro",)),)
    assert parse_exports("") == ()


def test_a_path_is_escaped_as_exports_wants_it():
    assert escaped("/data/my models") == "/data/my\\040models"
    (back,) = parse_exports(f"{escaped('/a b(c)#d')} 10.0.0.1(ro)")
    assert back.path == "/a b(c)#d"


@pytest.mark.parametrize(
    ("exports", "wanted", "device"),
    [
        (ROOT_ABOVE, "/exports/hf/dsv41-exl3", "/dsv41-exl3"),
        (ROOT_ITSELF, "/exports/dsv41-exl3", "/"),
        (NO_ROOT, "/exports/dsv41-exl3", "/exports/dsv41-exl3"),
        (ROOT_ABOVE, "/exports/hf/.sparkctl/x", "/.sparkctl/x"),
        (ROOT_ABOVE, "/elsewhere", None),
    ],
)
def test_what_is_mounted_depends_on_the_exporters_root(exports, wanted, device):
    """NFS-02."""
    assert device_path(parse_exports(exports), wanted) == device


def test_an_export_for_the_lan_does_not_admit_the_fabric():
    """NFS-06."""
    exports = parse_exports("/exports/hf 192.0.2.0/24(ro,fsid=0,no_subtree_check)")
    assert rule_for(exports, "/exports/hf", "10.40.0.2") is None
    assert rule_for(exports, "/exports/hf/x", "192.0.2.7") == exports[0]


def test_the_nearest_and_narrowest_rule_counts():
    exports = parse_exports("/a 10.40.0.0/24(ro) 10.40.0.2(rw)\n/a/b *(ro)\n")
    assert rule_for(exports, "/a/c", "10.40.0.2") == Export("/a", "10.40.0.2", ("rw",))
    assert rule_for(exports, "/a/b/c", "10.40.0.2") == Export("/a/b", "*", ("ro",))


@pytest.mark.parametrize(
    ("client", "admitted"),
    [("10.40.0.2", True), ("10.40.0.0/24", True), ("10.40.1.0/24", False), ("*", True), ("spark-b", False)],
)
def test_who_is_admitted(client, admitted):
    assert admits(client, "10.40.0.2") is admitted


def test_mountstats_tell_the_transport_that_came():
    assert parse_mountstats(STATS) == (
        TransportSeen(
            "10.40.0.1:/weights/model.0f3a",
            "/models/dsv41 exl3",
            tuple(OPTIONS.split(",")),
            ("rdma",),
        ),
        TransportSeen(
            "10.40.0.9:/home", "/home", ("rw", "vers=4.2", "rsize=1048576", "proto=tcp", "nconnect=2"), ("tcp", "tcp")
        ),
    )  # fmt: skip


def test_a_mount_knows_its_server_and_its_options():
    seen = MountSeen("/models", "10.40.0.1:/weights", ("ro", "vers=4.2", "proto=tcp"))
    assert (seen.server, seen.option("proto"), seen.option("rsize")) == ("10.40.0.1", "tcp", "")


def test_a_volume_of_another_server_is_seen_by_what_differs():
    """NFS-01: a create with the same name returns 0 and keeps the old options."""
    volume = parse_volume(json.loads(VOLUME)[0])
    assert volume_diff(volume, ":/dsv41-exl3", ("addr=10.40.0.1", "vers=4.2", "ro")) == {
        "addr": ("10.40.0.9", "10.40.0.1")
    }
    assert volume_diff(volume, ":/other", ("addr=10.40.0.9", "nfsvers=4.2")) == {
        "device": (":/dsv41-exl3", ":/other"),
        "ro": ("on", ""),
    }
    assert volume_diff(volume, ":/dsv41-exl3", ("ro", "nfsvers=4.2", "addr=10.40.0.9")) == {}


def test_a_damaged_note_is_no_note():
    assert made_by('{"threads": 8}') == {"threads": 8}
    assert made_by(None) == made_by("") == made_by("[1]") == made_by("{") == {}


def test_each_errno_of_a_dead_mount_has_its_own_words():
    """NFS-04: a stale handle needs a new mount, a missing file does not, and no answer is neither."""
    assert {code: WORDS[code].split(":")[0] for code in (116, 2, 110, 13)} == {
        116: "stale file handle",
        2: "is not there",
        110: "the file server does not answer",
        13: "no permission to read it",
    }
