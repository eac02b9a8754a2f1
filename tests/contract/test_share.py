"""Every way to share that this machine can do, held to one promise, on real files and through a real sshd.

After an attach the worker reads what the head has; a second plan is empty; a detach leaves what was there before; an
attach that was cut off is gone on with. NFS and ZFS need kernels that have them, and are held to it in tests/vm.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cluster.app.session import Session
from cluster.app.share import Sharing
from cluster.app.stages import Stages
from cluster.errors import Refused, SparkctlError
from cluster.model.events import Event
from cluster.model.kit import Sync
from cluster.model.settings import Settings
from cluster.node.local import LocalNode
from cluster.node.open import open_node
from cluster.share.base import Folder, Want
from tests.build import pair
from tests.contract.sshd import Sshd

pytestmark = pytest.mark.contract
SFTP = "/usr/lib/openssh/sftp-server"  # named, for the test's sshd has no subsystems
NEEDED = (shutil.which("sshfs") or "sshfs", SFTP, "/dev/fuse")
NO_SSHFS = next((one for one in NEEDED if not Path(one).exists()), None)
WHY = f"not run: there is no {NO_SSHFS} (Debian: sshfs, fuse3, openssh-sftp-server)"
over_fuse = pytest.mark.skipif(NO_SSHFS is not None, reason=WHY)


@dataclass
class Bench:
    """A head that is this machine, a worker behind sshd; their folders are two, or one that both see."""

    settings: Settings
    session: Session
    source: Path
    target: Path
    way: tuple[str, ...] = ()
    events: list[Event] = field(default_factory=list)

    def sharing(self, kind: Sync) -> Sharing:
        head, worker = self.settings.nodes
        folder = Folder("the model", "model", str(self.source), {worker.name: str(self.target)})
        want = Want("demo", head, (worker,), (folder,), self.settings.weights, ways={worker.name: self.way})
        return Sharing(self.session, self.events.append, Stages(self.events.append), kind, want)


@pytest.fixture
def bench(tmp_path: Path, server: Sshd) -> Iterator[Bench]:
    base = pair()
    state = [str(tmp_path / "state" / name) for name in ("a", "b")]
    nodes = tuple(replace(node, state_dir=one) for node, one in zip(base.nodes, state, strict=True))
    settings = replace(base, nodes=nodes)

    def open_one(node):
        return (
            LocalNode(node.name)
            if node.control == "local"
            else open_node(node.name, "node", ssh_config=server.ssh_config)
        )

    session = Session(settings, open_one).open().need_all()
    way = ("ssh", "-F", str(server.ssh_config), "-o", "BatchMode=yes", "node")
    yield Bench(settings, session, weights(tmp_path / "head"), tmp_path / "worker", way)
    session.close()


def weights(folder: Path) -> Path:
    """A small model; one file is larger than what is read whole."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model-00001-of-00002.safetensors").write_bytes(os.urandom(5 << 20))
    (folder / "model-00002-of-00002.safetensors").write_bytes(os.urandom(1 << 20))
    (folder / "sub").mkdir()
    (folder / "sub" / "tokenizer.model").write_bytes(os.urandom(100))
    return folder


def files(folder: Path) -> dict[str, bytes]:
    found = (one for one in folder.rglob("*") if one.is_file())
    return {str(one.relative_to(folder)): one.read_bytes() for one in found}


def linked(bench: Bench) -> None:
    bench.target.symlink_to(bench.source)


def over_sshfs(bench: Bench) -> None:
    """The worker's folder is the head's, through a real sshfs and a real sshd; ended with the test by `unmounted`."""
    bench.target.mkdir()
    config = bench.way[bench.way.index("-F") + 1]
    words = (
        "-o",
        f"ro,reconnect,follow_symlinks,sftp_server={SFTP}",
        "-F",
        config,
        f"node:{bench.source}",
        str(bench.target),
    )
    subprocess.run(("sshfs", *words), check=True, timeout=30)


@pytest.fixture
def unmounted(bench: Bench) -> Iterator[None]:
    yield
    subprocess.run(("fusermount3", "-u", "-z", str(bench.target)), check=False, capture_output=True)


@dataclass(frozen=True)
class Case:
    """A backend, what must be there before it, and whether a detach takes the worker's folder away again."""

    kind: Sync
    before: Callable[[Bench], None] = lambda bench: None
    takes_away: bool = True


CASES = [Case(Sync.INPLACE, linked, takes_away=False), Case(Sync.RSYNC)]


@pytest.fixture(params=CASES, ids=lambda case: str(case.kind))
def case(request: pytest.FixtureRequest, bench: Bench) -> Case:
    chosen: Case = request.param
    chosen.before(bench)
    return chosen


def test_after_an_attach_the_worker_reads_what_the_head_has(bench, case):
    report = bench.sharing(case.kind).attach()
    assert files(bench.target) == files(bench.source)
    assert [(one.node, one.files, one.size) for one in report.folders] == [("spark-b", 4, (6 << 20) + 102)]


def test_a_second_attach_takes_no_step(bench, case):
    bench.sharing(case.kind).attach()
    assert bench.sharing(case.kind).attach().steps == 0


def test_a_detach_leaves_what_was_there_before_and_the_head_as_it_is(bench, case):
    before = sorted(str(one) for one in bench.source.parent.rglob("*"))
    bench.sharing(case.kind).attach()
    bench.sharing(case.kind).detach()
    ours = [one for one in bench.source.parent.rglob("*") if "state" not in one.parts]
    assert sorted(str(one) for one in ours) == before
    assert bench.target.exists() is not case.takes_away
    assert bench.sharing(case.kind).detach().steps == 0


def test_a_file_that_is_not_the_heads_is_named(bench, case):
    bench.sharing(case.kind).attach()
    bench.target.unlink() if bench.target.is_symlink() else None
    copy = {name: bytearray(data) for name, data in files(bench.source).items()}
    copy["model-00002-of-00002.safetensors"][77] ^= 1
    for name, data in copy.items():
        path = bench.target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    sharing = bench.sharing(case.kind)
    with pytest.raises(Refused) as refused:
        sharing.prove(sharing.look())
    assert refused.value.evidence == ("model-00002-of-00002.safetensors: its content is not the head's",)


def test_inplace_says_what_a_node_does_not_see(bench):
    with pytest.raises(Refused) as refused:
        bench.sharing(Sync.INPLACE).attach()
    assert refused.value.evidence == (f"spark-b:{bench.target}: is not there",)


def test_inplace_counts_a_missing_file_and_a_short_one(bench):
    linked(bench)
    sharing = bench.sharing(Sync.INPLACE)
    sharing.attach()
    other = weights(bench.target.with_name("other"))
    (other / "config.json").unlink()
    (other / "model-00001-of-00002.safetensors").write_bytes(b"short")
    bench.target.unlink()
    bench.target.symlink_to(other)
    with pytest.raises(SparkctlError) as refused:
        sharing.attach()
    assert refused.value.evidence[:2] == (
        "config.json: is not there",
        f"model-00001-of-00002.safetensors: 5 bytes, the head has {5 << 20}",
    )


@pytest.mark.skipif(
    NO_SSHFS is not None, reason=f"not run: there is no {NO_SSHFS} (Debian: sshfs, fuse3, openssh-sftp-server)"
)
def test_inplace_over_sshfs_is_proven_and_a_dead_mount_is_told(bench, unmounted):
    over_sshfs(bench)
    sharing = bench.sharing(Sync.INPLACE)
    report = sharing.attach()
    assert (report.steps, report.folders[0].how) == (0, "in place, on fuse.sshfs")
    assert files(bench.target) == files(bench.source)
    for pid in sshfs_on(bench.target):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(Refused) as refused:
        sharing.attach()
    assert refused.value.evidence == (f"spark-b:{bench.target}: the mount is dead: its SSHFS or FUSE process ended",)


@pytest.mark.skipif(
    NO_SSHFS is not None, reason=f"not run: there is no {NO_SSHFS} (Debian: sshfs, fuse3, openssh-sftp-server)"
)
def test_a_mount_that_does_not_answer_holds_up_nothing(bench, unmounted):
    """NFS-05, with SSHFS in the place of a hard mount: whoever touches it waits, and we do not."""
    over_sshfs(bench)
    pids = sshfs_on(bench.target)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(Refused) as refused:
            bench.sharing(Sync.INPLACE).attach()
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert refused.value.evidence == (f"spark-b:{bench.target}: the file server does not answer",)


def sshfs_on(target: Path) -> list[int]:
    """The processes that serve a mount of ours."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = one.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"sshfs") and str(target).encode() in words:
            found.append(int(one.parent.name))
    return found
