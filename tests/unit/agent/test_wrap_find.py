"""Which file a program's name means on a node."""

import sys
from pathlib import Path

import pytest

from cluster.agent.wrap_find import find, named, search_path


def test_given_folders_come_first_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/op")
    assert search_path("/opt/x:/usr/bin::/bin") == [
        "/opt/x",
        "/usr/bin",
        "/bin",
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/sbin",
        "/sbin",
        "/snap/bin",
        "/usr/local/cuda/bin",
        "/home/op/.local/bin",
    ]


def test_program_is_the_first_executable_file_of_that_name(tmp_path: Path) -> None:
    for folder, mode in (("a", 0o644), ("b", 0o755), ("c", 0o755)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").touch()
        (tmp_path / folder / "tool").chmod(mode)
    (tmp_path / "a" / "folder").mkdir()
    dirs = [str(tmp_path / folder) for folder in "abc"]
    assert find("tool", dirs, None) == (str(tmp_path / "b" / "tool"), dirs)
    assert find("folder", dirs, None) == (None, dirs)


def test_program_with_a_slash_is_taken_from_the_folder_it_runs_in(tmp_path: Path) -> None:
    (tmp_path / "tool").touch()
    (tmp_path / "tool").chmod(0o755)
    assert find("./tool", ["/bin"], str(tmp_path))[0] == f"{tmp_path}/./tool"
    assert find("./other", ["/bin"], str(tmp_path)) == (None, [f"{tmp_path}/./other"])


def test_python_is_the_one_that_runs_the_wrapper() -> None:
    assert [named(name) for name in ("python3", "python3.9", "/usr/bin/python3")] == [
        sys.executable,
        "python3.9",
        "/usr/bin/python3",
    ]
