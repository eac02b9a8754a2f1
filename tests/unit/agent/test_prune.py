import fcntl
import os
from pathlib import Path

from cluster.agent.prune import prune_boots, prune_programs


def boots(folder: Path, count: int) -> list[Path]:
    """So many boots, oldest first, each with a rank that is over and the receipt of its start."""
    made = [folder / "boots" / f"20261130T1200{number:02d}Z-00ff" for number in range(count)]
    for boot in made:
        (boot / "rank0").mkdir(parents=True)
        (boot / "rank0" / "lock").touch()
        (boot / "rank0" / "log.1").write_text("old words\n")
        (boot / "receipt.json").write_text("{}")
    return made


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "boots").iterdir())


def test_the_newest_ten_boots_stay(tmp_path: Path):
    made = boots(tmp_path, 13)
    prune_boots(str(made[-1]))
    assert names(tmp_path) == [boot.name for boot in made[-10:]]


def test_ten_boots_are_not_too_many(tmp_path: Path):
    made = boots(tmp_path, 10)
    prune_boots(str(made[-1]))
    assert names(tmp_path) == [boot.name for boot in made]


def test_the_current_boot_stays_even_when_the_clock_went_back(tmp_path: Path):
    made = boots(tmp_path, 12)
    prune_boots(str(made[0]))
    assert names(tmp_path) == [boot.name for boot in (made[0], *made[2:])]


def test_a_boot_whose_lock_is_held_stays(tmp_path: Path):
    made = boots(tmp_path, 12)
    with (made[0] / "rank0" / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        prune_boots(str(made[-1]))
    assert names(tmp_path) == [boot.name for boot in (made[0], *made[2:])]


def test_what_is_not_named_like_a_boot_stays_and_a_link_is_not_followed(tmp_path: Path):
    made, precious = boots(tmp_path, 11), tmp_path / "precious"
    (precious / "rank0").mkdir(parents=True)
    (tmp_path / "boots" / "20000101T000000Z-0001").symlink_to(precious)
    (tmp_path / "boots" / "0-notes").mkdir()
    (tmp_path / "boots" / ".hidden").mkdir()
    prune_boots(str(made[-1]))
    assert names(tmp_path) == [".hidden", "0-notes", "20000101T000000Z-0001", *(boot.name for boot in made[1:])]
    assert (precious / "rank0").is_dir()


def test_only_a_folder_of_boots_is_pruned(tmp_path: Path):
    made = boots(tmp_path, 12)
    (tmp_path / "boots").rename(tmp_path / "elsewhere")
    prune_boots(str(tmp_path / "elsewhere" / made[-1].name))
    assert len(list((tmp_path / "elsewhere").iterdir())) == 12


def test_a_removal_that_was_cut_off_is_finished(tmp_path: Path):
    (made,) = boots(tmp_path, 1)
    (tmp_path / "boots" / ".20261101T000000Z-00aa" / "rank0").mkdir(parents=True)
    prune_boots(str(made))
    assert names(tmp_path) == [made.name]


def test_launchers_of_ten_versions_stay(tmp_path: Path):
    programs = [tmp_path / f"rank-{number:012x}.py" for number in range(12)]
    for number, program in enumerate(programs):
        program.write_text("")
        os.utime(program, (number, number))
    (tmp_path / "notes.py").write_text("")
    prune_programs(str(programs[0]))
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["notes.py", programs[0].name, *(program.name for program in programs[3:])]
