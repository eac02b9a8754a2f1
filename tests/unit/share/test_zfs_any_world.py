"""Whatever snapshots, cuts, holds and writes the two nodes have seen: a share ends in equality or in a refusal."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import Refused
from cluster.model.kit import OnConflict, Weights
from cluster.model.nodes import NodeSettings
from cluster.model.units import Bytes
from cluster.probe.zfs import Snapshot
from cluster.share.base import Folder, Want
from cluster.share.zfs import ZfsShare
from cluster.share.zfs_plan import newest_common
from tests.unit.share.zfs_model import Filesystem, World

FOLDER = Folder("the model", "model", "/data/m", {"b": "/srv/m"})
SHARE = ZfsShare(lambda *names: "+".join(names).encode())
ROUNDS = 3


def want(choice: OnConflict, keep: int) -> Want:
    weights = replace(Weights(), zfs_conflict=choice, zfs_keep=keep)
    return Want("demo", NodeSettings(name="a"), (NodeSettings(name="b"),), (FOLDER,), weights, ways={"b": ()})


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Snapshots 1 to 5 were taken on the head; each node lost some, and the worker has some of its own."""
    taken = [Snapshot(draw(st.sampled_from((f"sparkctl-{n}", f"daily-{n}"))), n, n, Bytes(10)) for n in range(1, 6)]
    tags = st.sampled_from(((), ("sparkctl",)))
    head = Filesystem(mountpoint="/data/m", mounted=True)
    for one in taken:
        if draw(st.booleans()):
            head.put(one, one.guid)
            head.change(one.name, tags=draw(tags))
    if draw(st.booleans()):
        head.content, head.written = 77, 5
    worker = Filesystem(mountpoint="/srv/m", owner=draw(st.sampled_from(("sparkctl-demo", "sparkctl-demo", "other"))))
    for one in taken:
        if draw(st.booleans()):
            worker.put(one, one.guid)
            worker.change(one.name, tags=draw(tags))
        if draw(st.integers(0, 5)) == 0:
            written = draw(st.sampled_from((0, 3)))
            own = Snapshot(f"own-{one.guid}", one.guid + 100, 0, Bytes(written))
            worker.put(own, 88 if written else worker.content)
    worker.written = draw(st.sampled_from((0, 0, 2)))
    worker.read_only = draw(st.booleans())
    if worker.written and not worker.read_only:
        worker.content = 99
    worker.token = draw(st.sampled_from((0, 0, 1, 2, 3, 4, 5, 999)))
    is_there = worker.snapshots or worker.token
    choice, keep = draw(st.sampled_from(OnConflict)), draw(st.integers(1, 3))
    return World(want(choice, keep), head, worker if is_there else None)


def common(world: World) -> int | None:
    base = newest_common(world.head.snapshots, world.worker.snapshots if world.worker else ())
    return base.guid if base else None


def attach(world: World) -> None:
    for _ in range(ROUNDS):
        plan = SHARE.attach(world.want, world.seen())
        if plan.is_empty:
            return
        world.carry_out(plan)
    assert SHARE.attach(world.want, world.seen()).is_empty


@given(worlds())
@settings(max_examples=150, deadline=None)
def test_an_attach_ends_in_equality_or_refuses_before_it_destroyed_anything(world):
    base = common(world)
    foreign = {one.guid for one in (world.worker.snapshots if world.worker else ()) if one.name.startswith("own-")}
    dailies = {one.guid for one in world.head.snapshots if one.name.startswith("daily-")}
    try:
        attach(world)
    except Refused:
        assert not world.destroyed
        return
    there = world.worker
    assert there is not None
    assert there.content == world.head.content
    assert there.mounted
    assert not there.token
    newest = next(one for one in there.snapshots if one.guid == common(world))
    assert newest.tags == ("sparkctl",)
    may_go_back = world.want.weights.zfs_conflict is OnConflict.ROLLBACK
    if base is not None and not may_go_back:
        assert base not in world.destroyed or common(world) != base
        assert not foreign & set(world.destroyed)
    assert not dailies & set(world.destroyed)


@given(worlds())
@settings(max_examples=100, deadline=None)
def test_the_newest_common_snapshot_is_destroyed_by_no_plan(world):
    for _ in range(ROUNDS):
        base = common(world)
        before = len(world.destroyed)
        try:
            plan = SHARE.attach(world.want, world.seen())
        except Refused:
            return
        world.carry_out(plan)
        head_has = {one.guid for one in world.head.snapshots}
        assert base is None or base in head_has
        gone = set(world.destroyed[before:])
        assert base not in gone or world.want.weights.zfs_conflict is OnConflict.ROLLBACK


@given(worlds())
@settings(max_examples=50, deadline=None)
def test_after_a_detach_there_is_nothing_of_ours(world):
    try:
        attach(world)
    except Refused:
        return
    plan = SHARE.detach(world.want, world.seen())
    world.carry_out(plan)
    assert world.worker is None
    assert not [one for one in world.head.snapshots if one.name.startswith("sparkctl-")]
    assert SHARE.detach(world.want, world.seen()).is_empty


def test_the_model_is_as_strict_as_zfs():
    world = World(want(OnConflict.STOP, 2), Filesystem(content=1, mountpoint="/data/m"), None)
    attach(world)
    assert world.moved == 1
    assert world.worker is not None
    attach(world)
    assert world.moved == 1
    world.head.content, world.head.written = 2, 10
    attach(world)
    assert (world.moved, world.worker.content) == (2, 2)
    world.worker.written, world.worker.read_only = 5, False
    world.head.content, world.head.written = 3, 10
    with pytest.raises(Refused, match="the dataset was written to"):
        attach(world)
