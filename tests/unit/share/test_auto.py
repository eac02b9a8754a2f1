from dataclasses import replace

import pytest

from cluster.errors import Refused, StepFailed
from cluster.model.kit import Sync, Weights
from cluster.model.nodes import NodeSettings
from cluster.model.share import Offer
from cluster.model.units import Bytes
from cluster.probe.copies import Held
from cluster.probe.manifest import Record, Room
from cluster.probe.zfs import Snapshot
from cluster.share.auto import LIVES, WAITS, choose, is_there_already, not_looked, offer, to_detach
from cluster.share.base import Folder, Want
from cluster.share.inplace import InplaceSeen, InplaceShare, PathSeen
from cluster.share.rsync import CopySeen, RsyncShare
from cluster.share.zfs import ZfsShare
from cluster.weights.manifest import FileFact
from tests.unit.share import test_zfs as zfs

GIB = 1 << 30
FOLDER = Folder("the model", "model", "/data/m", {"b": "/srv/m"})
WANT = Want("demo", NodeSettings(name="a"), (NodeSettings(name="b"),), (FOLDER,), Weights(), ways={"b": ()})
COPY = RsyncShare(lambda *names: "+".join(names).encode())


def held(size: int, *names: str, free: int = 100 * GIB, brought: bool = False) -> CopySeen:
    files = {name: FileFact(name, size, digest=f"sha256:{name}") for name in names}
    record = Record(names, True) if brought else None
    return CopySeen({"model": Held(Room("/x", bool(names), free, None, True), files, record)})


def test_a_copy_costs_its_bytes_over_the_measured_link_and_its_room():
    seen = {"a": held(10 * GIB, "m1", "m2"), "b": held(10 * GIB, "m1")}
    assert offer(Sync.RSYNC, WANT, COPY, seen, rate=2 * GIB) == Offer(Sync.RSYNC, 10 * GIB, 5.0, 90 * GIB, LIVES)
    assert offer(Sync.RSYNC, WANT, COPY, seen, rate=0).seconds is None


def test_a_copy_without_room_is_not_possible_and_says_why():
    seen = {"a": held(200 * GIB, "m1"), "b": held(0)}
    told = offer(Sync.RSYNC, WANT, COPY, seen, rate=1)
    assert told.impossible == "b:/srv/m: no room for the copy: 200.0 GiB needed, 100.0 GiB free"


def test_a_stream_of_zfs_costs_what_was_written_since_the_common_snapshot():
    newer = replace(zfs.SOURCE, snapshots=(zfs.S1, Snapshot("sparkctl-2", 22, 340, Bytes(5 * GIB))))
    seen = zfs.seen(newer, replace(zfs.COPY, snapshots=(zfs.S1,)))
    left = zfs.COPY.available - 5 * GIB
    share = ZfsShare(lambda *names: b"")
    assert offer(Sync.ZFS, zfs.WANT, share, seen, rate=GIB) == Offer(Sync.ZFS, 5 * GIB, 5.0, left, LIVES, in_use=True)


def test_in_place_depends_on_who_serves_it():
    share = InplaceShare(lambda *names: b"")
    here, far = (InplaceSeen({"model": PathSeen("/m", kind)}) for kind in ("ext4", "fuse.sshfs"))
    assert offer(Sync.INPLACE, WANT, share, {"a": here, "b": here}, 1).if_head_dies == LIVES
    assert offer(Sync.INPLACE, WANT, share, {"a": here, "b": far}, 1).if_head_dies == "depends on who serves fuse.sshfs"


INPLACE, NFS = Offer(Sync.INPLACE, 0, 0.0, None, LIVES), Offer(Sync.NFS, 0, 0.0, None, WAITS)
ZFS, RSYNC = Offer(Sync.ZFS, 9, 1.0, 5, LIVES), Offer(Sync.RSYNC, 9, 1.0, 5, LIVES)
ALL = (INPLACE, NFS, ZFS, RSYNC)


def no(one: Offer) -> Offer:
    return replace(one, impossible="no")


@pytest.mark.parametrize(
    ("offers", "all_there", "expected"),
    [
        (ALL, True, (Sync.INPLACE, "the workers have every file already")),
        (ALL, False, (Sync.NFS, "nothing has to be moved")),
        ((INPLACE, no(NFS), ZFS, RSYNC), False, (Sync.ZFS, "it moves the fewest bytes of what is possible")),
        ((INPLACE, no(NFS), ZFS, replace(RSYNC, moves=3)), False,
         (Sync.RSYNC, "it moves the fewest bytes of what is possible")),
        ((INPLACE, NFS, ZFS, replace(RSYNC, in_use=True)), True, (Sync.RSYNC, "it is attached so already")),
    ],
)  # fmt: skip
def test_the_rule_can_be_followed_in_the_table(offers, all_there, expected):
    assert choose(offers, all_there=all_there) == expected


def test_when_nothing_is_possible_every_reason_is_told():
    with pytest.raises(Refused) as refused:
        choose((INPLACE, no(NFS), no(ZFS), not_looked(Sync.RSYNC, StepFailed("cut", where="b"))), all_there=False)
    assert refused.value.evidence == (
        "inplace: the workers do not have every file",
        "nfs: no",
        "zfs: no",
        "rsync: b: cut",
    )


def test_a_detach_takes_away_what_is_attached():
    assert to_detach((INPLACE, NFS, replace(ZFS, in_use=True), RSYNC)) is Sync.ZFS
    assert to_detach(ALL) is Sync.INPLACE


def test_all_is_there_when_every_name_has_the_heads_size():
    assert is_there_already(WANT, {"a": held(5, "m1", "m2"), "b": held(5, "m1", "m2", "more")})
    assert not is_there_already(WANT, {"a": held(5, "m1", "m2"), "b": held(5, "m1")})
    assert not is_there_already(WANT, {"a": held(5, "m1"), "b": held(6, "m1")})
    assert not is_there_already(WANT, {"a": held(5), "b": held(5)})


def test_what_an_attach_has_brought_counts_as_attached():
    seen = {"a": held(5, "m1"), "b": held(5, "m1", brought=True)}
    assert offer(Sync.RSYNC, WANT, COPY, seen, 1).in_use
