from pathlib import Path

import pytest

from cluster.agent.own import Process, boot_and_rank, descendants, folders_of, read_json, stamp


def table(notation: str) -> dict[int, Process]:
    """`2<1 3<2`: process 2 is a child of 1, 3 of 2."""
    pairs = [map(int, word.split("<")) for word in notation.split()]
    return {pid: Process(pid, parent, 1, "S", 1, 100, 0.0, 4096, "p") for pid, parent in pairs}


@pytest.mark.parametrize(
    ("processes", "roots", "below"),
    [
        ("2<1 3<2 4<3 9<1", {2}, {3, 4}),
        ("2<1 3<2 4<3 9<1", {2, 9}, {3, 4}),
        ("2<1", {2}, set()),
        ("4<3 3<2 2<1", {2}, {3, 4}),
    ],
)
def test_descent_goes_all_the_way_down(processes, roots, below):
    assert descendants(roots, table(processes)) == below


def test_times_sort_as_text():
    assert [stamp(at) for at in (0.0, 1796059800.1234)] == ["1970-01-01T00:00:00.000Z", "2026-11-30T17:30:00.123Z"]


def test_folders_of_a_deployment_come_oldest_boot_first(tmp_path: Path):
    for name in ("b2/rank0", "b1/rank1", "b1/rank0", "b1/notes"):
        (tmp_path / "deployments" / "d[1]" / "boots" / name).mkdir(parents=True)
    request = {"root": str(tmp_path), "deployment": "d[1]"}
    every = [boot_and_rank(folder) for folder in folders_of(request)]
    assert every == [("b1", 0), ("b1", 1), ("b2", 0)]
    assert [boot_and_rank(folder) for folder in folders_of(request | {"ranks": [1]})] == [("b1", 1)]


@pytest.mark.parametrize("text", ["", "{", "[1]", "   "])
def test_a_damaged_record_reads_as_none(tmp_path: Path, text):
    (tmp_path / "rank.json").write_text(text)
    assert read_json(str(tmp_path / "rank.json")) == {}
