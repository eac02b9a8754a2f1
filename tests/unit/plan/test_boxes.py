"""Images are the same when their layers are, and a rank's container gets what its node has."""

from dataclasses import replace

import pytest

from cluster.model.containers import Box, ContainerSeen, EngineSeen, ImageSeen, Mount
from cluster.model.events import Severity
from cluster.model.kit import Image
from cluster.model.nodes import NodeSettings
from cluster.model.settings import Launch, RuntimeKind, Serve
from cluster.model.units import Bytes
from cluster.plan.boxes import BoxSeen, box_of, check_boxes, check_labelled
from cluster.plan.image import same_image
from tests.build import pair

HEAD = ImageSeen(
    id="sha256:1111aa",
    tags=("dsv41:2.9bpw",),
    digests=("registry.example/dsv41@sha256:1111aa",),
    layers=("sha256:aa01", "sha256:aa02"),
    architecture="arm64",
    system="linux",
    labels=(),
    size=Bytes(9),
    driver="overlayfs",
)
WORKER = replace(HEAD, id="sha256:9999cc", driver="overlay2")
ENGINE = EngineSeen("28.2.2", "1.50", "aarch64", "overlay2", False, "/var/lib/docker", ("io.containerd.runc.v2",))
SETTINGS = pair(
    serve=Serve(model="/model"),
    launch=Launch(runtime=RuntimeKind.CONTAINER),
    image=Image(name="dsv41:2.9bpw"),
)


def seen(image: ImageSeen | None, **changes) -> BoxSeen:
    return replace(BoxSeen(ENGINE, image, "/home/op", ()), **changes)


@pytest.mark.parametrize(
    ("worker", "same"),
    [
        (WORKER, True),
        (replace(WORKER, digests=()), True),  # save and load on overlay2 leave none
        (replace(WORKER, digests=(), layers=("sha256:aa01", "sha256:bb02")), False),
        (replace(WORKER, architecture="amd64"), False),
        (replace(WORKER, layers=()), True),  # a digest is shared
        (replace(WORKER, layers=(), digests=()), False),
    ],
)
def test_one_image_in_two_stores_is_the_same_image(worker, same):
    """IMG-01: ids differ between stores, the ordered layer list does not."""
    assert same_image(HEAD, worker) is same


def test_different_images_on_two_ranks_are_refused_naming_both():
    """VLL-04: also when nothing was to be shipped, for nothing here asks."""
    other = replace(WORKER, digests=(), layers=("sha256:aa01", "sha256:bb02"))
    found = check_boxes(SETTINGS, {"spark-a": seen(HEAD), "spark-b": seen(other)})
    assert [(one.id, one.severity) for one in found] == [
        ("IMAGE.PRESENT", Severity.OK),
        ("IMAGE.PRESENT", Severity.OK),
        ("RANKS.IMAGE", Severity.REFUSAL),
    ]
    assert found[2].observed == "spark-a 2 layers, the last aa02, spark-b 2 layers, the last bb02"


def test_a_runtime_without_images_is_not_said_to_have_one():
    assert check_boxes(SETTINGS, {}) == ()


def test_a_missing_image_is_refused_on_the_node_that_lacks_it():
    found = check_boxes(SETTINGS, {"spark-a": seen(HEAD), "spark-b": seen(None)})
    assert [(one.id, one.node, one.severity) for one in found] == [
        ("IMAGE.PRESENT", "spark-a", Severity.OK),
        ("IMAGE.PRESENT", "spark-b", Severity.REFUSAL),
    ]


def test_an_image_of_another_architecture_is_refused():
    found = check_boxes(SETTINGS, {"spark-a": seen(replace(HEAD, architecture="amd64"))})
    assert (found[0].severity, found[0].observed) == (Severity.REFUSAL, "dsv41:2.9bpw is for linux/amd64")


def test_a_container_runs_the_image_by_its_id_with_what_its_node_has():
    node = NodeSettings(name="spark-b", address="10.40.0.2", model="~/model", cache="/srv/cache")
    devices = ("/dev/infiniband", "/dev/nvidia0")
    assert box_of(SETTINGS, node, seen(HEAD, devices=devices)) == Box(
        image="sha256:1111aa",
        engine="/var/run/docker.sock",
        home="/home/op",
        mounts=(Mount("~/model", "/model"), Mount("/srv/cache", "/root/.cache/vllm", read_only=False)),
        devices=devices,
        gpus=True,
    )


STRANGER = ContainerSeen("f00d", "web", "sha256:9", "exited", 0, 0, (("sparkctl.deployment", "demo"),))


@pytest.mark.parametrize(
    ("name", "state", "refused"),
    [
        ("web", "exited", True),  # somebody else's, with our label
        ("sparkctl-demo-rank0-20261130T120000Z-0001", "running", True),  # ours, and nobody has it on record
        ("sparkctl-demo-rank0-20261130T120000Z-0001", "exited", False),
        ("sparkctl-demo-rank0-20261130T120000Z-0001", "created", False),
    ],
)
def test_a_container_with_our_label_that_no_start_made_is_refused(name, state, refused):
    settings = replace(SETTINGS, deployment="demo")
    found = check_labelled(settings, {"spark-a": seen(HEAD, labelled=(replace(STRANGER, name=name, state=state),))})
    assert [one.severity is Severity.REFUSAL for one in found] == [refused]
    assert not refused or f"docker rm -f {name}" in found[0].fix
