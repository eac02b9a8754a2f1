"""The image's own self-test in a real container: passed, failed, without end, without a GPU, and nothing left of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cluster.app import self_test as app
from cluster.app.boxes import look_at_boxes
from cluster.app.check import try_image
from cluster.app.session import Session
from cluster.errors import Refused
from cluster.model.checks import Finding, Severity
from cluster.model.kit import Container, Image
from cluster.model.nodes import NodeSettings
from cluster.model.settings import Launch, RuntimeKind
from cluster.node.open import open_node
from cluster.plan.boxes import NVIDIA, BoxSeen
from cluster.plan.self_test import judge_self_test, self_test_container
from tests.build import pair
from tests.contract import dockerd

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(dockerd.missing() is not None, reason=f"not run: {dockerd.missing()}"),
]

SETTINGS = pair(
    nodes=(NodeSettings(name="spark-a", control="local", address="127.0.0.1"),),
    launch=Launch(runtime=RuntimeKind.CONTAINER),
)
LABELS = {
    "says": "env",
    "fails": "cat /nowhere",
    "hangs": "sleep 600",
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dockerd.Dockerd]:
    with dockerd.Dockerd(tmp_path_factory.mktemp("dockerd")) as running:
        running.run("load", data=dockerd.busybox_image("plain:1"))
        for name, words in LABELS.items():
            text = f'FROM plain:1\nLABEL sparkctl.self-test="{words}"\n'
            running.run("build", "-t", f"{name}:1", "-", data=text.encode())
        yield running


@dataclass
class Desk:
    daemon: dockerd.Dockerd

    def session(self, image: str) -> Session:
        settings = replace(SETTINGS, image=Image(name=image), container=Container(engine=self.daemon.socket))
        return Session(settings, lambda node: open_node(node.name, node.control))

    def find(self, image: str) -> Finding:
        with self.session(image) as session:
            (found,) = app.self_test(session.need_all(), lambda event: None, without_gpu=True)
        return found

    @property
    def containers(self) -> list[str]:
        return self.daemon.run("ps", "-a", "--format", "{{.Names}}").stdout.decode().split()


@pytest.fixture
def desk(daemon: dockerd.Dockerd) -> Iterator[Desk]:
    if any(Path(one).exists() for one in NVIDIA):
        pytest.skip("not run: there is a GPU here, and these say what happens without one")
    yield Desk(daemon)
    for name in Desk(daemon).containers:
        daemon.run("rm", "-f", name)


def test_a_self_test_that_passes_is_told_and_leaves_nothing(desk):
    found = desk.find("says:1")
    assert (found.severity, found.id) == (Severity.OK, "IMAGE.SELF_TEST")
    assert found.observed.startswith("the image's self-test passed but for the GPU, of which there is none on spark-a")
    assert desk.containers == []


def test_it_is_told_whether_there_is_a_gpu_and_has_no_network(desk):
    with desk.session("says:1") as session:
        seen = look_at_boxes(session.need_all())["spark-a"]
        assert seen.image is not None
        spec = self_test_container("demo", seen.image, seen, "1")
        ran = app.run(session.settings, session.head, spec)
    assert (ran.code, "SPARKCTL_SELF_TEST=cpu" in ran.lines) == (0, True)
    assert (spec.host_network, spec.mounts, spec.gpus) == (False, (), False)


def test_one_that_fails_is_a_refusal_with_its_last_lines(desk):
    found = desk.find("fails:1")
    assert (found.severity, found.observed) == (Severity.REFUSAL, "the image's self-test ended with exit code 1")
    assert found.details == ("cat: can't open '/nowhere': No such file or directory",)
    assert desk.containers == []


def test_one_without_end_is_a_refusal_and_is_removed(desk, monkeypatch):
    monkeypatch.setattr(app, "LIMIT", 0.5)
    found = desk.find("hangs:1")
    assert (found.severity, found.observed) == (Severity.REFUSAL, "the image's self-test did not end within 300 s")
    assert desk.containers == []


def test_what_a_killed_sparkctl_left_is_removed_and_strangers_are_not(desk):
    desk.daemon.run("create", "--name", "left", "--label", "sparkctl.check=demo", "plain:1", "true")
    desk.daemon.run("create", "--name", "other", "--label", "sparkctl.check=another", "plain:1", "true")
    desk.find("says:1")
    assert desk.containers == ["other"]


def with_gpu(seen: BoxSeen) -> BoxSeen:
    return replace(seen, engine=replace(seen.engine, runtimes=("nvidia", "runc")))


def test_an_engine_without_nvidias_toolkit_is_told_what_to_install(desk):
    """A node with a GPU, as its settings of the engine say, and an engine that cannot give it to a container."""
    with desk.session("says:1") as session:
        seen = with_gpu(look_at_boxes(session.need_all())["spark-a"])
        assert seen.image is not None
        ran = app.run(session.settings, session.head, self_test_container("demo", seen.image, seen, "1"))
    found = judge_self_test("spark-a", seen, ran)
    assert (found.severity, found.observed) == (
        Severity.REFUSAL,
        'the image\'s self-test could not be run: could not select device driver "" with capabilities: [[gpu]]',
    )
    assert "nvidia-ctk runtime configure" in found.fix
    assert desk.containers == []


def test_before_a_start_no_gpu_and_no_self_test_are_named_and_do_not_stop_it(desk):
    told: list[object] = []
    for image in ("fails:1", "plain:1"):
        with desk.session(image) as session:
            try_image(session.need_all(), told.append, frozenset())
    assert [(one.severity, one.observed) for one in told if isinstance(one, Finding)] == [
        (Severity.NOTE, "not checked: no GPU on spark-a"),
        (Severity.NOT_CHECKED, "not checked: the image has no self-test (label sparkctl.self-test)"),
    ]


def test_before_a_start_a_failure_refuses_unless_it_is_forced(desk, monkeypatch):
    """The GPU's part through the same container; the engine here has none to give, which is a failure too."""
    look = look_at_boxes
    monkeypatch.setattr(app, "look_at_boxes", lambda session: {n: with_gpu(one) for n, one in look(session).items()})
    with desk.session("says:1") as session:
        with pytest.raises(Refused) as caught:
            try_image(session.need_all(), lambda event: None, frozenset())
        told: list[object] = []
        try_image(session, told.append, frozenset({"IMAGE.SELF_TEST"}))
    assert "could not select device driver" in caught.value.evidence[0]
    assert [one.severity for one in told if isinstance(one, Finding)] == [Severity.WARNING]
