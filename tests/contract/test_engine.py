"""A real dockerd, asked directly and over a real sshd; every error is typed."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.errors import EngineDown, EngineRefused, ImageMissing, NameTaken
from cluster.model.containers import ContainerSpec, Mount, Seccomp
from cluster.node.engine import WHY, Engine
from cluster.node.local import LocalNode
from cluster.node.open import open_node
from cluster.plan.shown import create_words
from tests.contract import dockerd, engine_kinds, sshd
from tests.contract.engine_kinds import Kind
from tests.fakes.node import FakeNode
from tests.wrong_images import note_error

pytestmark = pytest.mark.contract

IMAGE = "sparkctl-test:1"
PROFILE = Path(__file__).resolve().parents[2] / "cluster" / "seccomp" / "io_uring.json"
MADE = {"Hostname", "AttachStdout", "AttachStderr", "ConsoleSize"}
OURS = (("sparkctl.deployment", "demo"), ("sparkctl.rank", "0"))


@dataclass(frozen=True)
class Where:
    """Which engine, and from where it is asked."""

    kind: Kind
    over_ssh: bool = False

    def __str__(self) -> str:
        return f"{self.kind}{' over ssh' if self.over_ssh else ''}"


# Over ssh the bytes are the same: there one kind tells of all.
WHERE = [*map(Where, Kind), Where(engine_kinds.chosen(), over_ssh=True)]


@pytest.fixture(scope="module", params=WHERE, ids=str)
def where(request):
    return request.param


@pytest.fixture(scope="module")
def daemon(where, tmp_path_factory):
    if reason := engine_kinds.missing(where.kind):
        pytest.skip(f"not run: {reason}")
    with dockerd.Dockerd(tmp_path_factory.mktemp("dockerd"), where.kind) as running:
        running.run("load", data=dockerd.busybox_image(IMAGE, layers=3))
        yield running


@pytest.fixture
def engine(where, daemon, tmp_path):
    if not where.over_ssh:
        here = LocalNode("here")
        asked = Engine(here, daemon.socket)
        yield asked
        asked.close()
        here.close()
        return
    with sshd.Sshd(tmp_path) as server:
        node = open_node("there", "node", ssh_config=server.ssh_config)
        asked = Engine(node, daemon.socket)
        yield asked
        asked.close()
        node.close()


@pytest.fixture(autouse=True)
def no_leftovers(daemon):
    yield
    for identity in daemon.run("ps", "-aq").stdout.split():
        daemon.run("rm", "-f", identity.decode())


def spec(name: str, *argv: str, **more) -> ContainerSpec:
    return ContainerSpec(name=name, image=IMAGE, argv=argv, labels=OURS, **more)


def run(engine: Engine, wanted: ContainerSpec) -> tuple[int, str]:
    identity = engine.create(wanted)
    engine.start(identity)
    return engine.wait(identity, 30), engine.output(identity)


def test_the_api_version_is_the_engines_own(engine, daemon):
    seen = engine.seen()
    version = daemon.run("version", "--format", "{{.Server.Version}} {{.Server.APIVersion}} {{.Server.Arch}}")
    assert [seen.version, seen.api, seen.architecture] == version.stdout.decode().split()
    stores = {Kind.CLASSIC: ("overlay2", False), Kind.CONTAINERD: ("overlayfs", True)}
    assert (seen.store, seen.containerd_store) == stores.get(daemon.kind, ("overlay2", False))
    assert engine.client.api_version == seen.api


def test_an_image_is_known_by_its_layers(engine):
    seen = engine.image(IMAGE)
    assert (len(seen.layers), seen.tags, seen.system, dict(seen.labels)) == (3, (IMAGE,), "linux", {"made": "here"})


def test_a_missing_image_is_none_and_nothing_else_is(engine):
    assert engine.image("nobody/has:this") is None


def test_a_container_runs_with_what_it_was_given(engine, tmp_path):
    (tmp_path / "key").write_text("from a file")
    wanted = spec(
        "sparkctl-given",
        "sh",
        "-c",
        "cat /in/key; echo; echo $A; cat /proc/self/oom_score_adj; ulimit -s",
        environment=(("A", "b c"),),
        mounts=(Mount(str(tmp_path), "/in"),),
        stack=4 * 2**20,
    )
    assert run(engine, wanted) == (0, "from a file\nb c\n1000\n4096\n")


def test_the_command_line_of_a_plan_makes_the_container_that_a_start_makes(engine, daemon, tmp_path):
    allowed = Seccomp(
        str(tmp_path / "seccomp.json"), json.dumps(json.loads(PROFILE.read_text()), separators=(",", ":"))
    )
    wanted = spec(
        "sparkctl-same",
        "sh",
        "-c",
        "echo $A",
        environment=(("A", "b c"), ("B", "")),
        mounts=(Mount(str(tmp_path), "/in"), Mount("kept", "/kept", read_only=False)),
        devices=("/dev/null",),
        capabilities=("SYS_PTRACE", "IPC_LOCK"),
        security=("no-new-privileges",),
        seccomp=allowed,
        memlock=-1,
        stack=4 * 2**20,
    )
    made = []
    Path(allowed.path).write_text(allowed.profile)
    for create in (lambda: engine.create(wanted), lambda: daemon.run(*create_words(wanted, daemon.socket)[3:])):
        create()
        (seen,) = json.loads(daemon.run("inspect", wanted.name).stdout)
        daemon.run("rm", wanted.name)
        seen["HostConfig"]["CapAdd"] = {one.removeprefix("CAP_") for one in seen["HostConfig"]["CapAdd"]}
        seen["Config"]["Env"] = set(seen["Config"]["Env"])  # the command line of 20.10 passes them through a map
        made.append({"host": meant(seen["HostConfig"]), "config": meant(seen["Config"])})
    daemon.run("volume", "rm", "kept")
    assert made[0] == made[1]


def meant(config):
    """What was asked for: empty in one way or another is the same, and names that the engine made up are not asked."""
    return {name: value for name, value in config.items() if value not in (None, "", [], {}, [""]) and name not in MADE}


def test_a_read_only_mount_cannot_be_written(engine, tmp_path):
    code, said = run(engine, spec("sparkctl-ro", "sh", "-c", "echo x > /in/x", mounts=(Mount(str(tmp_path), "/in"),)))
    assert code != 0
    assert "Read-only" in said


def test_ours_are_found_by_label_and_strangers_are_not(engine, daemon):
    daemon.run("create", "--name", "stranger", IMAGE, "true")
    identity = engine.create(spec("sparkctl-ours", "false"))
    engine.start(identity)
    engine.wait(identity, 30)
    (found,) = engine.containers({"sparkctl.deployment": "demo"})
    assert (found.name, found.state, found.exit_code, found.restarts) == ("sparkctl-ours", "exited", 1, 0)
    engine.remove(identity)
    engine.remove(identity)
    assert engine.containers({"sparkctl.deployment": "demo"}) == ()
    assert b"stranger" in daemon.run("ps", "-a", "--format", "{{.Names}}").stdout


def test_a_taken_name_is_its_own_error(engine):
    engine.create(spec("sparkctl-twice", "true"))
    with pytest.raises(NameTaken) as caught:
        engine.create(spec("sparkctl-twice", "true"))
    note_error("the container's name is taken", "start", caught.value, "the other one, untouched")


def test_a_container_of_a_missing_image_is_its_own_error(engine):
    with pytest.raises(ImageMissing):
        engine.create(ContainerSpec(name="x", image="nobody/has:this", argv=("true",)))


def test_an_engine_that_does_not_run_is_told_from_one_that_is_not_ours(tmp_path):
    node = LocalNode("here")
    with pytest.raises(EngineDown) as caught:
        Engine(node, str(tmp_path / "none.sock")).seen()
    assert "systemctl start docker" in caught.value.fix
    node.close()


def test_a_user_outside_the_group_is_told_the_errno_that_says_so(daemon):
    argv = ("/usr/bin/python3", "-IS", "-c", WHY, daemon.socket)
    if not Path(argv[0]).exists():
        pytest.skip("not run: no /usr/bin/python3")
    done = subprocess.run(argv, user=65534, group=65534, extra_groups=(), capture_output=True, text=True)
    assert done.stdout == "13\n"


def test_no_permission_names_the_group():
    node = FakeNode("there", {("python3",): "13\n"})
    with pytest.raises(EngineRefused) as caught:
        Engine(node, "/nowhere/docker.sock").seen()
    assert "usermod -aG docker" in caught.value.fix
