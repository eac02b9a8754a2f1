"""What an engine said is told with what it means and what to type next."""

import pytest

from cluster.errors import ImageMissing, NameTaken, StepFailed
from cluster.node.engine_said import keeps, meant
from cluster.node.failures import NoSpace


@pytest.mark.parametrize(
    ("said", "status", "kind", "what"),
    [
        ("write /var/lib/docker/tmp/x: no space left on device", 500, NoSpace, "no space left"),
        ('The container name "/a" is already in use by container "f00d"', 409, NameTaken, "the name is taken"),
        ("No such image: a:1", 404, ImageMissing, "no such image"),
        ("Head https://ghcr.io/v2/a: no basic auth credentials", 500, StepFailed, "the registry wants a login"),
        ("unauthorized: authentication required", None, StepFailed, "the registry wants a login"),
        (
            "filesystem layer verification failed for digest sha256:1",
            None,
            StepFailed,
            "a layer is not what its digest says",
        ),
        (
            'failed commit on ref "layer-sha256:1": unexpected commit digest sha256:2, expected sha256:1',
            None,
            StepFailed,
            "a layer is not what its digest says",
        ),
        ("manifest for a:1 not found: manifest unknown", 404, StepFailed, "the registry has no such image"),
        (
            "Get https://a/v2/: dial tcp 127.0.0.1:9: connect: connection refused",
            500,
            StepFailed,
            "the registry does not answer",
        ),
        (
            'invalid mount config for type "bind": bind source path does not exist: /nowhere',
            400,
            StepFailed,
            "a folder to be mounted is not there",
        ),
    ],
)
def test_what_an_engine_says_has_one_meaning(said, status, kind, what):
    error = meant("doing it", "worker", said, status)
    assert (type(error), error.what, error.where, error.evidence) == (
        kind,
        f"doing it failed: {what}",
        "worker",
        (said,),
    )


def test_words_that_nobody_knows_are_passed_on():
    error = meant("doing it", "worker", "something else", 500)
    assert (error.what, error.evidence) == ("doing it failed", ("something else",))


@pytest.mark.parametrize(
    ("told", "first"),
    [
        ({"Containerd": {"Address": "/run/containerd/containerd.sock"}}, "/var/lib/containerd"),
        ({"Containerd": {"Address": "/var/run/docker/containerd/containerd.sock"}}, "/data/docker/containerd/daemon"),
        ({}, "/var/lib/containerd"),
    ],
)
def test_blobs_lie_with_the_containerd_that_the_engine_speaks_to(told, first):
    assert keeps({"DockerRootDir": "/data/docker", **told})[0] == first
