import os

from cluster.agent.lock import missing, read, remove, take, write


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


def test_a_lock_leaves_neither_its_file_nor_the_folders_made_for_it(tmp_path) -> None:
    path = tmp_path / "state" / "sparkctl" / "lock"
    folders = missing(str(path.parent))
    file, is_ours = take(str(path))
    assert (is_ours, path.exists()) == (True, True)
    remove(str(path), folders)
    os.close(file)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_in_use_by_then_stays(tmp_path) -> None:
    path = tmp_path / "state" / "sparkctl" / "lock"
    folders = missing(str(path.parent))
    file, _ = take(str(path))
    (tmp_path / "state" / "other").touch()
    remove(str(path), folders)
    os.close(file)
    assert [one.name for one in (tmp_path / "state").iterdir()] == ["other"]


def test_a_second_one_does_not_get_it_and_after_the_first_it_does(tmp_path) -> None:
    path = str(tmp_path / "lock")
    first, _ = take(path)
    second, is_ours = take(path)
    assert not is_ours
    remove(path, [])
    third, is_ours = take(path)
    assert is_ours, "the file that was removed is not the lock any more"
    for file in (first, second, third):
        os.close(file)
