"""The plan of the NFS share, from what head and worker say of themselves."""

import errno
import json
from dataclasses import replace
from typing import Any

import pytest

from cluster.errors import Refused, SettingsError, Unreadable
from cluster.model.kit import MountBy, Transport, Weights
from cluster.model.nodes import NodeSettings
from cluster.model.steps import Run, Write
from cluster.share.base import Folder, Reading, ReadThrough, Want
from cluster.share.nfs import NfsShare

HEAD = NodeSettings(name="a", address="10.40.0.1", state_dir="~/state")
WORKER = NodeSettings(name="b", address="10.40.0.2", state_dir="~/state")
MODEL = Folder("the model", "model", "/data/m", {"b": "/srv/m"})
INSIDE = replace(MODEL, inside="/model")
SHARE = NfsShare(lambda *parts: " ".join(parts).encode())
ROOT = "/data/m/.sparkctl/export"
TREE = "sparkctl-demo-model.d9a91b82b0"
DEVICE = f"{ROOT}/{TREE}"
EXPORT = "ro,sync,no_subtree_check,root_squash"
TCP = "ro,vers=4.2,proto=tcp,nconnect=8,hard,noatime,nocto,actimeo=3600,rsize=1048576,softreval"


def want(*, boxed=False, **weights):
    folder = INSIDE if boxed else MODEL
    engine, image = ("/run/docker.sock", "img:1") if boxed else ("", "")
    return Want("demo", HEAD, (WORKER,), (folder,), Weights(**weights), engine, image)


def head(**changes):
    folder = {
        "source": "/data/m",
        "root": ROOT,
        "present": True,
        "kind": "ext4",
        "device": 7,
        "files": {"config.json": [7, 1, 2, 99, 0o644], "x.safetensors": [7, 2, 500, 99, 0o644]},
        "trees": {},
    }
    folder |= changes.pop("folder", {})
    said = {
        "user": 1000,
        "sudo": True,
        "tools": ["exportfs", "systemctl"],
        "threads": 16,
        "ports": ["tcp 2049", "udp 2049"],
        "exports": "",
        "dropin": None,
        "record": None,
        "rdma": [],
        "box": None,
        "folders": {"model": folder},
    }
    return said | changes


def worker(**changes):
    said: dict[str, Any] = {
        "user": 1000,
        "sudo": True,
        "tools": ["mount.nfs"],
        "rdma": [],
        "record": None,
        "reach": "open",
        "source": "10.40.0.2",
        "mounts": [],
        "targets": {"model": {"path": "/srv/m", "problem": 0, "entries": 0, "absent": []}},
        "volumes": {},
        "users": {},
    }
    target = said["targets"]["model"] | changes.pop("target", {})
    return said | {"targets": {"model": target}} | changes


def seen(asked, a=None, b=None):
    return {
        "a": SHARE.read(asked, "a", json.dumps(a or head())),
        "b": SHARE.read(asked, "b", json.dumps(b or worker())),
    }


def attach(asked=None, a=None, b=None):
    asked = asked or want()
    return SHARE.attach(asked, seen(asked, a, b))


def lines(plan):
    """STAGE NODE command; a program of ours by its parts."""
    found = []
    for stage in plan.stages:
        for step in stage.steps:
            match step:
                case Run(command=command):
                    words = " ".join(command.argv)
                    if "python3 -IS -" in words:
                        words = f"{words.partition('python3')[0]}[{command.stdin.decode()}] {command.argv[-1]}"
                    found.append(f"{stage.name}: {step.node}: {words}")
                case Write(path=path, data=data):
                    found.append(f"{stage.name}: {step.node}: {path} = {data.decode()}")
                case _:
                    raise AssertionError(step)
    return found


def published():
    return {"trees": {TREE: {"config.json": 1, "x.safetensors": 2}}}


def mount(**changes):
    words = f"rw,noatime,{TCP}".replace("rw,", "")
    return {"target": "/srv/m", "device": f"10.40.0.1:{DEVICE}", "options": words, "read_ahead": 16384} | changes


def attached():
    text = f"{ROOT} 10.40.0.2({EXPORT})\n"
    kept = f"{ROOT}\t10.40.0.2({EXPORT},wdelay,secure,no_all_squash,sec=sys)\n"
    return head(exports=kept, dropin=text, folder=published()), worker(mounts=[mount()])


def test_everything_is_done_when_nothing_is_there():
    plan = attach(b=worker(target={"absent": ["/srv", "/srv/m"]}))
    publish = json.dumps({"source": "/data/m", "root": ROOT, "tree": TREE}, separators=(",", ":"))
    assert lines(plan) == [
        f"export: a: sudo -n [links publish] {publish}",
        (
            'export: a: sudo -n sh -c mkdir -p "$(dirname "$0")" && cat > "$0.new" && mv "$0.new" "$0" '
            "/etc/exports.d/sparkctl-demo.exports"
        ),
        f"export: a: sudo -n exportfs -o {EXPORT} 10.40.0.2:{ROOT}",
        'mount: b: ~/state/share/demo-nfs.json = {"made": ["/srv", "/srv/m"]}',
        "mount: b: sudo -n mkdir -p /srv/m",
        f"mount: b: sudo -n mount -t nfs4 -o {TCP} 10.40.0.1:{DEVICE} /srv/m",
        'mount: b: sudo -n sh -c echo 16384 > "/sys/class/bdi/$(mountpoint -d "$0")/read_ahead_kb" /srv/m',
    ]
    dropin = plan.stages[0].steps[1]
    assert isinstance(dropin, Run)
    assert dropin.command.stdin.decode() == f"{ROOT} 10.40.0.2({EXPORT})\n"


def test_a_second_attach_has_nothing_to_do():
    assert attach(None, *attached()).is_empty


def test_nobody_needs_to_be_root_when_nothing_is_to_be_done():
    a, b = attached()
    assert attach(None, a | {"sudo": False}, b | {"sudo": False}).is_empty
    with pytest.raises(Refused) as refused:
        SHARE.detach(want(), seen(want(), a, b | {"sudo": False}))
    assert refused.value.evidence == ("to unmount /srv/m",)


def test_an_attach_that_was_cut_off_is_gone_on_with():
    a, b = attached()
    assert lines(attach(None, a, worker())) == lines(attach(None, a, worker(reach="open")))
    assert [one.split()[0] for one in lines(attach(None, a, worker()))] == ["mount:", "mount:"]
    assert [one.split()[0] for one in lines(attach(None, a | {"exports": ""}, b))] == ["export:"]


def test_the_server_is_started_and_what_it_was_before_is_noted():
    plan = lines(attach(None, head(threads=0, folder=published()), worker(reach="no_listener")))
    assert plan[:3] == [
        'export: a: ~/state/share/demo-nfs.json = {"threads": 0}',
        "export: a: sudo -n systemctl start nfs-server",
        "export: a: sudo -n sh -c echo 16 > /proc/fs/nfsd/threads",
    ]


def test_after_a_reboot_of_the_head_it_is_exported_again_and_the_note_stays():
    a, b = attached()
    a |= {"threads": 0, "record": '{"threads": 0}'}
    assert [one for one in lines(attach(None, a, b)) if "json" in one or "exportfs" in one] == [
        f"export: a: sudo -n exportfs -o {EXPORT} 10.40.0.2:{ROOT}"
    ]


def test_other_files_make_another_tree_and_the_old_one_goes_last():
    a, b = attached()
    a["folders"]["model"]["files"]["x.safetensors"] = [7, 9, 500, 100, 0o644]
    plan = attach(None, a, b)
    assert [stage.name for stage in plan.stages] == ["export", "mount", "tidy up"]
    assert "umount /srv/m" in lines(plan)[1]
    assert json.loads(lines(plan)[-1].split("] ")[1]) == {
        "source": "/data/m",
        "root": ROOT,
        "gone": [TREE],
        "folders": [],
    }


def test_rdma_is_used_where_every_node_has_a_device():
    rdma = {"rdma": ["rocep1s0f1"]}
    plan = lines(attach(None, head(**rdma), worker(**rdma)))
    assert any("rdma 20049" in one and "portlist" in one for one in plan)
    assert any("proto=rdma,port=20049,hard" in one for one in plan)
    assert any("root_squash,insecure 10.40.0.2" in one for one in plan)
    assert not any("rdma" in one for one in lines(attach(None, head(**rdma), worker())))
    assert not any(
        "rdma" in one for one in lines(attach(want(nfs_transport=Transport.TCP), head(**rdma), worker(**rdma)))
    )


@pytest.mark.parametrize(
    ("a", "b", "what"),
    [
        (head(tools=[]), None, "the head has no NFS server"),
        (head(sudo=False), None, "root is needed there, and sudo asks for a password"),
        (head(folder={"files": {}}), None, "the head does not have the model"),
        (head(folder={"kind": "overlay"}), None, f"{ROOT} lies on overlay, which cannot be exported"),
        (head(folder={"files": {"x": [-1, -1, -1, -1, -1]}}), None, "links lead nowhere"),
        (None, worker(tools=[]), "the worker cannot mount NFS"),
        (None, worker(sudo=False), "root is needed there, and sudo asks for a password"),
        (None, worker(reach="filtered"), "the worker does not reach the head's NFS port: no answer"),
        (None, worker(reach="rejected"), "the worker does not reach the head's NFS port: rejected"),
        (None, worker(reach="no_listener"), "the head's NFS server does not listen on that address"),
        (None, worker(source="192.0.2.7"), "the worker comes from 192.0.2.7, and the export is for 10.40.0.2"),
        (None, worker(target={"entries": 3}),
         "the model's folder on the worker has 3 files of its own, which a mount would hide"),
        (None, worker(mounts=[mount(device="10.40.0.9:/x")]), "something else is mounted there: 10.40.0.9:/x"),
        (None, worker(mounts=[mount()], target={"problem": errno.ETIMEDOUT}), "the NFS server does not answer"),
        (None, worker(mounts=[mount(target="/home", device="10.40.0.1:/home", options="rw,vers=4.2,proto=rdma")]),
         "another mount of that server goes over rdma, and ours would silently do so too"),
    ],
)  # fmt: skip
def test_what_stands_in_the_way_is_told_before_anything_is_done(a, b, what):
    with pytest.raises(Refused) as refused:
        attach(None, a, b)
    assert refused.value.what == what
    assert refused.value.fix


def test_hard_links_do_not_reach_another_file_system_and_nothing_is_copied():
    """NFS-03."""
    with pytest.raises(Refused) as refused:
        attach(None, head(folder={"root": "/exports/hf", "device": 66306}))
    assert refused.value.evidence == ("2 of 2 files, e.g. config.json", "exported is /exports/hf")
    assert "leave NFS_EXPORT_ROOT empty" in refused.value.fix


def test_shards_that_only_their_owner_may_read_are_named():
    """NFS-07."""
    files = {
        "model-00001-of-00039.safetensors": [7, 1, 9, 9, 0o644],
        "model-00002-of-00039.safetensors": [7, 2, 9, 9, 0o600],
    }
    with pytest.raises(Refused) as refused:
        attach(None, head(folder={"files": files}))
    assert refused.value.evidence == ("model-00002-of-00039.safetensors",)
    assert refused.value.fix == "chmod o+r /data/m/*"
    squashing = want(nfs_options="ro,sync,no_subtree_check,all_squash,anonuid=1000")
    assert not attach(squashing, head(folder={"files": files})).is_empty


def test_an_exporters_root_elsewhere_is_told():
    """NFS-02."""
    with pytest.raises(Refused) as refused:
        attach(None, head(exports="/exports/hf 10.40.0.0/24(ro,fsid=0)\n"))
    assert refused.value.fix == "set NFS_EXPORT_ROOT to a folder below /exports/hf"
    below = head(exports="/data 10.40.0.0/24(ro,fsid=0)\n")
    assert any(f"10.40.0.1:/m/.sparkctl/export/{TREE} /srv/m" in one for one in lines(attach(None, below)))


def test_exports_of_others_are_left_alone():
    a, b = attached()
    a["exports"] += "/home 192.0.2.0/24(rw)\n"
    assert attach(None, a, b).is_empty
    asked = want()
    assert not any("/home" in one for one in lines(SHARE.detach(asked, seen(asked, a, b))))


def test_nobody_exports_to_everybody_or_writable():
    with pytest.raises(SettingsError):
        attach(want(nfs_clients="*"))
    with pytest.raises(SettingsError):
        attach(want(nfs_options="rw,sync"))


def test_a_stale_handle_is_mounted_again_and_nothing_else_is():
    """NFS-04."""
    a, _ = attached()
    plan = lines(attach(None, a, worker(mounts=[mount()], target={"problem": errno.ESTALE})))
    assert [one.split("sudo -n ")[1].split()[0] for one in plan] == ["umount", "mount", "sh"]
    assert "umount -l /srv/m" in plan[0]


@pytest.mark.parametrize(
    "other",
    [mount(device="10.40.0.1:/old"), mount(options="ro,vers=4.1,proto=tcp"), mount(options="rw,vers=4.2,proto=tcp")],
)
def test_a_mount_that_is_not_as_wanted_is_made_anew(other):
    a, _ = attached()
    assert "umount /srv/m" in lines(attach(None, a, worker(mounts=[other])))[0]


def test_only_read_ahead_that_is_too_small_is_set():
    a, _ = attached()
    (only,) = lines(attach(None, a, worker(mounts=[mount(read_ahead=128)])))
    assert "read_ahead_kb" in only


def test_a_detach_takes_back_what_is_ours():
    asked = want()
    a, b = attached()
    a["record"], b["record"] = '{"threads": 8}', '{"made": ["/srv", "/srv/m"]}'
    assert [one.replace("sudo -n ", "") for one in lines(SHARE.detach(asked, seen(asked, a, b)))] == [
        "unmount: b: umount /srv/m",
        'unmount: b: sh -c [ ! -d "$0" ] || rmdir --ignore-fail-on-non-empty "$0" /srv/m',
        'unmount: b: sh -c [ ! -d "$0" ] || rmdir --ignore-fail-on-non-empty "$0" /srv',
        'unmount: b: sh -c rm -f "$0" "$HOME/${0#\\~/}" ~/state/share/demo-nfs.json',
        f"no longer export: a: exportfs -u 10.40.0.2:{ROOT}",
        "no longer export: a: rm -f /etc/exports.d/sparkctl-demo.exports",
        (
            f'no longer export: a: [links publish] {{"source":"/data/m","root":"{ROOT}","gone":["{TREE}"],'
            f'"folders":["{ROOT}","/data/m/.sparkctl"]}}'
        ),
        "no longer export: a: sh -c echo 8 > /proc/fs/nfsd/threads",
        'no longer export: a: sh -c rm -f "$0" "$HOME/${0#\\~/}" ~/state/share/demo-nfs.json',
    ]
    assert SHARE.detach(asked, seen(asked)).is_empty


def test_a_server_that_did_not_run_before_is_stopped_unless_others_need_it():
    asked = want()
    a, b = attached()
    a["record"] = '{"threads": 0}'
    assert any("systemctl stop nfs-server" in one for one in lines(SHARE.detach(asked, seen(asked, a, b))))
    a["exports"] += "/home 192.0.2.0/24(rw)\n"
    assert not any("systemctl" in one for one in lines(SHARE.detach(asked, seen(asked, a, b))))


def test_a_detach_does_not_wait_for_a_server_that_is_gone():
    """NFS-05."""
    asked = want()
    a, b = attached()
    b |= {"reach": "filtered"}
    (first, *_) = lines(SHARE.detach(asked, seen(asked, a, b)))
    assert ("sudo -n sh -c" in first, "umount -i -c -f -l" in first, first.endswith(" /srv/m")) == (True, True, True)


def volume(**changes):
    given = {"type": "nfs", "device": f":{DEVICE}", "o": f"addr=10.40.0.1,{TCP}"} | changes
    return {"Name": "sparkctl-demo-model", "Options": given, "Labels": {"sparkctl.deployment": "demo"}}


def boxed_worker(there=None, users=()):
    return worker(tools=["docker"], sudo=False, volumes={"model": there}, users={"model": list(users)})


def test_containers_get_a_volume_which_needs_no_root():
    asked = want(boxed=True, nfs_mount_by=MountBy.VOLUME)
    plan = lines(attach(asked, attached()[0], boxed_worker()))
    assert plan == [
        (
            "mount: b: docker -H unix:///run/docker.sock volume create --driver local --label sparkctl.deployment=demo "
            f"--opt type=nfs --opt device=:{DEVICE} --opt o=addr=10.40.0.1,{TCP} sparkctl-demo-model"
        )
    ]
    assert attach(asked, attached()[0], boxed_worker(volume())).is_empty
    reading = SHARE.reading(asked, INSIDE, "b")
    assert (reading.path, reading.mounts[0].source) == ("/model", "sparkctl-demo-model")


def test_a_volume_with_other_options_is_made_anew_and_never_taken_as_it_is():
    """NFS-01."""
    asked = want(boxed=True, nfs_mount_by=MountBy.VOLUME)
    old = volume(o=f"addr=10.40.0.9,{TCP}")
    remove, create = attach(asked, attached()[0], boxed_worker(old)).stages[0].steps
    assert remove.why == "remove volume sparkctl-demo-model (addr: has 10.40.0.9, wanted 10.40.0.1)"
    assert create.why == "make volume sparkctl-demo-model for the model"
    with pytest.raises(Refused) as refused:
        attach(asked, attached()[0], boxed_worker(old, ["dsv41-worker"]))
    assert "dsv41-worker uses it" in refused.value.what


def test_containers_can_have_a_mount_of_the_host_and_ranks_of_the_host_nothing_else():
    asked = want(boxed=True, nfs_mount_by=MountBy.HOST)
    assert any("mount -t nfs4" in one for one in lines(attach(asked)))
    assert SHARE.reading(asked, INSIDE, "b").mounts[0].source == "/srv/m"
    assert SHARE.reading(want(), MODEL, "b") == Reading("/srv/m")


def test_a_detach_removes_our_volume_and_nobody_elses():
    asked = want(boxed=True, nfs_mount_by=MountBy.VOLUME)
    (only,) = SHARE.detach(asked, seen(asked, head(), boxed_worker(volume()))).stages[0].steps
    assert isinstance(only, Run)
    assert only.command.argv[-2:] == ("rm", "sparkctl-demo-model")
    other = volume() | {"Labels": None}
    assert SHARE.detach(asked, seen(asked, head(), boxed_worker(other))).is_empty


def box(**changes):
    told = ["NFS_CLIENTS=10.40.0.2", f"NFS_OPTS={EXPORT},fsid=0"]
    said = {
        "ours": "demo",
        "image": "nfs:1",
        "runs": True,
        "binds": {ROOT: "/export"},
        "environment": told,
        "exports": "",
    }
    return said | changes


def test_a_head_without_a_server_runs_the_exporters_image():
    asked = want(nfs_image="nfs:1")
    plan = lines(attach(asked, head(tools=["docker"], threads=None, folder=published()), worker(reach="no_listener")))
    assert plan[0] == (
        "export: a: docker -H unix:///var/run/docker.sock run --detach --name sparkctl-demo-exporter --restart "
        "unless-stopped --privileged --network host --label sparkctl.exporter=demo "
        f"--volume {ROOT}:/export:ro --env NFS_CLIENTS=10.40.0.2 --env NFS_OPTS={EXPORT},fsid=0 nfs:1"
    )
    assert f" 10.40.0.1:/{TREE} /srv/m" in plan[1]
    there = head(tools=["docker"], threads=8, box=box(), folder=published())
    assert attach(asked, there, worker(mounts=[mount(device=f"10.40.0.1:/{TREE}")])).is_empty
    older = head(tools=["docker"], threads=8, box=box(environment=[]), folder=published())
    assert [one.split()[5] for one in lines(attach(asked, older))[:3]] == ["stop", "rm", "run"]


def test_a_detach_gives_the_exporters_container_time_to_take_the_kernels_server_back():
    asked = want(nfs_image="nfs:1")
    there = head(tools=["docker"], threads=8, box=box())
    assert lines(SHARE.detach(asked, seen(asked, there))) == [
        "no longer export: a: docker -H unix:///var/run/docker.sock stop --time 30 sparkctl-demo-exporter",
        "no longer export: a: docker -H unix:///var/run/docker.sock rm --force sparkctl-demo-exporter",
    ]


def test_an_exporters_container_has_no_listener_for_rdma():
    rdma = {"rdma": ["rocep1s0f1"]}
    there = head(tools=["docker"], threads=None, folder=published(), **rdma)
    plan = lines(attach(want(nfs_image="nfs:1"), there, worker(reach="no_listener", **rdma)))
    assert not any("rdma" in one for one in plan)


def test_a_container_of_somebody_else_is_added_to():
    asked = want(nfs_container="vllm-fn-nfs", nfs_export_root="/data/m/.sparkctl/export")
    others = box(ours="", binds={"/data": "/exports"}, exports="/exports 10.40.0.0/24(ro,fsid=0)")
    plan = lines(attach(asked, head(tools=["docker"], box=others, folder=published())))
    assert plan[0] == (
        "export: a: docker -H unix:///var/run/docker.sock exec vllm-fn-nfs exportfs "
        f"-o {EXPORT} 10.40.0.2:/exports/m/.sparkctl/export"
    )
    assert f"10.40.0.1:/m/.sparkctl/export/{TREE} /srv/m" in plan[1]
    with pytest.raises(Refused) as refused:
        attach(asked, head(tools=["docker"], box=others | {"binds": {"/other": "/exports"}}, folder=published()))
    assert refused.value.what == f"container vllm-fn-nfs exports, and does not see {ROOT}"


def test_a_server_that_is_not_ours_is_not_replaced():
    with pytest.raises(Refused) as refused:
        attach(want(nfs_image="nfs:1"), head(tools=["docker"], threads=8))
    assert "a kernel has one" in refused.value.what


CAME = ReadThrough("nfs4", tuple(f"{TCP.replace('rsize=1048576', 'rsize=262144')}".split(",")))


def test_what_came_is_told():
    asked = want()
    told = SHARE.how(asked, MODEL, "b", seen(asked), CAME)
    assert told == "NFS 4.2 over tcp, read-only, 8 connections, reads of 256.0 KiB"


@pytest.mark.parametrize(
    ("mount_", "wrong"),
    [
        (ReadThrough("ext4", ("ro",)), "it is read through ext4, not NFS"),
        (ReadThrough("nfs4", ("rw", "proto=tcp")), "it is mounted writable"),
        (ReadThrough("nfs4", ("ro", "proto=rdma")), "it came over rdma, tcp was asked for"),
    ],
)
def test_asking_for_options_proves_nothing(mount_, wrong):
    asked = want()
    with pytest.raises(Refused) as refused:
        SHARE.how(asked, MODEL, "b", seen(asked), mount_)
    assert refused.value.evidence[0] == wrong


def test_what_could_be_better_is_told():
    asked = want(nfs_clients="10.40.0.0/24", nfs_options="ro,no_root_squash")
    small = worker(mounts=[mount(options="ro,vers=4.2,proto=tcp,rsize=262144")])
    assert SHARE.notes(asked, seen(asked, None, small)) == (
        "exported to more than the workers: 10.40.0.0/24",
        "no_root_squash: root on a worker can read everything below the export, whatever its mode",
        "b: the server gives reads of 256.0 KiB, 1 MiB was asked for",
    )


def test_every_node_is_asked_once():
    asked = SHARE.look(want(boxed=True, nfs_container="x"))
    assert {node: one.stdin.decode() for node, one in asked.items()} == {
        "a": "touch links nfs_common nfs_server",
        "b": "touch nfs_common nfs_client",
    }
    assert json.loads(asked["b"].argv[-1])["volumes"] == {"model": "sparkctl-demo-model"}
    for node in ("a", "b"):
        with pytest.raises(Unreadable):
            SHARE.read(want(), node, "[]")
