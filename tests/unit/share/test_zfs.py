"""The cases that are reported most often, with their numbers: ZFS-01 to ZFS-05."""

import json
from dataclasses import replace

import pytest

from cluster.errors import Refused
from cluster.model.kit import OnConflict, Weights
from cluster.model.nodes import NodeSettings
from cluster.model.steps import Plan, Run
from cluster.model.units import Bytes
from cluster.probe.zfs import Dataset, Place, Snapshot, ZfsSeen, parse_snapshots
from cluster.share.base import REMOVE_EMPTY, Folder, ReadThrough, Want
from cluster.share.zfs import ZfsShare
from cluster.share.zfs_checks import HEAD_RIGHTS, WORKER_RIGHTS
from cluster.share.zfs_plan import Choice, Clash, Conflict, Resume, Send, decide, name_of, surplus

FOLDER = Folder("the model", "model", "/data/model", {"b": "/srv/model"})
WANT = Want(
    "demo", NodeSettings(name="a"), (NodeSettings(name="b"),), (FOLDER,), Weights(), ways={"b": ("ssh", "10.40.0.2")}
)
SHARE = ZfsShare(lambda *names: "+".join(names).encode())
S1 = Snapshot("sparkctl-1", 1147031234567890123, 120)
SOURCE = Dataset("models/dsv41-exl3", Bytes(1), Bytes(413390602240), "/data/model", True, snapshots=(S1,))
TARGET = "models/sparkctl-demo-model"
COPY = Dataset(TARGET, Bytes(397284474880), Bytes(9), "/srv/model", True, read_only=True, owner="sparkctl-demo")
POOL = Dataset("models", Bytes(397284474880), Bytes(0), "/models", True)


def seen(source: Dataset = SOURCE, there: Dataset | None = None, *, user="root", rights="", hidden=False):
    is_root = user == "root"
    head = Place(source, listing="ab" * 32, rights=frozenset(rights.split()))
    mine = Place(there, hidden=hidden, rights=frozenset(rights.split()))
    datasets = {"models": POOL} | ({there.name: there} if there else {})
    return {
        "a": ZfsSeen(("zfs",), user, is_root, "", {source.name: source}, {"model": head}),
        "b": ZfsSeen(("/usr/sbin/zfs",), user, is_root, "", datasets, {"model": mine}),
    }


def steps(plan: Plan) -> list[tuple[str, str, str]]:
    return [(stage.name, step.node, step.why) for stage in plan.stages for step in stage.steps]


def words(plan: Plan) -> list[str]:
    return [" ".join(step.command.argv[1:]) for stage in plan.stages for step in stage.steps
            if isinstance(step, Run) and step.command.argv[0] != "python3"]  # fmt: skip


def stream(plan: Plan) -> dict:
    (found,) = (step for stage in plan.stages for step in stage.steps if isinstance(step, Run) and step.tells)
    return json.loads(found.command.argv[-1])


# ---- ZFS-01 ---------------------------------------------------------------------------------------------------------


def test_written_by_a_mount_alone_is_rolled_back_to_the_common_snapshot_and_sent_without_force():
    newer = replace(SOURCE, snapshots=(S1, Snapshot("sparkctl-2", 22, 340, Bytes(5))))
    there = replace(COPY, snapshots=(S1,), written=Bytes(141000192))
    plan = SHARE.attach(WANT, seen(newer, there))
    assert words(plan) == [f"rollback {TARGET}@sparkctl-1"]
    asked = stream(plan)
    assert asked["send"] == [
        "zfs",
        "send",
        "-vP",
        "-L",
        "-c",
        "-e",
        "-i",
        "@sparkctl-1",
        "models/dsv41-exl3@sparkctl-2",
    ]
    assert asked["receive"] == ["receive", "-s", "-u", TARGET]


def test_a_dataset_that_could_be_written_to_is_a_conflict_that_says_how_much_was_written():
    newer = replace(SOURCE, snapshots=(S1, Snapshot("sparkctl-2", 22, 340)))
    there = replace(COPY, snapshots=(S1,), written=Bytes(141000192), read_only=False)
    with pytest.raises(Refused) as refused:
        SHARE.attach(WANT, seen(newer, there))
    assert refused.value.what == Clash.MODIFIED.value
    assert refused.value.evidence == ("134.5 MiB written since its newest snapshot",)
    assert "ZFS_CONFLICT=rollback goes back to @sparkctl-1, which destroys what was written" in refused.value.fix


# ---- ZFS-02 ---------------------------------------------------------------------------------------------------------


def test_a_token_whose_snapshot_the_head_has_is_gone_on_with():
    there = replace(COPY, token="1-abc", to_guid=S1.guid, snapshots=())
    plan = SHARE.attach(WANT, seen(there=there))
    assert stream(plan)["send"] == ["zfs", "send", "-vP", "-t", "1-abc"]
    assert decide(SOURCE, S1, there, WANT.label, may_go_back=False) == Choice(Resume("1-abc", "sparkctl-1"))


def test_a_token_whose_snapshot_is_gone_is_given_up_once_and_all_is_sent():
    roomy = replace(POOL, available=Bytes(1 << 50))
    there = replace(COPY, token="1-abc", to_guid=99, snapshots=())
    facts = seen(there=there)
    facts["b"] = replace(facts["b"], datasets={"models": roomy})
    facts["b"].places["model"] = replace(facts["b"].places["model"], dataset=replace(there, available=Bytes(1 << 50)))
    plan = SHARE.attach(WANT, facts)
    assert [why for _, _, why in steps(plan)][1:] == ["give up a receive whose snapshot is gone", "send the model to b"]
    assert stream(plan)["send"][-1] == "models/dsv41-exl3@sparkctl-1"
    assert decide(SOURCE, S1, there, WANT.label, may_go_back=False) == Choice(Send(None), abandon=True)


# ---- ZFS-03 ---------------------------------------------------------------------------------------------------------

HEAD = """models/dsv41-exl3@s1\t1147031234567890123\t120\t0
models/dsv41-exl3@s2\t2200000000000000002\t340\t0
models/dsv41-exl3@s3\t3300000000000000003\t560\t0
"""
WORKER = """models/dsv41-exl3@s1\t1147031234567890123\t88\t0
models/dsv41-exl3@s2\t9900000000000000009\t201\t7
"""


def test_the_base_is_found_by_guid_and_another_snapshot_of_the_same_name_is_named_before_it_is_lost():
    head = replace(SOURCE, snapshots=parse_snapshots(HEAD, {}))
    there = replace(COPY, snapshots=parse_snapshots(WORKER, {}))
    (s1, s2), s3 = there.snapshots, head.snapshots[-1]
    assert decide(head, s3, there, WANT.label, may_go_back=False) == Choice(
        Conflict(Clash.DIVERGED, head.snapshots[0], (s2,))
    )
    assert decide(head, s3, there, WANT.label, may_go_back=True) == Choice(
        Send(head.snapshots[0], head.snapshots[0], (s2,))
    )
    assert s1.guid == head.snapshots[0].guid


def test_a_diverged_dataset_is_rolled_back_only_when_that_was_chosen():
    own = Snapshot("mine", 77, 200, Bytes(1 << 20))
    facts = seen(replace(SOURCE, snapshots=(S1, Snapshot("sparkctl-2", 22, 340))), replace(COPY, snapshots=(S1, own)))
    with pytest.raises(Refused) as refused:
        SHARE.attach(WANT, facts)
    assert (refused.value.where, refused.value.evidence) == (f"b:{TARGET}", ("@mine guid 77, 1.0 MiB written",))
    chosen = replace(WANT, weights=replace(WANT.weights, zfs_conflict=OnConflict.ROLLBACK))
    assert words(SHARE.attach(chosen, facts)) == [f"rollback -r {TARGET}@sparkctl-1"]


# ---- ZFS-04 ---------------------------------------------------------------------------------------------------------


def test_what_was_received_and_not_mounted_is_not_sent_again_and_the_one_command_is_told():
    held = replace(S1, tags=("sparkctl",))
    there = replace(COPY, snapshots=(held,), mounted=False)
    rights = "send snapshot mount hold release destroy"
    with pytest.raises(Refused) as refused:
        SHARE.attach(WANT, seen(replace(SOURCE, snapshots=(held,)), there, user="spark", rights=rights))
    assert refused.value.what == "all of it was received, and only root may mount it"
    assert refused.value.fix == f"on b: sudo zfs mount {TARGET}"


def test_root_holds_what_the_next_stream_starts_from_and_mounts():
    plan = SHARE.attach(WANT, seen(there=replace(COPY, snapshots=(S1,), mounted=False)))
    assert words(plan) == [
        "hold sparkctl models/dsv41-exl3@sparkctl-1",
        f"hold sparkctl {TARGET}@sparkctl-1",
        f"mount {TARGET}",
    ]


def test_a_mountpoint_is_set_which_mounts_it_too():
    held = replace(S1, tags=("sparkctl",))
    there = replace(COPY, snapshots=(held,), mounted=False, mountpoint="/models/x")
    plan = SHARE.attach(WANT, seen(replace(SOURCE, snapshots=(held,)), there))
    assert words(plan) == [f"set mountpoint=/srv/model {TARGET}"]


# ---- ZFS-05 ---------------------------------------------------------------------------------------------------------


def test_room_is_what_the_parent_can_take_and_not_what_the_pool_calls_free():
    with pytest.raises(Refused) as refused:
        SHARE.attach(WANT, seen())
    assert refused.value.what == "no room: 385.0 GiB needed, 370.0 GiB available"
    assert refused.value.evidence == ("413390602240 bytes needed, 397284474880 available to models",)


# ---- the rest -------------------------------------------------------------------------------------------------------

SMALL = replace(SOURCE, referenced=Bytes(1 << 30))


def test_the_first_attach_takes_a_snapshot_of_the_content_and_sends_all_of_it():
    plan = SHARE.attach(WANT, seen(replace(SMALL, snapshots=())))
    name = name_of("ab" * 32)
    assert steps(plan) == [
        ("snapshot", "a", "take a snapshot"),
        ("ready", "b", "put the receiver there"),
        ("send", "a", "send the model to b"),
    ]
    asked = stream(plan)
    assert words(plan) == [f"snapshot models/dsv41-exl3@{name}"]
    assert asked["receive"] == [
        *("receive", "-s", "-u", "-o", "readonly=on", "-o", "atime=off", "-o", "sparkctl:id=sparkctl-demo"),
        *("-o", "mountpoint=/srv/model", TARGET),
    ]
    assert asked["way"][:2] == ["ssh", "10.40.0.2"]


def test_an_encrypted_dataset_is_sent_as_it_lies_on_the_disk():
    asked = stream(SHARE.attach(WANT, seen(replace(SMALL, is_encrypted=True))))
    assert asked["send"] == ["zfs", "send", "-vP", "-w", "models/dsv41-exl3@sparkctl-1"]


def test_nothing_is_done_when_the_worker_has_it_held_and_mounted():
    held = replace(S1, tags=("sparkctl",))
    facts = seen(replace(SOURCE, snapshots=(held,)), replace(COPY, snapshots=(held,)))
    assert SHARE.attach(WANT, facts).is_empty
    assert SHARE.how(WANT, FOLDER, "b", facts, ReadThrough("zfs")) == (
        f"ZFS dataset {TARGET} at sparkctl-1, read-only, 370.0 GiB left"
    )
    with pytest.raises(Refused, match="it is read from ext4, not from the dataset"):
        SHARE.how(WANT, FOLDER, "b", facts, ReadThrough("ext4"))


def test_old_checkpoints_of_ours_go_on_both_sides_and_nothing_else():
    old = tuple(Snapshot(f"sparkctl-{n}", n, n, tags=("sparkctl",)) for n in range(1, 5))
    mixed = (Snapshot("daily", 50, 0), *old)
    plan = SHARE.attach(WANT, seen(replace(SOURCE, snapshots=mixed), replace(COPY, snapshots=mixed)))
    assert [line for line in words(plan) if line.startswith("destroy")] == [
        "destroy models/dsv41-exl3@sparkctl-1",
        "destroy models/dsv41-exl3@sparkctl-2",
        f"destroy {TARGET}@sparkctl-1",
        f"destroy {TARGET}@sparkctl-2",
    ]
    assert surplus(old, frozenset({1}), 1) == old[1:3]


def test_a_dataset_that_we_did_not_make_is_left_alone():
    with pytest.raises(Refused) as refused:
        SHARE.attach(WANT, seen(SMALL, replace(COPY, owner="", snapshots=(S1,))))
    assert refused.value.what == Clash.FOREIGN.value
    assert SHARE.detach(WANT, seen(replace(SMALL, snapshots=()), replace(COPY, owner=""))).is_empty


def test_missing_rights_are_told_with_the_command_that_grants_them():
    with pytest.raises(Refused) as refused:
        SHARE.attach(WANT, seen(SMALL, user="spark", rights="send snapshot mount hold release destroy create"))
    assert refused.value.what == "spark may not atime, readonly, receive, rollback, userprop"
    assert refused.value.fix == (
        "on b: sudo zfs allow -u spark "
        "atime,create,destroy,hold,mount,readonly,receive,release,rollback,userprop models"
    )
    with pytest.raises(Refused, match="spark may not destroy, hold, mount, release, send, snapshot"):
        SHARE.attach(WANT, seen(SMALL, user="spark"))


def test_weights_without_a_dataset_of_their_own_and_nodes_without_zfs_are_told():
    inside = replace(SMALL, mountpoint="/data")
    with pytest.raises(Refused) as refused:
        SHARE.attach(WANT, seen(inside))
    assert refused.value.evidence == ("inside models/dsv41-exl3 (/data)",)
    facts = seen(SMALL)
    facts["b"] = replace(facts["b"], words=(), problem="The ZFS modules are not loaded.")
    with pytest.raises(Refused) as refused:
        SHARE.attach(WANT, facts)
    assert (refused.value.where, refused.value.evidence) == ("b", ("The ZFS modules are not loaded.",))


def test_files_that_a_mount_would_hide_are_told():
    with pytest.raises(Refused, match="files lie where the dataset would be mounted"):
        SHARE.attach(WANT, seen(SMALL, hidden=True))


def test_folders_that_the_first_mount_made_are_noted_on_the_dataset():
    roomy = replace(POOL, available=Bytes(1 << 50))

    def given(absent: str, user: str = "root") -> list[str]:
        facts = seen(user=user, rights=" ".join(HEAD_RIGHTS | WORKER_RIGHTS))
        facts["b"] = replace(facts["b"], datasets={"models": roomy})
        facts["b"].places["model"] = replace(facts["b"].places["model"], absent=absent)
        return [word for word in stream(SHARE.attach(WANT, facts))["receive"] if word.startswith("sparkctl:made")]

    assert given("/srv") == ["sparkctl:made=/srv"]
    assert given("") == []
    assert given("/srv", user="spark") == []


def test_a_detach_removes_the_folders_that_were_made_for_it():
    def removed(made: str, mountpoint: str = "/srv/model") -> list[tuple[str, ...]]:
        there = replace(COPY, snapshots=(S1,), made=made, mountpoint=mountpoint)
        found = SHARE.detach(WANT, seen(replace(SOURCE, snapshots=()), there))
        return [step.command.argv for stage in found.stages for step in stage.steps
                if isinstance(step, Run) and step.command.argv[0] == "sh"]  # fmt: skip

    assert removed("/srv") == [(*REMOVE_EMPTY, "/srv/model"), (*REMOVE_EMPTY, "/srv")]
    assert removed("/srv/model") == [(*REMOVE_EMPTY, "/srv/model")]
    assert removed("") == removed("/srv", mountpoint="/elsewhere") == removed("/srv", mountpoint="") == []


def test_folders_are_removed_with_the_rights_that_zfs_needs():
    facts = seen(replace(SOURCE, snapshots=()), replace(COPY, made="/srv/model"))
    facts["b"] = replace(facts["b"], words=("sudo", "-n", "/usr/sbin/zfs"))
    (*_, last) = SHARE.detach(WANT, facts).stages[0].steps
    assert isinstance(last, Run)
    assert last.command.argv == ("sudo", "-n", *REMOVE_EMPTY, "/srv/model")


def test_a_detach_takes_the_copy_and_the_heads_snapshots():
    held = replace(S1, tags=("sparkctl",))
    daily = Snapshot("daily", 5, 100)
    plan = SHARE.detach(WANT, seen(replace(SMALL, snapshots=(daily, held)), replace(COPY, snapshots=(held,))))
    assert words(plan) == [
        f"unmount {TARGET}",
        f"release sparkctl {TARGET}@sparkctl-1",
        f"destroy -r {TARGET}",
        "release sparkctl models/dsv41-exl3@sparkctl-1",
        "destroy models/dsv41-exl3@sparkctl-1",
    ]
