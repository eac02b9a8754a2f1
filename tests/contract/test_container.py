"""Ranks in real containers: a real dockerd, the stand-in for the server inside, the same shim, looks and stops."""

import os
import signal

import pytest

from cluster.app.agents import source
from cluster.app.ranks import sight
from cluster.errors import Exit
from cluster.model.containers import Box, Mount
from cluster.model.deployment import DeploymentId
from cluster.model.steps import CreateContainer, Run, Write
from cluster.node.engine import Engine
from cluster.node.local import LocalNode
from cluster.plan.assess import assess
from cluster.plan.boot import Alive, Limits, Member, Observation, RankSight
from cluster.probe.ranks import RankLife
from cluster.runtime.base import LaunchSpec, RankSpec
from cluster.runtime.container import ContainerRuntime
from cluster.runtime.native import NativeRuntime
from tests.contract import dockerd
from tests.contract.bench import STANDIN, Bench, lives, names, until
from tests.wrong_images import note

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(dockerd.missing() is not None, reason=f"not run: {dockerd.missing()}"),
]

IMAGE = "sparkctl-python:1"
TREE = ["VLLM::Worker_TP1"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with dockerd.Dockerd(tmp_path_factory.mktemp("dockerd")) as running:
        dockerd.python_image(running, IMAGE)
        yield running


class BoxBench(Bench):
    """The same bench, with a container made before the launch."""

    daemon: dockerd.Dockerd
    limit = ""

    def rank(self, *words, argv=(), secrets=()):
        box = Box(IMAGE, self.daemon.socket, mounts=(Mount(str(STANDIN.parent), "/opt/standin"),))
        standin = ("/usr/bin/python3", "/opt/standin/standin.py", *words)
        return RankSpec(0, "here", argv or standin, (("PYTHONUNBUFFERED", "1"),), secrets, str(self.state), box)

    def launch(self, rank, **spec):
        launch = LaunchSpec(self.which, (rank,))
        runtime = ContainerRuntime(self.runtime, source, b"{}")
        for step in runtime.prepare(launch):
            match step:
                case Write():
                    self.node.write(str(step.path), step.data, step.mode)
                case CreateContainer():
                    engine = Engine(self.node, step.engine)
                    engine.create(step.spec)
                    if self.limit:
                        self.daemon.run("update", "--memory", self.limit, "--memory-swap", self.limit, step.spec.name)
                    engine.close()
                case Run():
                    raise AssertionError(step)
        (step,) = runtime.launch(launch)
        assert isinstance(step, Run)
        return self.node.run(step.command)

    def containers(self) -> list[str]:
        return self.daemon.run("ps", "-a", "--format", "{{.Names}} {{.State}}").stdout.decode().splitlines()


@pytest.fixture
def bench(daemon, tmp_path):
    made = BoxBench(LocalNode("here"), tmp_path, NativeRuntime(source), DeploymentId("demo", "20261130T120000Z-0001"))
    made.daemon = daemon
    yield made
    made.stop(0.5)
    for name in made.containers():
        if name.startswith("sparkctl-"):
            daemon.run("rm", "-f", name.split()[0])
    made.node.close()


def main_of(rank):
    return next(one for one in rank.processes if "standin" in one.command or one.name == "python3")


def said(bench, ended):
    """What `status` says of this rank, while another one lives."""
    members = (Member(0, "here"), Member(1, "there"))
    seen = Observation(1.0, (sight(ended, bench.look(), 1.0), RankSight(1, Alive())))
    judged = assess(members, seen, Limits())
    return f"{judged.state}: {judged.reasons[0]}"


def test_a_rank_in_a_container_is_seen_with_the_processes_inside(bench):
    rank = bench.start()
    assert (rank.state, names(rank)) == (RankLife.ALIVE, TREE)
    assert sum(one.rss for one in rank.processes) > 0


def test_its_log_has_the_time_of_every_line(bench):
    bench.start("--print", "one\\ntwo\\n")
    lines = [line for line in (bench.folder / "log").read_text().splitlines() if line.endswith((" one", " two"))]
    assert [line.split(" ", 1)[1] for line in lines] == ["one", "two"]
    assert all(line[:2] == "20" and line[23] == "Z" for line in lines)


def test_stop_ends_it_gracefully_and_removes_its_container_only(bench):
    bench.daemon.run("create", "--name", "stranger", IMAGE, "/usr/bin/python3")
    rank = bench.start()
    (stopped,) = bench.stop().ranks
    assert (stopped.how, stopped.left) == ("graceful", ())
    assert not any(lives(one.pid) for one in rank.processes)
    assert bench.containers() == ["stranger created"]
    bench.daemon.run("rm", "stranger")


def test_a_server_that_ignores_the_request_is_killed(bench):
    rank = bench.start("--deaf")
    (stopped,) = bench.stop(1.0).ranks
    assert (stopped.how, stopped.left) == ("killed", ())
    assert not any(lives(one.pid) for one in rank.processes)
    assert bench.containers() == []


def test_an_exit_inside_is_on_record_with_its_code(bench):
    bench.start("--exit", "7", "0.5")
    ended = until(bench.seen, lambda rank: rank.state is RankLife.EXITED)
    assert ended.exit is not None
    assert (ended.exit.code, ended.exit.signal, ended.exit.requested) == (7, None, False)


def test_a_killed_server_takes_all_of_its_container_along(bench):
    rank = bench.start()
    inside = [one for one in rank.processes if one.name in TREE]
    os.kill(main_of(rank).pid, signal.SIGKILL)
    ended = until(bench.seen, lambda seen: seen.state is RankLife.EXITED)
    assert ended.exit is not None
    assert ended.exit.code == 137
    assert not any(lives(one.pid) for one in inside)


def test_a_container_that_its_engine_starts_again_is_ended_and_told(bench):
    """IMG-06: somebody gave it a restart policy; each try of a rank that fails would take memory anew."""
    rank = bench.start()
    (name,) = (one.split()[0] for one in bench.containers())
    bench.daemon.run("update", "--restart=always", name)
    os.kill(main_of(rank).pid, signal.SIGKILL)
    ended = until(bench.seen, lambda seen: seen.state is RankLife.EXITED)
    assert ended.exit is not None
    assert "restart policy not of ours" in ended.exit.error
    assert bench.containers() == []
    assert said(bench, ended) == f"degraded: rank 0 (here): it was killed by SIGKILL: {ended.exit.error}"
    note(
        "a rank's container is started again by its engine", "status", said(bench, ended), Exit.DEGRADED, "no container"
    )


def test_a_rank_that_ran_out_of_memory_is_told_apart_from_one_that_was_killed(bench):
    if not bench.daemon.limits_memory():
        pytest.skip("not run: this engine cannot limit memory (no memory controller)")
    eat = "print(' ready', flush=True); import time; time.sleep(2); x = [bytearray(1 << 20) for _ in range(400)]"
    rank = bench.rank(argv=("/usr/bin/python3", "-c", eat))
    bench.limit = "60m"
    bench.launch(rank)
    ended = until(bench.seen, lambda seen: seen.state is RankLife.EXITED)
    assert ended.exit is not None
    assert (ended.exit.code, ended.exit.error) == (137, "the kernel ended it, for memory ran out")
    note("a rank's container runs out of memory", "status", said(bench, ended), Exit.DEGRADED, "the other rank")


def test_a_killed_shim_leaves_a_container_that_stop_still_ends(bench):
    rank = bench.start()
    os.kill(rank.pid, signal.SIGKILL)
    orphan = until(bench.seen, lambda seen: seen.state is RankLife.ORPHANED)
    assert names(orphan) == TREE
    (stopped,) = bench.stop(2.0).ranks
    assert stopped.left == ()
    assert bench.containers() == []


def test_a_container_that_cannot_start_says_why(bench):
    rank = bench.rank(argv=("/nowhere/bin/vllm", "serve"))
    bench.launch(rank)
    ended = until(bench.seen, lambda seen: seen.state is RankLife.EXITED)
    assert ended.exit is not None
    assert ended.exit.code not in (0, None)
    assert "/nowhere/bin/vllm" in (bench.folder / "log").read_text()


def test_a_secret_reaches_the_server_and_no_inspection(bench, tmp_path):
    key = tmp_path / "key"
    key.write_text("s3cret-value")
    key.chmod(0o600)
    argv = ("/usr/bin/python3", "-c", "import os;print(' ready', os.environ['VLLM_API_KEY'][::-1], flush=True)")
    bench.launch(bench.rank(argv=argv, secrets=(("VLLM_API_KEY", str(key)),)))
    until((bench.folder / "log").read_text, lambda text: "eulav-terc3s" in text)
    shown = bench.daemon.run("inspect", f"sparkctl-demo-rank0-{bench.which.boot}").stdout.decode()
    assert "s3cret-value" not in shown
