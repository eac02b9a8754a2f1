from posixpath import normpath

from cluster.model.containers import Mount, with_targets
from cluster.model.kit import Weights
from cluster.model.nodes import NodeSettings
from cluster.model.steps import Command, Plan, Run, Stage
from cluster.share.base import Folder, Reading, Want, as_root, on_host, plan_of, through

FOLDER = Folder("the model", "model", "/data/m", {"b": "/srv/m"}, "/model")
HEAD, WORKER = NodeSettings(name="a", address="10.40.0.1"), NodeSettings(name="b", address="10.40.0.2")
NATIVE = Want("demo", HEAD, (WORKER,), (FOLDER,), Weights())
BOXED = Want("demo", HEAD, (WORKER,), (FOLDER,), Weights(), "/run/docker.sock", "img:1")
ASK = Command(("python3", "-IS", "-", "{}"), stdin=b"x")


def test_a_native_rank_reads_the_folder_itself():
    assert on_host(NATIVE, FOLDER, "b") == Reading("/srv/m")
    assert through(Reading("/srv/m"), NATIVE, ASK) == ASK


def test_a_container_reads_it_through_its_mount():
    reading = on_host(BOXED, FOLDER, "b")
    assert reading == Reading("/model", (Mount("/srv/m", "/model"),))
    asked = through(reading, BOXED, ASK)
    assert " ".join(asked.argv) == (
        "docker -H unix:///run/docker.sock run --rm -i --pull never --network none "
        "--mount type=bind,source=/srv/m,target=/model,readonly --entrypoint python3 img:1 -IS - {}"
    )
    assert asked.stdin == b"x"


def test_a_volume_is_mounted_as_one():
    asked = through(Reading("/model", (Mount("weights", "/model"),)), BOXED, ASK)
    assert "type=volume,source=weights,target=/model,readonly" in asked.argv


def test_a_snapshot_of_the_hubs_cache_is_mounted_with_what_its_links_lead_to():
    """HF-03: the host sees all files, and a container would not."""
    hub = "/data/hf/hub/models--org--m"
    assert with_targets(Mount(f"{hub}/snapshots/0123abc", f"{hub}/snapshots/0123abc")) == (Mount(hub, hub),)
    assert with_targets(Mount(f"{hub}/snapshots/0123abc", "/model/deep/here")) == (
        Mount(f"{hub}/snapshots/0123abc", "/model/deep/here"),
        Mount(f"{hub}/blobs", "/model/blobs"),
    )
    assert normpath("/model/deep/here/../../blobs/5f3e") == "/model/blobs/5f3e"
    assert with_targets(Mount("/data/m", "/model")) == (Mount("/data/m", "/model"),)


def test_only_who_is_not_root_asks_sudo():
    assert as_root(("umount", "/m"), 0) == ("umount", "/m")
    assert as_root(("umount", "/m"), 1000) == ("sudo", "-n", "umount", "/m")


def test_a_plan_has_no_empty_stages():
    step = Run("a", "do it", Command(("true",)))
    assert plan_of(("one", ()), ("two", (step,))) == Plan((Stage("two", (step,)),))
