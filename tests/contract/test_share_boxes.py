"""The proof of a share, made inside real containers: through the mounts that ranks will have, on the head too."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.app.session import Session
from cluster.app.share import Sharing
from cluster.app.stages import Stages
from cluster.errors import Refused
from cluster.model.events import Event, Told
from cluster.model.kit import Sync
from cluster.node.local import LocalNode
from cluster.share.base import Folder, Want
from tests.build import pair
from tests.contract import dockerd

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(dockerd.missing() is not None, reason=f"not run: {dockerd.missing()}"),
]

IMAGE = "sparkctl-python:1"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dockerd.Dockerd]:
    with dockerd.Dockerd(tmp_path_factory.mktemp("dockerd")) as running:
        dockerd.python_image(running, IMAGE)
        yield running


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A download cache: a snapshot of links to blobs."""
    repository = tmp_path / "hub" / "models--org--m"
    folder = repository / "snapshots" / "0123abc"
    folder.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for name, data in (("config.json", b"{}"), ("model.safetensors", b"weights" * 1000)):
        (repository / "blobs" / f"of-{name}").write_bytes(data)
        (folder / name).symlink_to(f"../../blobs/of-{name}")
    return folder


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    nodes = tuple(replace(node, state_dir=str(tmp_path / node.name)) for node in pair().nodes)
    opened = Session(replace(pair(), nodes=nodes), lambda node: LocalNode(node.name)).open()
    yield opened
    opened.close()


def sharing(session: Session, daemon: dockerd.Dockerd, folder: Path, image: str = IMAGE) -> tuple[Sharing, list[Event]]:
    head, worker = session.settings.nodes
    events: list[Event] = []
    shared = Folder("the model", "model", str(folder), {worker.name: str(folder)}, "/model")
    want = Want("demo", head, (worker,), (shared,), session.settings.weights, daemon.socket, image)
    return Sharing(session, events.append, Stages(events.append), Sync.INPLACE, want), events


def test_a_snapshot_of_the_hubs_cache_is_read_inside_with_what_its_links_lead_to(session, daemon, snapshot):
    """HF-03."""
    made, _ = sharing(session, daemon, snapshot)
    (shared,) = made.attach().folders
    assert (shared.path, shared.files, shared.size, shared.compared) == ("/model", 2, 7002, 7002)


def test_a_link_that_only_the_host_can_follow_is_told_from_inside(session, daemon, snapshot, tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"weights")
    (snapshot / "more.safetensors").symlink_to(tmp_path / "elsewhere")
    made, _ = sharing(session, daemon, snapshot)
    with pytest.raises(Refused) as refused:
        made.attach()
    assert refused.value.where == "spark-b:/model"
    assert refused.value.evidence == ("more.safetensors: No such file or directory",)


def test_without_the_image_it_is_read_on_the_node_and_that_is_said(session, daemon, snapshot):
    made, events = sharing(session, daemon, snapshot, image="absent:1")
    (shared,) = made.attach().folders
    assert (shared.path, shared.files) == (str(snapshot), 2)
    assert [one.text for one in events if isinstance(one, Told)] == [
        "read on the node itself: image absent:1 is not there yet"
    ]
