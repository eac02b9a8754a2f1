"""Files on a node are read in part and replaced whole."""

from pathlib import Path

from cluster.agent.wrap_files import read_file, write_file


def test_file_is_replaced_not_rewritten(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_file(str(file), b"one", 0o600)
    with file.open("rb") as held:
        write_file(str(file), b"two", 0o600)
        assert (held.read(), file.read_bytes(), list(tmp_path.iterdir())) == (b"one", b"two", [file])


def test_part_of_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert b"".join(read_file(str(tmp_path / "file"), 2, 3)) == b"234"
    assert b"".join(read_file(str(tmp_path / "file"), 20, None)) == b""
    assert list(read_file(str(tmp_path / "file"), 0, 0)) == []
