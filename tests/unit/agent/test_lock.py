import os

from cluster.agent.lock import read, write


def test_a_full_disk_keeps_nobody_from_the_lock() -> None:
    full = os.open("/dev/full", os.O_RDWR)
    try:
        write(full, '{"command": "sparkctl stop"}')
    finally:
        os.close(full)


def test_a_text_that_was_cut_off_is_said_to_be_unreadable(tmp_path) -> None:
    path = tmp_path / "lock"
    path.write_text('{"command": "sparkc')
    file = os.open(path, os.O_RDWR)
    try:
        assert read(file) == {"command": "unreadable lock text"}
        write(file, "")
        assert read(file) == {}
    finally:
        os.close(file)
