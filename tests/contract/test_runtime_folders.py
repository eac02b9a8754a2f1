"""What ranks leave on a node stays bounded and apart: old boots, floods of lines, two ranks in one folder."""

import os
import shutil
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.model.deployment import DeploymentId
from cluster.model.units import Seconds
from cluster.probe.rank_acts import parse_stacks
from cluster.probe.ranks import RankLife
from tests.contract.bench import STANDIN, Bench, lives, names, until
from tests.contract.sshd import free_port

pytestmark = pytest.mark.contract

# Printed by py-spy 0.4.3 for a process that the kernel does not let it look into.
PY_SPY_REFUSED = "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'"


def boots(bench: Bench) -> list[str]:
    return sorted(path.name for path in bench.folder.parent.parent.iterdir())


def dead_boots(bench: Bench, count: int) -> list[str]:
    """Copies of the boot of `bench`, which is over, one for each hour of the day before."""
    made = [f"20261129T{hour:02d}0000Z-00aa" for hour in range(count)]
    for name in made:
        shutil.copytree(bench.folder.parent, bench.folder.parent.parent / name)
        (bench.folder.parent.parent / name / "receipt.json").write_text("{}")
    return made


def test_a_launch_removes_old_boots_but_none_that_lives(bench: Bench) -> None:
    bench.start()
    bench.stop()
    oldest = replace(bench, which=DeploymentId("bench", "20261128T000000Z-00aa"))
    orphan = oldest.start()
    os.kill(orphan.pid or 0, signal.SIGKILL)
    made = dead_boots(bench, 12)
    newest = replace(bench, which=DeploymentId("bench", "20261130T000000Z-0002"))
    newest.launch(newest.rank())
    assert boots(bench) == [oldest.which.boot, *made[-8:], bench.which.boot, newest.which.boot]
    living = {rank.boot: rank.state for rank in bench.look().ranks}
    assert living == {oldest.which.boot: RankLife.ORPHANED, newest.which.boot: RankLife.ALIVE}


def test_two_launches_at_once_prune_one_folder(bench: Bench) -> None:
    bench.start()
    bench.stop()
    made = dead_boots(bench, 20)
    which = DeploymentId("bench", "20261130T000000Z-0002")
    ranks = [replace(bench, which=which, number=number, ranks=(number,)) for number in (0, 1)]
    steps = [each.prepare(each.rank()) for each in ranks]
    with ThreadPoolExecutor() as pool:
        launched = list(pool.map(lambda step: bench.node.run(step.command), steps))
    assert [(result.exit, result.err_text) for result in launched] == [(0, ""), (0, "")]
    assert boots(bench) == [*made[-8:], bench.which.boot, which.boot]
    assert [each.seen().state for each in ranks] == [RankLife.ALIVE, RankLife.ALIVE]


def test_two_ranks_that_share_a_folder_are_seen_and_stopped_apart(bench: Bench) -> None:
    head, worker = (replace(bench, number=number, ranks=(number,)) for number in (0, 1))
    head.start("--port", str(free_port()))
    before = worker.start()
    assert (names(head.seen()), names(before)) == (["VLLM::EngineCore", "VLLM::Worker_TP0"], ["VLLM::Worker_TP1"])
    assert [rank.rank for rank in bench.look().ranks] == [0, 1]
    (stopped,) = head.stop().ranks
    assert (stopped.rank, stopped.how) == (0, "graceful")
    assert (head.seen().state, worker.seen().state) == (RankLife.EXITED, RankLife.ALIVE)
    assert [process.pid for process in before.processes if not lives(process.pid)] == []
    (stacks,) = parse_stacks(bench.node.run(bench.runtime.stacks(worker.where, Seconds(5.0))).text).ranks
    assert stacks.rank == 1
    (stopped,) = worker.stop().ranks
    assert (stopped.rank, stopped.how) == (1, "graceful")


def test_a_flood_of_lines_stays_within_three_files_and_a_follower_misses_none(bench: Bench, tmp_path: Path) -> None:
    go, limit, count = tmp_path / "go", 400_000, 12_000  # three times the limit, in lines of about 115 bytes
    bench.launch(bench.rank("--wait-for", str(go), "--flood", str(count // 2)), log_bytes=limit, keep_logs=2)
    lines, stop = list[str](), threading.Event()

    def take(line: str) -> None:
        lines.append(line.partition(" ")[2])
        if lines[-1] == "ready":
            stop.set()

    follow = bench.runtime.log(bench.rank(), bench.which, follow=True)
    follower = threading.Thread(target=lambda: bench.node.stream(follow.command, take, stop))
    follower.start()
    until(lambda: len(lines), lambda seen: seen > count // 2 - 10)
    go.touch()
    follower.join(30)
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line ")]
    assert numbers == [*range(count // 2), *range(count // 2)]
    sizes = {path.name: path.stat().st_size for path in bench.folder.glob("log*")}
    assert sorted(sizes) == ["log", "log.1", "log.2"]
    assert sum(sizes.values()) <= 3 * (limit + 2 * 65536)  # what comes in one read stays together


def test_lines_since_a_time_come_out_of_older_files_too(bench: Bench) -> None:
    bench.start("--flood", "3000", log_bytes=150_000, keep_logs=2)
    older = (bench.folder / "log.1").read_text().splitlines()
    moment = older[len(older) // 2].split(" ", 1)[0]
    since = bench.node.run(bench.runtime.log(bench.rank(), bench.which, since=moment).command).text.splitlines()
    everything = [line for name in ("log.2", "log.1", "log") for line in (bench.folder / name).read_text().splitlines()]
    assert since == [line for line in everything if line >= moment]
    assert len(since) > len((bench.folder / "log").read_text().splitlines())


def test_stacks_say_what_refused_py_spy_and_still_tell_what_the_kernel_tells(bench: Bench, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    refuse = f"cat >&2 <<'end'\n{PY_SPY_REFUSED}\nend\nexit 1"
    for name, body in {"server": f"exec {sys.executable} {STANDIN}", "py-spy": refuse}.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    bench.start(argv=(str(tools / "server"),))
    (seen,) = parse_stacks(bench.node.run(bench.runtime.stacks(bench.where, Seconds(5.0))).text).ranks
    assert seen.missing.startswith("py-spy was refused, so there are no Python stacks: ")
    assert {process.python for process in seen.processes} == {"py-spy was refused"}
    assert [process.name for process in seen.processes if "State:" not in process.status] == []
