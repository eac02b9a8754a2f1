"""`sparkctl pack` as a process, on two nodes that are this machine: in place, and each behind a real sshd."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.contract.checkpoint import Checkpoint, write_checkpoint
from tests.contract.sshd import Sshd

pytestmark = pytest.mark.contract

ROOT = Path(__file__).resolve().parents[2]
SLIM = ["config.json", "model-00047-of-00048.safetensors", "model-00048-of-00048.safetensors"]
SLIM += ["model.safetensors.index.json"]


@dataclass
class Pair:
    """Two nodes with folders of their own."""

    folder: Path
    settings: dict[str, str]
    words: tuple[str, ...] = ()
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)

    def begin(self, *words: str, verb: str = "pack", **more: str) -> "subprocess.Popen[str]":
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARKCTL_", "_SPARKCTL_"))}
        sets = [each for one in (self.settings | more).items() for each in ("--set", "=".join(one))]
        process = subprocess.Popen(
            [sys.executable, "-m", "cluster", verb, *words, "--json", *self.words, *sets],
            cwd=self.folder,
            env=kept | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(self.folder / "log")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def pack(self, *words: str, **more: str) -> tuple[int, list[dict[str, Any]]]:
        out, err = self.begin("--reserve", "0", *words, **more).communicate(timeout=120)
        assert err == ""
        events = [json.loads(line) for line in out.splitlines()]
        code = self.processes[-1].returncode
        assert (code == 0) == (events[-1]["event"] == "engram")
        return code, events

    def rows(self, rank: int) -> Path:
        return self.folder / f"rows{rank}"

    def packed(self, rank: int) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.rows(rank).glob("*.bin"))}

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


def local(folder: Path, checkpoint: Checkpoint) -> Pair:
    head = {"HEAD_IP": "127.0.0.1", "HEAD_SSH": "local", "HEAD_STATE_DIR": str(folder / "state0")}
    worker = {"WORKER_IP": "127.0.0.1", "WORKER_SSH": "local", "WORKER_STATE_DIR": str(folder / "state1")}
    rows = {"HEAD_PACKED_DIR": str(folder / "rows0"), "WORKER_PACKED_DIR": str(folder / "rows1")}
    tables = {"ENGRAM_DIR": str(checkpoint.folder), "WORKER_ENGRAM_DIR": str(checkpoint.folder)}
    return Pair(folder, {"DEPLOYMENT": f"pack-{os.getpid()}"} | head | worker | rows | tables)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return write_checkpoint(tmp_path_factory.mktemp("model") / "checkpoint")


@pytest.fixture
def pair(tmp_path: Path, checkpoint: Checkpoint) -> Iterator[Pair]:
    made = local(tmp_path, checkpoint)
    yield made
    made.end()


@pytest.fixture(params=["local", "ssh"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path, checkpoint: Checkpoint) -> Iterator[Pair]:
    made = local(tmp_path, checkpoint)
    if request.param == "local":
        yield made
        made.end()
        return
    with Sshd(tmp_path / "one") as one, Sshd(tmp_path / "two") as two:
        text = one.ssh_config.read_text().replace("Host node", "Host spark-a")
        config = tmp_path / "ssh_config"
        config.write_text(text + two.ssh_config.read_text().replace("Host node", "Host spark-b"))
        made.words = ("--ssh-config", str(config))
        made.settings |= {"HEAD_SSH": "spark-a", "WORKER_SSH": "spark-b"}
        made.settings |= {"HEAD_IP": "192.0.2.11", "WORKER_IP": "192.0.2.12"}
        yield made
        made.end()


def files(event: dict[str, Any]) -> list[tuple[str, int, int, str]]:
    return [(one["node"], one["rank"], one["layer"], one["state"]) for one in event["files"]]


def four(state: str) -> list[tuple[str, int, int, str]]:
    return [(node, rank, layer, state) for rank, node in enumerate(("head", "worker")) for layer in (1, 14)]


def test_both_nodes_get_the_rows_of_their_rank(anywhere, checkpoint):
    code, events = anywhere.pack()
    assert (code, files(events[-1])) == (0, four("packed"))
    assert [anywhere.packed(rank) for rank in (0, 1)] == [checkpoint.wanted(rank) for rank in (0, 1)]
    last = {one["node"]: one for one in events if one["event"] == "progress"}
    assert {one["current"] == one["total"] for one in last.values()} == {True}
    code, events = anywhere.pack("--check")
    assert (code, files(events[-1]), events[-1]["checked"]) == (0, four("right"), True)


def test_what_is_right_is_left_alone(pair):
    pair.pack()
    before = {path: path.stat().st_mtime_ns for rank in (0, 1) for path in pair.rows(rank).iterdir()}
    code, events = pair.pack()
    assert (code, files(events[-1])) == (0, four("right"))
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_flipped_byte_is_packed_again_and_a_touched_file_is_only_read(pair):
    pair.pack()
    flipped, touched = (pair.rows(1) / f"engram-l{layer}-r1of2.bin" for layer in (1, 14))
    kept = flipped.read_bytes()
    flipped.write_bytes(kept[:50_000] + bytes([kept[50_000] ^ 1]) + kept[50_001:])
    os.utime(touched)
    before = touched.stat()
    code, events = pair.pack()
    states = {(one["node"], one["layer"]): one["state"] for one in events[-1]["files"]}
    assert (code, states) == (
        0,
        {("head", 1): "right", ("head", 14): "right", ("worker", 1): "packed", ("worker", 14): "right"},
    )
    assert (flipped.read_bytes(), touched.stat().st_mtime_ns) == (kept, before.st_mtime_ns)
    sums = json.loads(touched.with_name(touched.name + ".sums").read_text())
    assert sums["proved"] == {"inode": before.st_ino, "size": before.st_size, "mtime_ns": before.st_mtime_ns}


def test_a_file_of_another_program_is_compared_with_the_tables_once(pair):
    pair.pack()
    foreign = pair.rows(0) / "engram-l1-r0of2.bin"
    kept = foreign.read_bytes()
    foreign.with_name(foreign.name + ".sums").unlink()
    foreign.write_bytes(kept[:50_000] + bytes([kept[50_000] ^ 1]) + kept[50_001:])
    code, events = pair.pack()
    assert (code, [one["layer"] for one in events[-1]["files"] if one["state"] == "packed"]) == (0, [1])
    assert foreign.read_bytes() == kept


def test_one_layer_into_one_folder_for_both(pair, checkpoint):
    code, _ = pair.pack("--layer", "14", "--out", str(pair.folder / "both"))
    both = {path.name: path.read_bytes() for path in (pair.folder / "both").glob("*.bin")}
    assert code == 0
    assert both == {
        name: data for rank in (0, 1) for name, data in checkpoint.wanted(rank).items() if name.startswith("engram-l14")
    }


def test_the_paged_layout_is_chosen_by_a_setting(pair, checkpoint):
    assert pair.pack(ENGRAM_LAYOUT="paged")[0] == 0
    assert pair.packed(1) == checkpoint.wanted(1, layout="paged")


def test_a_folder_with_the_tables_alone_is_linked(pair, checkpoint):
    slim = pair.folder / "slim"
    code, events = pair.pack(ENGRAM_SRC=str(slim))
    assert (code, [one["ok"] for one in events[-1]["folders"]]) == (0, [True, True])
    assert sorted(path.name for path in slim.iterdir()) == SLIM
    assert all((slim / name).samefile(checkpoint.folder / name) for name in SLIM[1:3])
    index = json.loads((slim / SLIM[3]).read_text())["weight_map"]
    assert sorted(index) == [f"layers.{layer}.engram.embed.{part}" for layer in (1, 14) for part in ("scale", "weight")]
    again = pair.pack(ENGRAM_SRC=str(slim), ENGRAM_DIR=str(slim), WORKER_ENGRAM_DIR=str(slim))
    assert (again[0], [one["made"] for one in again[1][-1]["folders"]]) == (0, [[], []])


def test_a_check_names_every_file_that_is_not_right(pair):
    pair.pack()
    (pair.rows(0) / "engram-l1-r0of2.bin").unlink()
    worker = pair.rows(1) / "engram-l14-r1of2.bin"
    data = bytearray(worker.read_bytes())
    data[50_000] ^= 1
    worker.write_bytes(data)
    other = pair.rows(1) / "engram-l1-r1of2.bin"
    os.truncate(other, other.stat().st_size - 1)
    code, events = pair.pack("--check")
    (report,) = (one for one in events if one["event"] == "engram")
    assert (code, [one["fault"] for one in report["files"]]) == (4, ["ABSENT", "", "TRUNCATED", "WRONG_BYTES"])
    assert (events[-1]["what"], len(events[-1]["evidence"]), events[-1]["fix"]) == (
        "3 packed files are not right",
        3,
        "sparkctl pack",
    )


def test_every_node_without_tables_is_named_before_anything_is_written(pair):
    nowhere = str(pair.folder / "nowhere")
    code, events = pair.pack(ENGRAM_DIR=nowhere, WORKER_ENGRAM_DIR=nowhere)
    failed = [(one["where"], one["evidence"]) for one in events if one["event"] == "failed"]
    assert (code, failed) == (4, [(node, [f"{nowhere}: does not exist"]) for node in ("head", "worker")])
    assert not pair.rows(0).exists()


def test_a_folder_without_config_is_refused_by_name(pair, checkpoint):
    """HF-04: two shards and their index alone."""
    slim = pair.folder / "engram-src"
    slim.mkdir()
    for name in SLIM[1:]:
        (slim / name).hardlink_to(checkpoint.folder / name)
    code, events = pair.pack(ENGRAM_DIR=str(slim), WORKER_ENGRAM_DIR=str(slim))
    assert (code, events[-1]["evidence"]) == (4, [f"{slim}: lacks config.json"])


def test_no_folder_to_pack_into_is_a_matter_of_settings(pair):
    code, events = pair.pack(WORKER_PACKED_DIR="")
    assert (code, events[-1]["fix"]) == (2, "set WORKER_PACKED_DIR, or give --out DIR")


# ---- kills


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """One table of 190 MiB: long enough to be caught in the middle of it."""
    return write_checkpoint(tmp_path_factory.mktemp("large") / "checkpoint", 31_000, layers=(14,))


def caught(pair: Pair, log: Path) -> int:
    """The packer of a rank, stopped while some chunks are on the disk and others are not."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if log.exists() and log.read_bytes().count(b"\n") > 1:
            inode = log.stat().st_ino
            for line in Path("/proc/locks").read_text().splitlines():
                words = line.split()
                if words[1] == "FLOCK" and words[5].endswith(f":{inode}"):
                    os.kill(int(words[4]), signal.SIGSTOP)
                    return int(words[4])
        time.sleep(0.002)
    pytest.fail(f"no pack was seen at work: {pair.processes[-1].poll()}")


@pytest.fixture
def at_work(tmp_path: Path, large: Checkpoint) -> Iterator[tuple[Pair, Path, int]]:
    pair = local(tmp_path, large)
    out = pair.rows(1) / "engram-l14-r1of2.bin"
    pair.begin("--reserve", "0", "--jobs", "1")
    pid = caught(pair, out.with_name(out.name + ".part.log"))
    assert not out.exists()
    yield pair, out, pid
    pair.end()


def resumed(pair: Pair, large: Checkpoint) -> None:
    """The second pack goes on, and what it makes is whole."""
    code, events = pair.pack()
    first = next(one for one in events if one["event"] == "progress" and one["node"] == "worker")
    assert code == 0
    assert first["current"] > 0
    assert [pair.packed(rank) for rank in (0, 1)] == [large.wanted(rank) for rank in (0, 1)]


def test_a_packer_that_was_killed_is_told_and_gone_on_with(at_work, large):
    pair, _, pid = at_work
    os.kill(pid, signal.SIGKILL)
    out, _ = pair.processes[-1].communicate(timeout=60)
    last = json.loads(out.splitlines()[-1])
    assert (pair.processes[-1].returncode, last["event"], last["where"]) == (5, "failed", "worker")
    assert last["fix"] == "sparkctl pack again: it goes on with what is on the disk"
    resumed(pair, large)


def test_a_pack_whose_sparkctl_was_killed_is_gone_on_with(at_work, large):
    pair, out, pid = at_work
    pair.processes[-1].kill()
    pair.processes[-1].communicate(timeout=60)
    until = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()  # a stopped packer is ended too
    assert not out.exists()
    resumed(pair, large)


# ---- no room


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    if os.geteuid() != 0:
        pytest.skip("not run: only root can mount a disk that is full")
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"not run: this machine mounts no tmpfs: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True)


def test_too_small_a_disk_is_refused_before_anything_is_written(pair, disk):
    """Both nodes are one machine with one disk: what they need is added up."""
    remount(disk, "size=3m")
    code, events = pair.pack("--out", str(disk))
    assert (code, events[-1]["what"]) == (
        4,
        "3.0 MiB are free, 5.5 MiB are needed (5.5 MiB of rows, 0 B stay free)",
    )
    assert list(disk.iterdir()) == []


def test_a_disk_that_fills_in_the_middle_is_one_clear_error_and_gone_on_with(pair, disk, checkpoint):
    remount(disk, "nr_inodes=9")  # there is room for the rows, and at some point for no further file
    code, events = pair.pack("--out", str(disk))
    last = events[-1]
    assert (code, last["event"]) == (5, "failed")
    assert all("No space left on device" in line for line in last["evidence"])
    remount(disk, "nr_inodes=100")
    code, events = pair.pack("--out", str(disk))
    assert code == 0
    made = {path.name: path.read_bytes() for path in disk.glob("*.bin")}
    assert made == checkpoint.wanted(0) | checkpoint.wanted(1)


# ---- how fast rows come


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment with the overlay: the server's Python, which finds it in the tree."""
    server = ROOT / ".venv-vllm" / "bin" / "python"
    if not server.exists():
        pytest.skip("not run: the row store's binding needs torch; python3 scripts/provision.py vllm")
    make = ["make", "-s", "-C", str(ROOT / "overlay" / "csrc"), f"BUILD={tmp_path / 'build'}"]
    subprocess.run(make, check=True)
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    where = f"PYTHONPATH={ROOT / 'overlay'} SPARK_ROW_STORE={tmp_path / 'build' / 'librow_store.so'}"
    python.write_text(f'#!/bin/sh\n{where} exec {server} "$@"\n')
    python.chmod(0o755)
    return tmp_path / "venv"


def test_rows_are_measured_on_both_nodes(pair, venv):
    pair.pack()
    text, picture = pair.folder / "text", pair.folder / "rows.svg"
    text.write_text("to be or not to be " * 200)
    words = ("engram", "--seconds", "0.1", "--text", str(text), "--plot", str(picture))
    out, err = pair.begin(*words, verb="bench", VENV=str(venv)).communicate(timeout=300)
    last = json.loads(out.splitlines()[-1])
    assert (err, pair.processes[-1].returncode, last["event"]) == ("", 0, "engram-bench")
    seen = [(one["node"], one["layer"], one["stream"], one["batch"], one["batch_rows"]) for one in last["streams"]]
    assert seen == [
        (node, layer, stream, batch, rows)
        for node in ("head", "worker")
        for layer in (1, 14)
        for stream in ("uniform", "zipf", "text")
        for batch, rows in (("decode", 48), ("prefill", 12_288))
    ]
    prefill = {one["stream"]: one for one in last["streams"] if one["batch"] == "prefill"}
    assert prefill["text"]["reads_per_row"] < 0.1  # seven words: nearly every row comes again
    assert all(one["rows_per_s"] > 0 and one["p50_ms"] <= one["p99_ms"] for one in last["streams"])
    assert picture.read_text().count("<rect") == len(seen)


def test_without_packed_files_there_is_nothing_to_measure(pair):
    out, _ = pair.begin("engram", verb="bench", VENV="/nowhere").communicate(timeout=60)
    last = json.loads(out.splitlines()[-1])
    assert (pair.processes[-1].returncode, last["what"]) == (4, "there is no packed file to read")
