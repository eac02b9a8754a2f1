"""Wrong situations around images, each on two nodes with a real engine, and what sparkctl says of it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.contract.dockerd import busybox_image, missing, python_image
from tests.lab.cli import Begun, Cli, Said
from tests.lab.engines import SOCKET, docker, engine_in, lent
from tests.lab.node import until
from tests.lab.nodes import Lab
from tests.lab.people import GUEST, MEMBER, settle
from tests.lab.test_container import ours, stranger
from tests.lab.test_container_start import EngineOf
from tests.lab.test_story import SETTINGS, valid
from tests.wrong_images import note

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.node import Node

pytestmark = pytest.mark.lab

IMAGE = "sparkctl-wrong:1"
BASE = SETTINGS | {"RUNTIME": "container", "IMAGE": IMAGE, "HOST": "loopback", "READY_TIMEOUT": "60s"}
PYTHON = "sparkctl-python:1"


@pytest.fixture(scope="module")
def lab(lab_ground: None) -> Iterator[Lab]:
    if reason := missing():
        pytest.skip(f"not run: {reason}")
    with Lab.up(small_disk_size="320m", lent=lent()) as nodes, contextlib.ExitStack() as stack:
        for node in nodes.nodes:
            settle(node)
            stack.enter_context(engine_in(node))
        load(nodes.a, busybox_image(IMAGE, layers=3, size=2_000_000))
        yield nodes


def load(node: Node, archive: bytes) -> None:
    host = f"unix://{node.path(SOCKET)}"
    subprocess.run(("docker", "-H", host, "load"), input=archive, check=True, capture_output=True)


@pytest.fixture
def sparkctl(lab: Lab) -> Cli:
    return Cli(lab.a, BASE)


@contextlib.contextmanager
def hidden(file: Path) -> Iterator[None]:
    aside = file.with_name("aside")
    file.rename(aside)
    try:
        yield
    finally:
        aside.rename(file)


def images_of(node: Node) -> str:
    return docker(node, "images", "--format", "{{.Repository}}:{{.Tag}}", check=True).stdout.replace("\n", " ").strip()


def saw(situation: str, said: Said, error: str, code: int, left: str = "nothing was changed") -> str:
    """The failure as it has to be; it becomes a line of the table. Returns all that it says."""
    failed = said.failed
    assert (failed["error"], said.code) == (error, code), (failed, said.err)
    checked = "check" in failed["what"]  # then what they saw says more than how many they were
    sentence = failed["evidence"][0] if checked else f"{failed['where']}: {failed['what']}".removeprefix(": ")
    command = " ".join(word for word in said.words if "=" not in word and word != "--set")
    note(situation, command, sentence, code, left, failed["fix"])
    return "\n".join([failed["what"], *failed["evidence"], failed["fix"]])


def test_an_engine_that_does_not_run(lab: Lab, sparkctl: Cli) -> None:
    with hidden(lab.b.path(SOCKET)):
        words = saw("the worker's engine does not run", sparkctl("image", "ship"), "EngineDown", 5)
    assert "on worker: sudo systemctl start docker" in words


def test_who_is_not_in_the_group_is_told_on_which_node(lab: Lab) -> None:
    for where, head, worker in (("worker", MEMBER, GUEST), ("head", GUEST, MEMBER)):
        login = {"HEAD_SSH": f"{head}@spark-a", "WORKER_SSH": f"{worker}@spark-b"}
        said = Cli(lab.laptop, BASE | login)("image", "ls")
        words = saw(f"the user is not in the group docker on the {where}", said, "EngineRefused", 5)
        assert f"on {where}: sudo usermod -aG docker $USER, then log in again" in words


def test_who_is_in_the_group_ships_through_a_helper_container_that_leaves_nothing(lab: Lab) -> None:
    """The store is root's: a container of the image itself reads it."""
    python_image(EngineOf(lab.a), PYTHON)  # type: ignore[arg-type]  # it asks for no more than `run`
    login = {"HEAD_SSH": f"{MEMBER}@spark-a", "WORKER_SSH": f"{MEMBER}@spark-b", "IMAGE": PYTHON}
    sent = Cli(lab.laptop, BASE | login)("image", "ship")
    (report,) = sent.of("image")
    assert (sent.code, report["equal"], report["shipped"][0]["how"]) == (0, True, "helper container"), sent.err
    assert [docker(node, "ps", "-aq").stdout for node in lab.nodes] == ["", ""]


def test_a_name_that_cannot_be_had(lab: Lab, sparkctl: Cli) -> None:
    saw("IMAGE is not set", sparkctl("image", "ls", "--set", "IMAGE="), "SettingsError", 2)
    saw("the name is no image's name", sparkctl("image", "ls", "--set", "IMAGE=Demo:a b"), "SettingsError", 2)
    nobody = sparkctl("start", "--set", "IMAGE=nobody-has-this:1")
    saw("no node has the image, and its name is of no registry", nobody, "Refused", 4)
    silent = sparkctl("image", "pull", "--set", "IMAGE=127.0.0.1:9/nobody/here:1")
    saw("the registry does not answer", silent, "StepFailed", 5)


def test_an_image_of_another_architecture_is_refused_before_a_container_is_made(lab: Lab, sparkctl: Cli) -> None:
    for node in lab.nodes:
        load(node, busybox_image("sparkctl-arm:1", architecture="arm64"))
    refused = sparkctl("start", "--set", "IMAGE=sparkctl-arm:1")
    assert "linux/arm64" in saw("the image is for another architecture", refused, "Refused", 4)
    assert [ours(node) for node in lab.nodes] == [[], []]


def test_images_that_differ_are_told_apart_and_not_sent_where_that_is_forbidden(lab: Lab, sparkctl: Cli) -> None:
    docker(lab.b, "rmi", "-f", IMAGE)
    load(lab.b, busybox_image(IMAGE, layers=2))
    compared = sparkctl("image", "verify")
    (report,) = compared.of("image")
    assert (compared.code, report["equal"]) == (4, False)
    keys = ", ".join(f"{one['node']} {one['layers']} layers" for one in report["nodes"])
    note("the nodes have different images", "image verify", keys, compared.code, "both, as they were")
    saw("the worker's image differs, and --no-ship", sparkctl("start", "--no-ship"), "Refused", 4)
    docker(lab.b, "rmi", "-f", IMAGE, check=True)


def test_a_head_that_may_not_log_in_is_told_what_to_type(lab: Lab) -> None:
    """From the laptop, which reaches both nodes itself; layers go from head to worker, and the head has no key."""
    sparkctl = Cli(lab.laptop, BASE | {"HEAD_SSH": "spark-a"})
    with hidden(lab.a.path("/root/.ssh/id_ed25519")):
        words = saw("the head may not log in to the worker", sparkctl("image", "ship"), "LoginRefused", 3)
        assert "on head: ssh-copy-id -p 22 root@10.77.0.2" in words
    with hidden(lab.a.path("/root/.ssh/known_hosts")):
        words = saw("the head does not know the worker's host key", sparkctl("image", "ship"), "HostKeyUnknown", 3)
        assert "ssh-keyscan -p 22 10.77.0.2" in words
        assert "SHA256:" in words


def test_too_little_room_is_refused_with_both_figures(lab: Lab, sparkctl: Cli) -> None:
    lab.fill_disk(lab.b)
    there = {"IMAGE_SHIP": "rsync", "WORKER_IMAGE_SHIP_DIR": f"{lab.b.small_disk}/blobs"}
    refused = Cli(lab.a, BASE | there)("image", "ship")
    lab.free_disk(lab.b)
    words = saw("too little room on the worker", refused, "Refused", 4)
    assert "needed on" in words
    assert IMAGE not in images_of(lab.b)


@contextlib.contextmanager
def held_up(begun: Begun) -> Iterator[None]:
    """Stopped, so that something can happen in between; the `nsenter` in front of it stops itself along with it."""
    begun.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        begun.signal(signal.SIGCONT)
        begun.running.entry.send_signal(signal.SIGCONT)


def test_two_shipments_at_once(lab: Lab, sparkctl: Cli) -> None:
    with sparkctl.begin("image", "ship") as first:
        first.wait_for(lambda event: event["event"] == "step-started", "the shipment begins")
        with held_up(first):
            second = sparkctl("image", "ship")
        assert first.end().code == 0
    saw("another sparkctl is at work", second, "Locked", 7, "the first one goes on")


def test_a_shipment_that_was_interrupted_goes_on_where_it_was(lab: Lab) -> None:
    """Ctrl-C in the middle: what arrived stays on the worker, over the end of everything that brought it."""
    big = "sparkctl-big:1"
    load(lab.a, busybox_image(big, layers=4, size=60_000_000))
    sparkctl = Cli(lab.a, BASE | {"IMAGE": big})
    with sparkctl.begin("image", "ship") as first:
        first.wait_for(lambda event: event["event"] == "progress" and event["current"] > 2e7, "some of it is there")
        first.signal(signal.SIGINT)
        ended = first.end()
    assert (ended.code, ended.failed["error"]) == (130, "Interrupted")
    assert big not in images_of(lab.b)
    until(lambda: not lab.b.processes("receive-"), "the receiver has ended")
    again = sparkctl("image", "ship")
    assert again.code == 0, again.events[-1]
    (report,) = again.of("image")
    (shipped,) = report["shipped"]
    assert report["equal"]
    assert shipped["sent"] < 170_000_000
    left = lab.b.path(f"/root/.cache/sparkctl/blobs/{'0' * 64}.part")
    left.write_bytes(b"x" * 1000)
    pruned = sparkctl("image", "prune")
    valid(pruned, sparkctl("image", "ls"))
    assert pruned.of("image")[-1]["notes"] == ["head: 0 B freed", "worker: 1000 B freed"]
    assert not left.exists()
    for node in lab.nodes:
        docker(node, "rmi", "-f", big, check=True)


def test_an_image_that_goes_away_before_its_container_is_made(lab: Lab, sparkctl: Cli) -> None:
    with sparkctl.begin("start") as begun:
        begun.wait_for_stage("prepare")
        with held_up(begun):
            docker(lab.b, "rmi", "-f", IMAGE, check=True)
        said = begun.end()
    saw("the image goes away between the check and the start", said, "ImageMissing", 5, "no container")
    assert [ours(node) for node in lab.nodes] == [[], []]


def test_a_container_that_carries_our_label_and_is_not_ours(lab: Lab, sparkctl: Cli) -> None:
    stranger(lab.b)
    label = ("--label", "sparkctl.deployment=demo")
    docker(lab.b, "run", "-d", "--network=none", "--name=web", *label, "stranger:1", "sleep", "900", check=True)
    words = saw("another's container carries our label", sparkctl("start"), "Refused", 4, "it runs on")
    assert "docker rm -f web" in words
    ended = sparkctl("stop")
    assert ended.code == 0
    assert "container web (running)" in str(ended.of("told"))
    assert docker(lab.b, "ps", "-q", "--filter", "name=web").stdout.strip()
    docker(lab.b, "rm", "-f", "web", "stranger", check=True)


def test_a_folder_that_is_not_there_and_a_program_that_is_not_inside(lab: Lab, sparkctl: Cli) -> None:
    nowhere = sparkctl("start", "--set", "MOUNTS=/nowhere:/in")
    saw("a folder to be mounted is not there", nowhere, "StepFailed", 5, "no container")
    until(lambda: [ours(node) for node in lab.nodes] == [[], []], "no container is left")
    saw("the image has no such program", sparkctl("start"), "RankDied", 6, "no container")
    until(lambda: [ours(node) for node in lab.nodes] == [[], []], "no container is left")
