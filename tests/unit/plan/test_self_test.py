"""What the image's self-test is run as, and what its end means."""

from dataclasses import replace

import pytest

from cluster.model.checks import Finding, Severity
from cluster.model.containers import ContainerSpec, EngineSeen, ImageSeen
from cluster.model.units import Bytes
from cluster.plan.boxes import BoxSeen
from cluster.plan.self_test import Ran, judge_self_test, not_run, self_test_container

IMAGE = ImageSeen(
    "sha256:11aa",
    ("x:1",),
    (),
    ("sha256:aa",),
    "arm64",
    "linux",
    (("sparkctl.self-test", "/opt/test.sh vllm torch"),),
    Bytes(9),
    "overlay2",
)
ENGINE = EngineSeen("28.2.2", "1.50", "aarch64", "overlay2", False, "/var/lib/docker", ("runc",))
PLAIN = BoxSeen(ENGINE, IMAGE, "/root", ())
GPU = replace(PLAIN, devices=("/dev/infiniband", "/dev/nvidia0", "/dev/nvidiactl"))


def test_it_gets_the_gpu_and_nothing_else_of_the_node():
    assert self_test_container("demo", IMAGE, GPU, "ab12") == ContainerSpec(
        name="sparkctl-check-demo-ab12",
        image="sha256:11aa",
        argv=("/opt/test.sh", "vllm", "torch"),
        environment=(("SPARKCTL_SELF_TEST", "gpu"),),
        labels=(("sparkctl.check", "demo"),),
        devices=("/dev/nvidia0", "/dev/nvidiactl"),
        gpus=True,
        host_network=False,
        host_ipc=False,
    )


def test_without_a_gpu_it_is_told_so():
    spec = self_test_container("demo", IMAGE, PLAIN, "ab12")
    assert (spec.gpus, spec.devices, spec.environment) == (False, (), (("SPARKCTL_SELF_TEST", "cpu"),))


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (GPU, None),
        (PLAIN, (Severity.NOTE, "not checked: no GPU on spark-a")),
        (
            replace(GPU, image=replace(IMAGE, labels=())),
            (Severity.NOT_CHECKED, "not checked: the image has no self-test (label sparkctl.self-test)"),
        ),
        (replace(PLAIN, engine=replace(ENGINE, runtimes=("nvidia", "runc"))), None),
    ],
)
def test_what_is_not_checked_before_a_start_is_named(seen, reason):
    found = not_run("spark-a", seen)
    assert ((found.severity, found.observed) if found else None) == reason


@pytest.mark.parametrize(
    ("ran", "severity", "observed"),
    [
        (Ran(0, ("ok",), 12.3), Severity.OK, "the image's self-test passed on its GPU, in 12 s"),
        (
            Ran(1, ("self-test: torch sees no GPU here",)),
            Severity.REFUSAL,
            "the image's self-test ended with exit code 1",
        ),
        (Ran(137), Severity.REFUSAL, "the image's self-test ended with exit code 137"),
        (Ran(None), Severity.REFUSAL, "the image's self-test did not end within 300 s"),
        (
            Ran(None, failed="could not select device driver"),
            Severity.REFUSAL,
            "the image's self-test could not be run: could not select device driver",
        ),
    ],
)
def test_its_end_is_judged(ran, severity, observed):
    found = judge_self_test("spark-a", GPU, ran)
    assert (found.id, found.node, found.severity, found.observed) == ("IMAGE.SELF_TEST", "spark-a", severity, observed)
    assert bool(found.fix) is (severity is Severity.REFUSAL)
    assert found.details == (ran.lines if ran.code else ())


def test_a_missing_toolkit_has_its_own_fix():
    failed = 'could not select device driver "" with capabilities: [[gpu]]'
    found: Finding = judge_self_test("spark-a", GPU, Ran(None, failed=failed))
    assert found.fix.startswith("on spark-a: sudo nvidia-ctk runtime configure")
