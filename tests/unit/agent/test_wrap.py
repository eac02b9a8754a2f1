"""The parts of the node's wrapper that can be asked without running it."""

import ast
import os
import sys
from pathlib import Path

import pytest

from cluster.agent import wrap

SOURCE = Path(wrap.__file__).read_text()


def test_source_is_python_3_9_and_needs_only_the_standard_library() -> None:
    tree = ast.parse(SOURCE, feature_version=(3, 9))
    modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert set(modules) == {
        "contextlib", "errno", "json", "os", "select", "signal", "struct", "subprocess", "sys", "time",
    }  # fmt: skip


def test_given_folders_come_first_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/op")
    assert wrap.search_path("/opt/x:/usr/bin::/bin") == [
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
    assert wrap.find("tool", dirs, None) == (str(tmp_path / "b" / "tool"), dirs)
    assert wrap.find("folder", dirs, None) == (None, dirs)


def test_program_with_a_slash_is_taken_from_the_folder_it_runs_in(tmp_path: Path) -> None:
    (tmp_path / "tool").touch()
    (tmp_path / "tool").chmod(0o755)
    assert wrap.find("./tool", ["/bin"], str(tmp_path))[0] == f"{tmp_path}/./tool"
    assert wrap.find("./other", ["/bin"], str(tmp_path)) == (None, [f"{tmp_path}/./other"])


def test_python_is_the_one_that_runs_the_wrapper() -> None:
    assert [wrap.named(name) for name in ("python3", "python3.9", "/usr/bin/python3")] == [
        sys.executable,
        "python3.9",
        "/usr/bin/python3",
    ]


def test_bytes_that_are_no_text_survive_as_arguments() -> None:
    assert wrap.to_bytes(os.fsdecode(b"\xff\xc3\xa9")) == b"\xff\xc3\xa9"


def test_file_is_replaced_not_rewritten(tmp_path: Path) -> None:
    file = tmp_path / "file"
    wrap.write_file(str(file), b"one", 0o600)
    with file.open("rb") as held:
        wrap.write_file(str(file), b"two", 0o600)
        assert (held.read(), file.read_bytes(), list(tmp_path.iterdir())) == (b"one", b"two", [file])


def test_part_of_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert b"".join(wrap.read_file(str(tmp_path / "file"), 2, 3)) == b"234"
    assert b"".join(wrap.read_file(str(tmp_path / "file"), 20, None)) == b""
    assert list(wrap.read_file(str(tmp_path / "file"), 0, 0)) == []
