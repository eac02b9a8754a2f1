"""The native runtime on this machine: real shims, real process trees, a stand-in for the server."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.model.deployment import DeploymentId
from cluster.model.units import Seconds
from cluster.node.local import LocalNode
from cluster.probe.rank_acts import parse_failure, parse_launch, parse_stacks
from cluster.probe.ranks import NodeLook, RankLife, parse_look
from cluster.runtime.native import CompletionWish, HeadQuestion
from tests.contract.bench import Bench, lives, names, pid_of, until

pytestmark = pytest.mark.contract

HEAD_TREE = ["VLLM::EngineCore", "VLLM::Worker_TP0"]


def fill(path: Path) -> None:
    """Take the last free bytes of a file system."""
    with path.open("wb") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), b"x" * 512)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_launched_rank_is_seen_with_its_whole_tree(anywhere: Bench) -> None:
    rank = anywhere.start("--port", str(free_port()))
    assert (rank.state, names(rank), rank.exit, rank.stop_asked) == (RankLife.ALIVE, HEAD_TREE, None, False)
    assert rank.processes[0].name == "sparkctl-shim"


def test_launch_tells_who_runs(bench: Bench) -> None:
    launched = parse_launch(bench.launch(bench.rank()).text)
    assert (launched.pid, launched.main) == (bench.seen().pid, bench.seen().main)
    assert launched.available > 0


def test_the_rank_outlives_the_connection_that_launched_it(bench: Bench) -> None:
    before = bench.start()
    bench.node.close()
    bench.node = LocalNode("here")
    assert replace(bench.seen(), processes=()) == replace(before, processes=())


def test_a_second_launch_is_refused(anywhere: Bench) -> None:
    anywhere.start()
    again = anywhere.launch(anywhere.rank())
    assert (again.exit, parse_failure(again.text)) == (3, f"this rank runs already: {anywhere.folder}")


def test_a_boot_is_launched_only_once(bench: Bench) -> None:
    bench.start()
    bench.stop()
    again = bench.launch(bench.rank())
    assert (again.exit, parse_failure(again.text)) == (3, f"this boot ran already: {bench.folder}")


def test_a_missing_program_is_named(bench: Bench) -> None:
    result = bench.launch(bench.rank(argv=("/nowhere/bin/vllm", "serve")))
    sentence = parse_failure(result.text)
    assert (result.exit, sentence) == (
        4,
        "the server did not start: [Errno 2] No such file or directory: '/nowhere/bin/vllm'",
    )
    ended = bench.seen().exit
    assert ended is not None
    assert ended.error == sentence


def test_a_key_that_others_can_read_is_refused(bench: Bench, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sekret\n")
    key.chmod(0o644)
    result = bench.launch(bench.rank(secrets=(("VLLM_API_KEY", str(key)),)))
    assert (result.exit, parse_failure(result.text)) == (
        4,
        f"the server did not start: {key} can be read by others (mode 0644); run: chmod 600 {key}",
    )


def test_the_key_reaches_the_server_and_no_file_or_argv_of_ours(anywhere: Bench, tmp_path: Path) -> None:
    key, port = tmp_path / "key", free_port()
    key.write_text("sekret\n")
    key.chmod(0o600)
    anywhere.start("--port", str(port), secrets=(("VLLM_API_KEY", str(key)),))
    question = HeadQuestion("127.0.0.1", port, "tiny", str(key))
    with_key, without = anywhere.look(question).head, anywhere.look(replace(question, key_file=None)).head
    assert with_key is not None
    assert with_key.completion is not None
    assert without is not None
    assert without.completion is not None
    assert (with_key.completion.answer, without.completion.answer) == (200, 401)
    written = [path for path in anywhere.state.rglob("*") if path.is_file() and b"sekret" in path.read_bytes()]
    assert written == []


def test_every_line_has_its_time_and_a_carriage_return_ends_one(bench: Bench) -> None:
    rank = bench.start("--print", r"one\ntwo 10%\rtwo 20%\r\nthree \xff\n")
    assert [line.text for line in rank.log.lines] == ["one", "two 10%", "two 20%", "three ÿ", "ready"]
    assert [len(line.at) for line in rank.log.lines] == [24] * 5


def test_the_log_starts_a_new_file_and_keeps_two_old_ones(bench: Bench) -> None:
    bench.start("--flood", "4000", log_bytes=10_000, keep_logs=2)
    sizes = {path.name: path.stat().st_size for path in bench.folder.glob("log*")}
    assert sorted(sizes) == ["log", "log.1", "log.2"]
    # A piece of output that comes in one read stays together, so a file may exceed its limit by one such piece.
    assert max(sizes.values()) <= 10_000 + 2 * 65536
    everything = bench.runtime.log(bench.rank(), bench.which)
    lines = [line.split(" ", 1)[1] for line in bench.node.run(everything.command).text.splitlines()]
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line")]
    assert numbers == list(range(numbers[0], 4000))


def is_still(path: Path) -> bool:
    """Whether nothing was added for a while."""
    before = path.stat().st_size
    time.sleep(0.5)
    return path.stat().st_size == before


def test_a_full_disk_costs_lines_but_neither_server_nor_record(bench: Bench, tmp_path: Path) -> None:
    bench.state.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "sparkctl-test", str(bench.state)], check=False)
    if mounted.returncode:
        pytest.skip("not run: mounting a tmpfs needs root and was refused")
    try:
        go = tmp_path / "go"
        bench.launch(bench.rank("--flood", "20000", "--wait-for", str(go)))
        until(lambda: shutil.disk_usage(bench.state).free, lambda free: free < 200_000)
        until(lambda: is_still(bench.folder / "log"), bool)  # the flood is over, and lines were lost
        filler = bench.state / "filler"
        rank = until(bench.seen, lambda rank: rank.log.place is not None)
        assert rank.state is RankLife.ALIVE
        (bench.folder / "log").write_bytes(b"")  # somebody makes room
        go.touch()
        text = until((bench.folder / "log").read_text, lambda text: "lines are missing here" in text)
        assert "could not be written: No space left on device" in text
        until(lambda: shutil.disk_usage(bench.state).free, lambda free: free < 200_000)
        fill(filler)
        os.kill(rank.main or 0, signal.SIGKILL)
        ended = until(bench.seen, lambda rank: rank.exit is not None).exit
        assert ended is not None
        assert (ended.signal, ended.requested) == (9, False)
        bench.stop(0.5)
    finally:
        bench.stop(0.2)
        subprocess.run(["umount", str(bench.state)], check=True)


def test_a_killed_server_is_recorded_and_its_children_are_ended(bench: Bench) -> None:
    rank = bench.start("--port", str(free_port()))
    os.kill(rank.main or 0, signal.SIGKILL)
    after = until(bench.seen, lambda rank: rank.exit is not None and not rank.processes)
    assert after.exit is not None
    assert (after.state, after.exit.code, after.exit.signal) == (RankLife.EXITED, None, 9)
    assert (after.exit.requested, after.exit.left_behind) == (False, 2)
    assert [process.pid for process in rank.processes if lives(process.pid)] == []


def test_exit_code_zero_is_recorded_as_not_asked_for(bench: Bench) -> None:
    bench.start("--exit", "0", "0.3")
    after = until(bench.seen, lambda rank: rank.exit is not None and not rank.processes)
    assert after.exit is not None
    assert (after.exit.code, after.exit.signal, after.exit.requested) == (0, None, False)


def test_children_deaf_to_a_request_are_killed_after_their_parent_has_gone(bench: Bench) -> None:
    bench.start("--deaf", "--exit", "3", "0.1")
    after = until(bench.seen, lambda rank: rank.exit is not None and not rank.processes)
    assert after.exit is not None
    assert (after.exit.code, after.exit.left_behind) == (3, 1)


def test_a_tree_whose_shim_was_killed_is_found_and_stopped(anywhere: Bench) -> None:
    rank = anywhere.start("--port", str(free_port()), "--stray")
    until(lambda: json.loads((anywhere.folder / "processes.json").read_text())["seen"], lambda seen: len(seen) == 4)
    os.kill(rank.pid or 0, signal.SIGKILL)
    orphans = until(anywhere.seen, lambda rank: rank.state is RankLife.ORPHANED)
    assert names(orphans) == ["VLLM::EngineCore", "VLLM::Stray", "VLLM::Worker_TP0"]
    (stopped,) = anywhere.stop().ranks
    assert (stopped.how, stopped.left) == ("graceful", ())
    assert [process.pid for process in rank.processes if lives(process.pid)] == []
    assert anywhere.seen().state is RankLife.EXITED


def test_engine_and_worker_are_found_when_shim_and_server_were_killed_at_once(bench: Bench) -> None:
    rank = bench.start("--port", str(free_port()))
    until(lambda: json.loads((bench.folder / "processes.json").read_text())["seen"], lambda seen: len(seen) == 3)
    os.kill(rank.pid or 0, signal.SIGKILL)
    os.kill(rank.main or 0, signal.SIGKILL)
    orphans = until(bench.seen, lambda rank: rank.state is RankLife.ORPHANED)
    assert names(orphans) == HEAD_TREE
    bench.stop()
    assert [process.pid for process in rank.processes if lives(process.pid)] == []


@pytest.mark.parametrize("tells_right_ticks", [False, True])
def test_a_process_that_took_over_the_pid_is_left_alone(bench: Bench, tells_right_ticks: bool) -> None:
    bench.start()
    bench.stop()
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        record = json.loads((bench.folder / "rank.json").read_text())
        ticks = int(Path(f"/proc/{stranger.pid}/stat").read_text().rpartition(")")[2].split()[19])
        forged = {"pid": stranger.pid, "session": stranger.pid, "ticks": ticks if tells_right_ticks else ticks - 1}
        (bench.folder / "rank.json").write_text(json.dumps(record | forged))
        (bench.folder / "exit.json").unlink()
        assert (bench.seen().state, bench.seen().processes) == (RankLife.VANISHED, ())
        assert bench.stop(0.2).ranks == ()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_stopped_worker_is_killed_when_its_time_is_up(bench: Bench) -> None:
    rank = bench.start("--port", str(free_port()))
    worker = pid_of(rank, "VLLM::Worker_TP0")
    os.kill(worker, signal.SIGSTOP)
    assert [process.state for process in bench.seen().processes if process.pid == worker] == ["T"]
    (stopped,) = bench.stop(1.0).ranks
    assert (stopped.left, lives(worker)) == ((), False)


def test_a_tree_that_ignores_requests_is_killed_after_the_grace(bench: Bench) -> None:
    rank = bench.start("--port", str(free_port()), "--deaf")
    (stopped,) = bench.stop(1.0).ranks
    assert (stopped.how, stopped.left, stopped.seconds < 4) == ("killed", (), True)
    assert stopped.ended == ("VLLM::EngineCore", "VLLM::Worker_TP0", Path(sys.executable).name, "sparkctl-shim")
    after = bench.seen()
    assert after.exit is not None
    assert (after.exit.signal, after.exit.requested, after.stop_asked) == (9, True, True)
    assert [process.pid for process in rank.processes if lives(process.pid)] == []


def test_a_stopped_shim_does_not_save_its_tree(bench: Bench) -> None:
    rank = bench.start()
    os.kill(rank.pid or 0, signal.SIGSTOP)
    (stopped,) = bench.stop(0.5).ranks
    assert (stopped.how, stopped.left) == ("killed", ())
    assert [process.pid for process in rank.processes if lives(process.pid)] == []


def test_a_grandchild_that_left_the_session_is_ended_too(bench: Bench) -> None:
    rank = bench.start("--stray")
    stray = pid_of(rank, "VLLM::Stray")
    assert os.getsid(stray) != os.getsid(rank.main or 0)
    (stopped,) = bench.stop().ranks
    assert (stopped.how, stopped.left, lives(stray)) == ("graceful", (), False)


def test_a_second_stop_finds_nothing_to_do(bench: Bench) -> None:
    bench.start()
    assert [rank.how for rank in bench.stop().ranks] == ["graceful"]
    assert bench.stop().ranks == ()


def test_what_lives_of_an_older_boot_is_seen_beside_the_newest(bench: Bench) -> None:
    bench.start()
    newer = replace(bench, which=DeploymentId("bench", "20261130T000000Z-0002"))
    newer.launch(newer.rank())
    boots = [(rank.boot, rank.state) for rank in bench.look().ranks]
    assert boots == [(bench.which.boot, RankLife.ALIVE), (newer.which.boot, RankLife.ALIVE)]
    newer.node.run(newer.runtime.stop_boot(newer.where, bench.which.boot, (0,)))
    assert [rank.boot for rank in bench.look().ranks] == [newer.which.boot]


def test_an_idle_head_is_asked_for_a_token_and_a_busy_one_for_its_counters(bench: Bench) -> None:
    port = free_port()
    bench.start("--port", str(port), "--busy")
    busy = bench.look(HeadQuestion("127.0.0.1", port, "tiny")).head
    assert busy is not None
    assert busy.counters is not None
    assert busy.later is not None
    assert (busy.health, busy.completion, busy.later.generation - busy.counters.generation) == (200, None, 1.0)


def test_a_watch_tells_lines_once_and_asks_for_a_token(bench: Bench) -> None:
    port, stop, looks = free_port(), threading.Event(), list[NodeLook]()
    rank = bench.start("--port", str(port), "--print", r"first\n")
    head = HeadQuestion("127.0.0.1", port, "tiny")

    def take(line: str) -> None:
        looks.append(parse_look(line))
        seen = looks[-1].head
        if seen is not None and seen.completion is not None and len(looks) > 3:
            stop.set()

    watch = bench.runtime.watch(
        bench.where, bench.which.boot, head=head, completion=CompletionWish(), every=Seconds(0.2)
    )
    bench.node.stream(watch, take, stop)
    lines = [line.text for look in looks for seen in look.ranks for line in seen.log.lines]
    assert lines[:2] == ["first", "ready"]
    assert (lines.count("first"), lines.count("ready")) == (1, 1)
    completion = looks[-1].head.completion if looks[-1].head else None
    assert completion is not None
    assert completion.answer == 200
    stop.clear()
    again = bench.runtime.watch(bench.where, bench.which.boot, places={0: rank.log.place or (0, 0)})
    looks.clear()

    def take_one(line: str) -> None:
        looks.append(parse_look(line))
        stop.set()

    bench.node.stream(again, take_one, stop)
    assert "ready" not in [line.text for line in looks[0].ranks[0].log.lines]


def test_followed_lines_end_with_the_rank(anywhere: Bench) -> None:
    anywhere.start("--print", r"one\ntwo\n", "--exit", "0", "1.5")
    lines = list[str]()
    follow = anywhere.runtime.log(anywhere.rank(), anywhere.which, lines=2, follow=True)
    anywhere.node.stream(follow.command, lines.append)
    assert [line.split(" ", 1)[1] for line in lines if line] == ["two", "ready"]


def test_lines_are_chosen_by_time_and_pattern(bench: Bench) -> None:
    bench.start("--print", r"one\ntwo\n")
    chosen = bench.runtime.log(bench.rank(), bench.which, since="2020-01-01T00:00:00.000Z", grep="^t|ready")
    assert [line.split(" ", 1)[1] for line in bench.node.run(chosen.command).text.splitlines()] == ["two", "ready"]
    later = bench.runtime.log(bench.rank(), bench.which, since="2999")
    assert bench.node.run(later.command).text == ""


def test_stacks_tell_of_every_process_even_one_that_is_stopped(bench: Bench) -> None:
    rank = bench.start()
    worker = pid_of(rank, "VLLM::Worker_TP1")
    os.kill(worker, signal.SIGSTOP)
    (seen,) = parse_stacks(bench.node.run(bench.runtime.stacks(bench.where, Seconds(5.0))).text).ranks
    states = {process.name: process.state for process in seen.processes}
    assert states["VLLM::Worker_TP1"] == "T"
    has_tool = bool(shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy"))
    missing = "" if has_tool else "py-spy is neither beside the rank's program nor in PATH: no Python stacks"
    assert seen.missing == missing
    assert [process.name for process in seen.processes if "State:" not in process.status] == []
