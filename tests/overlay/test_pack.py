"""The packer: byte for byte what it must write, going on after a kill, and refusing what is wrong by its name."""

import fcntl
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.model.bundle import bundle
from cluster.weights.packed import PACKER
from tests.overlay.tables import packed, write_shard

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = bundle((ROOT / "cluster" / "agent" / f"{part}.py").read_bytes() for part in PACKER)
TOTAL, ROWS, CHUNK = 70_000, range(3_001, 64_444), 7_680  # eight chunks and a bit, 16 MiB
LAYOUTS = ("dense", "paged")
MIB = 1 << 20


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    return write_shard(tmp_path_factory.mktemp("shard") / "model.safetensors", 14, TOTAL)


@pytest.fixture(scope="module")
def wanted(shard):
    return {layout: packed(layout, shard, ROWS) for layout in LAYOUTS}


def request(shard, out: Path, layout="dense", check=False, threads=3, **changes) -> str:
    rows = {"layer": 14, "low": ROWS.start, "high": ROWS.stop, "total": TOTAL, "layout": layout, "chunk_rows": CHUNK}
    places = {"source": str(shard.path), "weight_at": shard.weight_at, "scale_at": shard.scale_at, "out": str(out)}
    how = {"check": check, "threads": threads, "samples": 64, "gentle": False, "reserve": 1 << 30}
    return json.dumps({"files": [rows | places | changes], **how})


def run(text: str) -> tuple[int, list[dict[str, Any]]]:
    """As a node runs it: from standard input, isolated."""
    done = subprocess.run(
        [sys.executable, "-I", "-", text], input=PROGRAM, capture_output=True, check=False, timeout=120
    )
    assert done.stderr == b""
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def refusal(text: str) -> str:
    code, lines = run(text)
    assert (code, lines[-1]["kind"]) == (1, "refused")
    return str(lines[-1]["fault"])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_file_is_right_byte_for_byte(layout, shard, wanted, tmp_path):
    code, lines = run(request(shard, tmp_path / "rows.bin", layout))
    assert (code, lines[-1]["kind"], lines[-1]["packed"]) == (0, "done", True)
    assert (tmp_path / "rows.bin").read_bytes() == wanted[layout]
    assert names(tmp_path) == ["rows.bin", "rows.bin.sums"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_rank_may_own_everything(layout, shard, tmp_path):
    run(request(shard, tmp_path / "rows.bin", layout, low=0, high=TOTAL))
    assert (tmp_path / "rows.bin").read_bytes() == packed(layout, shard, range(TOTAL))


def test_what_is_right_is_left_alone(shard, tmp_path):
    run(request(shard, tmp_path / "rows.bin"))
    before = (tmp_path / "rows.bin").stat()
    code, lines = run(request(shard, tmp_path / "rows.bin"))
    assert (code, [line["kind"] for line in lines], lines[-1]["packed"]) == (0, ["done"], False)
    after = (tmp_path / "rows.bin").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_check_reads_everything_and_writes_nothing(shard, tmp_path):
    run(request(shard, tmp_path / "rows.bin"))
    code, lines = run(request(shard, tmp_path / "rows.bin", check=True))
    assert (code, lines[-1]["kind"], lines[-2]["done"]) == (0, "done", lines[-2]["size"] - 4096)


def test_a_file_that_another_program_packed_is_checked_against_the_source(shard, wanted, tmp_path):
    (tmp_path / "rows.bin").write_bytes(wanted["dense"])
    code, lines = run(request(shard, tmp_path / "rows.bin", check=True))
    assert (code, lines[-1]["sums"]) == (0, True)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("has_sums", [True, False])
@pytest.mark.parametrize("at", [4096, 9_000_000, -5])
def test_one_flipped_bit_is_found_by_a_check(layout, has_sums, at, shard, wanted, tmp_path):
    out = tmp_path / "rows.bin"
    if has_sums:
        run(request(shard, out, layout))
    out.write_bytes(flipped(wanted[layout], at % len(wanted[layout])))
    assert refusal(request(shard, out, layout, check=True)) == "WRONG_BYTES"


def test_a_hole_of_the_right_size_never_passes_for_rows(shard, wanted, tmp_path):
    with (tmp_path / "rows.bin").open("wb") as file:
        file.write(wanted["dense"][:4096])
        file.truncate(len(wanted["dense"]))
    assert refusal(request(shard, tmp_path / "rows.bin", check=True)) == "WRONG_BYTES"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"layer": 1}, "WRONG_LAYER"),
        ({"low": 0}, "WRONG_ROWS"),
        ({"total": TOTAL + 1}, "WRONG_TABLE"),
        ({"layout": "paged"}, "WRONG_LAYOUT"),
    ],
)
def test_another_file_is_refused_by_name(change, fault, shard, wanted, tmp_path):
    (tmp_path / "rows.bin").write_bytes(wanted["dense"])
    assert refusal(request(shard, tmp_path / "rows.bin", check=True, **change)) == fault


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda data: data[:-1], "TRUNCATED"),
        (lambda data: data[:100], "TRUNCATED"),
        (lambda data: data + b"\0", "TRAILING_BYTES"),
        (lambda data: b"\0" + data[1:], "NOT_PACKED"),
        (lambda data: flipped(data, 2000), "DAMAGED_HEADER"),
    ],
)
def test_a_damaged_file_is_refused_by_name(damage, fault, shard, wanted, tmp_path):
    (tmp_path / "rows.bin").write_bytes(damage(wanted["dense"]))
    assert refusal(request(shard, tmp_path / "rows.bin", check=True)) == fault


def test_a_file_that_is_not_there_is_refused_by_name(shard, tmp_path):
    assert refusal(request(shard, tmp_path / "rows.bin", check=True)) == "ABSENT"
    assert refusal(request(shard, tmp_path / "rows.bin", source=str(tmp_path / "absent"))) == "ENOENT"


def test_a_damaged_file_is_packed_anew(shard, wanted, tmp_path):
    (tmp_path / "rows.bin").write_bytes(wanted["dense"][:-1])
    run(request(shard, tmp_path / "rows.bin"))
    assert (tmp_path / "rows.bin").read_bytes() == wanted["dense"]


def test_a_source_that_ends_inside_the_table_is_refused(shard, tmp_path):
    short = tmp_path / "short.safetensors"
    short.write_bytes(shard.path.read_bytes()[: shard.scale_at + 1_000])
    assert refusal(request(shard, tmp_path / "rows.bin", source=str(short))) == "SOURCE_TRUNCATED"
    assert not (tmp_path / "rows.bin").exists()


def test_a_file_that_does_not_fit_is_refused_before_any_work(shard, tmp_path):
    # A table of 2^40 rows: no disk here holds its rows.
    assert refusal(request(shard, tmp_path / "rows.bin", high=1 << 40, total=1 << 40)) == "NO_SPACE"


def test_two_packs_of_one_file_do_not_meet(shard, tmp_path):
    with (tmp_path / "rows.bin.part.log").open("wb") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        assert refusal(request(shard, tmp_path / "rows.bin")) == "BUSY"


def killed(text: str, last: int) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("pack_until_killed.py"), text, str(last)],
        input=PROGRAM,
        capture_output=True,
        check=False,
        timeout=120,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def calls(shard, tmp_path_factory):
    """How many calls that change files a whole pack takes."""
    code, lines = killed(request(shard, tmp_path_factory.mktemp("whole") / "rows.bin"), 0)
    assert code == 0
    return lines[-1]["count"]


@pytest.mark.parametrize("point", range(1, 11))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pack_that_was_killed_goes_on(layout, point, calls, shard, wanted, tmp_path):
    """Ten points, from the first call to the last; those near the end lie between its renames."""
    text = request(shard, tmp_path / "rows.bin", layout)
    last = (1, calls // 6, calls // 3, calls // 2, calls * 2 // 3, *range(calls - 4, calls + 1))[point - 1]
    code, lines = killed(text, last)
    assert (code, lines[0]["kind"] if lines else "begin") == (-9, "begin")
    code, lines = run(text)
    assert (code, lines[-1]["kind"]) == (0, "done")
    assert (tmp_path / "rows.bin").read_bytes() == wanted[layout]
    assert run(request(shard, tmp_path / "rows.bin", layout, check=True))[0] == 0


def test_chunks_on_the_disk_are_not_written_again(calls, shard, tmp_path):
    text = request(shard, tmp_path / "rows.bin")
    killed(text, calls * 2 // 3)
    _, lines = run(text)
    assert lines[0]["kind"] == "begin"
    assert 3 * CHUNK * 264 <= lines[0]["done"] <= 7 * CHUNK * 264


def test_ten_kills_in_a_row_do_no_harm(shard, wanted, tmp_path):
    text = request(shard, tmp_path / "rows.bin")
    for last in range(4, 14):
        if killed(text, last)[0] == 0:  # less was left to do than that
            break
    run(text)
    assert (tmp_path / "rows.bin").read_bytes() == wanted["dense"]


def test_chunks_of_another_source_are_not_gone_on_with(calls, shard, tmp_path):
    text = request(shard, tmp_path / "rows.bin")
    killed(text, calls * 2 // 3)
    other = write_shard(tmp_path / "other.safetensors", 14, TOTAL, seed=6)
    _, lines = run(request(shard, tmp_path / "rows.bin", source=str(other.path)))
    assert lines[0]["done"] == 0
    assert (tmp_path / "rows.bin").read_bytes() == packed("dense", other, ROWS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_stays_within_what_is_promised(layout, shard, tmp_path):
    _, lines = killed(request(shard, tmp_path / "rows.bin", layout, threads=8), 0)
    assert lines[-1]["peak"] < 128 * MIB
