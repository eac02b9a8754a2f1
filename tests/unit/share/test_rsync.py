import json
from dataclasses import replace

import pytest

from cluster.errors import Refused
from cluster.model.kit import Weights
from cluster.model.nodes import NodeSettings
from cluster.model.steps import Plan, Run, Write
from cluster.share.base import Folder, ReadThrough, Want
from cluster.share.rsync import CopySeen, RsyncShare

FOLDER = Folder("the model", "model", "/data/m", {"b": "/srv/m"})
HEAD, WORKER = NodeSettings(name="a", address="10.40.0.1"), NodeSettings(name="b", address="10.40.0.2")
WANT = Want("demo", HEAD, (WORKER,), (FOLDER,), Weights(), ways={"b": ("ssh", "10.40.0.2")})
SHARE = RsyncShare(lambda *names: "+".join(names).encode())
GIB = 1 << 30


def held(
    files: str,
    *,
    brought: str | None = None,
    made: bool = True,
    free: int = 100 * GIB,
    begun: int = 0,
    present: bool = True,
):
    """`m1:5:aa` is a file of five bytes with the digest aa, `m1:5` one that nobody has read."""
    lines = [
        {
            "kind": "room",
            "path": "/x",
            "present": present,
            "free": free,
            "inodes": None,
            "writable": True,
            "begun": begun,
        }
    ]
    names = brought.split() if brought is not None else None
    lines.append({"kind": "record", "names": names, "made": made})
    for word in files.split():
        name, size, digest = (*word.split(":"), "", "")[:3]
        digest = f"sha256:{digest}" if digest else ""
        size_said = int(size) if size else None
        lines.append({"kind": "file", "name": name, "size": size_said, "digest": digest})
    return "\n".join(map(json.dumps, lines))


def seen(head: str, worker: str = "", want: Want = WANT, **more) -> dict[str, CopySeen]:
    there = {"present": bool(worker), **more}
    return {"a": SHARE.read(want, "a", held(head)), "b": SHARE.read(want, "b", held(worker, **there))}


def steps(plan: Plan) -> list[tuple[str, str, str]]:
    return [(stage.name, step.node, step.why) for stage in plan.stages for step in stage.steps]


def asked(plan: Plan, stage: str) -> dict:
    (found,) = (one for one in plan.stages if one.name == stage)
    (step,) = (one for one in found.steps if isinstance(one, Run))
    return json.loads(step.command.argv[-1])


def test_all_is_copied_then_read_on_both_sides():
    plan = SHARE.attach(WANT, seen("config.json:2:c m1:5368709120:aa m2:5"))
    assert steps(plan) == [
        ("ready", "b", "put the receiver there"),
        ("ready", "b", "note what is brought"),
        ("copy", "a", "copy the model to b: 3 files, 5.0 GiB"),
        ("read", "a", "read what is compared"),
        ("read", "b", "read what is there, to compare it"),
    ]
    assert asked(plan, "copy") == {
        "folder": "/data/m",
        "to": "/srv/m",
        "files": ["config.json", "m1", "m2"],
        "receiver": ["ssh", "10.40.0.2", "python3", "-IS", SHARE._receiver()],
        "streams": 4,
        "limit": 0,
        "piece": 64 << 20,
        "block": 4 << 20,
        "silence": 120.0,
    }


def test_the_head_reads_only_what_nobody_has_proven():
    plan = SHARE.attach(WANT, seen("m1:5:aa m2:5"))
    reads = {
        step.node: json.loads(step.command.argv[-1])[0]["files"]
        for step in plan.stages[-1].steps
        if isinstance(step, Run)
    }
    assert reads == {"a": {"m2": "sha256"}, "b": {"m1": "sha256", "m2": "sha256"}}


def test_when_every_file_is_equal_there_is_nothing_to_do():
    assert SHARE.attach(WANT, seen("m1:5:aa m2:7:bb", "m1:5:aa m2:7:bb")).is_empty


def test_files_of_the_same_size_are_compared_before_anything_is_sent():
    plan = SHARE.attach(WANT, seen("m1:5:aa", "m1:5"))
    assert steps(plan) == [("read", "b", "read what is there, to compare it")]


def test_a_swapped_shard_that_we_brought_is_sent_again_and_no_other():
    plan = SHARE.attach(WANT, seen("m1:5:aa m2:5:bb", "m1:5:bb m2:5:bb", brought="m1 m2"))
    assert asked(plan, "copy")["files"] == ["m1"]


def test_files_that_somebody_else_put_there_are_named_and_not_overwritten():
    there = seen("m1:5:aa m2:5:bb", "m1:5:zz m2:6")
    with pytest.raises(Refused) as refused:
        SHARE.attach(WANT, there)
    assert (refused.value.where, refused.value.evidence) == (
        "b:/srv/m",
        ("m1: sha256:zz, on the head sha256:aa", "m2: 6 bytes, on the head sha256:bb"),
    )
    assert "FORCE_SYNC=1" in refused.value.fix
    forced = replace(WANT, weights=replace(WANT.weights, force=True))
    assert asked(SHARE.attach(forced, there), "copy")["files"] == ["m1", "m2"]


def test_only_what_we_brought_is_removed_when_the_head_has_it_no_longer():
    plan = SHARE.attach(WANT, seen("m1:5:aa", "m1:5:aa old:5:oo theirs:5:tt", brought="m1 old"))
    assert steps(plan)[0] == ("tidy", "b", "remove 1 files that the head no longer has")
    assert asked(plan, "tidy")["files"] == ["old"]
    (note,) = (step for stage in plan.stages for step in stage.steps if isinstance(step, Write))
    assert json.loads(note.data) == {"folder": "/srv/m", "files": ["m1"], "made": True}


def test_what_was_there_before_is_not_noted_as_ours():
    plan = SHARE.attach(WANT, seen("m1:5:aa m2:5:bb", "m1:5:aa", present=True))
    note = next(s for stage in plan.stages for s in stage.steps if isinstance(s, Write) and "note" in s.why)
    assert json.loads(note.data) == {"folder": "/srv/m", "files": ["m2"], "made": False}


def test_room_is_counted_without_what_has_come_already():
    head = f"m1:{90 * GIB}:aa m2:{20 * GIB}:bb"
    with pytest.raises(Refused, match=r"no room for the copy: 110\.0 GiB needed, 100\.0 GiB free"):
        SHARE.attach(WANT, seen(head))
    assert not SHARE.attach(WANT, seen(head, begun=30 * GIB)).is_empty


def test_a_head_without_weights_or_with_a_dead_link_is_told():
    with pytest.raises(Refused, match="the head has no weights to share"):
        SHARE.attach(WANT, seen(""))
    with pytest.raises(Refused) as refused:
        SHARE.attach(WANT, seen("m1:5:aa m2:"))
    assert refused.value.evidence == ("m2: a link that leads nowhere",)


def test_a_detach_removes_what_was_brought_and_the_record_of_it():
    plan = SHARE.detach(WANT, seen("m1:5:aa", "m1:5:aa theirs:5:tt", brought="m1"))
    assert steps(plan) == [("detach", "b", "remove the copy")]
    assert asked(plan, "detach") == {
        "folder": "/srv/m",
        "files": ["m1"],
        "record": "~/.local/state/sparkctl/weights/brought-demo-model.json",
        "made": True,
    }
    assert SHARE.detach(WANT, seen("m1:5:aa", "m1:5:aa")).is_empty


def test_a_worker_on_the_heads_own_machine_needs_no_ssh():
    plan = SHARE.attach(replace(WANT, ways={"b": ()}), seen("m1:5:aa"))
    assert asked(plan, "copy")["receiver"][:2] == ["sh", "-c"]


def test_a_limit_is_in_megabytes_a_second():
    slow = replace(WANT, weights=replace(WANT.weights, copy_limit=300, copy_streams=8))
    told = asked(SHARE.attach(slow, seen("m1:5:aa")), "copy")
    assert (told["limit"], told["streams"]) == (300_000_000, 8)


def test_it_says_what_came_of_it():
    said = SHARE.how(WANT, FOLDER, "b", seen("m1:5:aa", "m1:5:aa"), ReadThrough("ext4"))
    assert said == "1 files of its own on ext4, all read there and equal by sha256"
