"""The image's own self-test in a container that is thrown away: what is run, and what its end means."""

from dataclasses import dataclass

from cluster.model.checks import Finding, Severity
from cluster.model.containers import LABEL, ContainerSpec, ImageSeen
from cluster.model.units import Seconds
from cluster.plan.boxes import NVIDIA, BoxSeen, gives_gpus

CHECK = "IMAGE.SELF_TEST"
WORDS_LABEL = f"{LABEL}self-test"  # of an image: the command line
OURS_LABEL = f"{LABEL}check"  # of our container: the deployment that it is thrown away for
LIMIT = Seconds(300)
LAST_LINES = 30
WANTED = "the image's self-test passes on every node's GPU"
SKIP = "SKIP_OVERLAY_VERIFY=1 starts without it"
NO_TOOLKIT = "could not select device driver"


def words_of(image: ImageSeen) -> tuple[str, ...]:
    """None in an image that brings no self-test."""
    return tuple(dict(image.labels).get(WORDS_LABEL, "").split())


def self_test_container(deployment: str, image: ImageSeen, seen: BoxSeen, tail: str) -> ContainerSpec:
    """No network, no mount, nothing of the node but its GPU: `tail` keeps the names of two apart."""
    gpu = gives_gpus(seen)
    return ContainerSpec(
        name=f"sparkctl-check-{deployment}-{tail}",
        image=image.id,
        argv=words_of(image),
        environment=(("SPARKCTL_SELF_TEST", "gpu" if gpu else "cpu"),),
        labels=((OURS_LABEL, deployment),),
        devices=tuple(one for one in seen.devices if one in NVIDIA),
        gpus=gpu,
        host_network=False,
        host_ipc=False,
    )


@dataclass(frozen=True, slots=True)
class Ran:
    """How it ended: `code` is None when it did not within the limit; `failed` is why it could not be run at all."""

    code: int | None
    lines: tuple[str, ...] = ()
    seconds: float = 0.0
    failed: str = ""


def not_run(node: str, seen: BoxSeen) -> Finding | None:
    """Before a start it is the GPU that is tried; the rest was tried when the image was built."""
    if seen.image is None or not words_of(seen.image):
        text = f"not checked: the image has no self-test (label {WORDS_LABEL})"
        return Finding(CHECK, Severity.NOT_CHECKED, node, text)
    if not gives_gpus(seen):
        return Finding(CHECK, Severity.NOTE, node, f"not checked: no GPU on {node}")
    return None


def judge_self_test(node: str, seen: BoxSeen, ran: Ran) -> Finding:
    part = "on its GPU" if gives_gpus(seen) else f"but for the GPU, of which there is none on {node}"
    if ran.failed:
        return _refusal(node, f"the image's self-test could not be run: {ran.failed}", _mend(node, ran.failed), ran)
    if ran.code is None:
        return _refusal(node, f"the image's self-test did not end within {LIMIT:.0f} s", _again(node), ran)
    if ran.code:
        return _refusal(node, f"the image's self-test ended with exit code {ran.code}", _again(node), ran)
    return Finding(CHECK, Severity.OK, node, f"the image's self-test passed {part}, in {ran.seconds:.0f} s")


def _refusal(node: str, observed: str, fix: str, ran: Ran) -> Finding:
    lines = tuple(line for line in ran.lines if line.strip())[-LAST_LINES:]
    return Finding(CHECK, Severity.REFUSAL, node, observed, WANTED, fix, lines)


def _again(node: str) -> str:
    return f"sparkctl image verify --self-test runs it again; docker run --rm --gpus all IMAGE sh on {node}; {SKIP}"


def _mend(node: str, failed: str) -> str:
    if NO_TOOLKIT in failed:
        words = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
        return f"on {node}: {words} (package nvidia-container-toolkit)"
    return SKIP
