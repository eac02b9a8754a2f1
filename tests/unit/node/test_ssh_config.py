"""Include lines, and the files that hold known keys."""

from pathlib import Path

import pytest

from cluster.errors import SettingsError
from cluster.node.ssh_config import connect_timeout, known_hosts_files, ssh_config_text


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh" / "more").mkdir(parents=True)
    return tmp_path


def test_included_files_stand_in_for_the_line_and_the_block_goes_on_after_them(home: Path) -> None:
    (home / ".ssh" / "more" / "a").write_text("Host a\n  Port 1")
    (home / ".ssh" / "more" / "b").write_text("Host b\n  Port 2")
    main = home / "config"
    main.write_text("Compression no\nInclude more/*\nPort 3\nHost c\n  include ~/.ssh/more/a none\n  Port 4\n")
    assert ssh_config_text(main).splitlines() == [
        "Compression no",
        "Host *",
        "Host a",
        "  Port 1",
        "Host *",
        "Host *",
        "Host b",
        "  Port 2",
        "Host *",
        "Port 3",
        "Host c",
        "Host c",
        "Host a",
        "  Port 1",
        "Host c",
        "  Port 4",
    ]


def test_quoted_name_may_have_spaces(home: Path) -> None:
    (home / "NVIDIA Sync").mkdir()
    (home / "NVIDIA Sync" / "config").write_text("Host spark")
    main = home / "config"
    main.write_text('Include "~/NVIDIA Sync/config"\n')
    assert "Host spark" in ssh_config_text(main).splitlines()


def test_file_that_includes_itself_ends(home: Path) -> None:
    main = home / "config"
    main.write_text(f"Include {main}\nPort 5\n")
    assert "Port 5" in ssh_config_text(main).splitlines()


def test_user_comes_before_system(home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host mine")
    assert ssh_config_text(None).splitlines()[0] == "Host mine"


def test_files_with_known_keys(home: Path) -> None:
    options = {"userknownhostsfile": '~/.ssh/one "%d/with space"', "globalknownhostsfile": "none"}
    assert known_hosts_files(options) == ((home / ".ssh" / "one", home / "with space"), ())
    assert known_hosts_files({}) == (
        (home / ".ssh" / "known_hosts", home / ".ssh" / "known_hosts2"),
        (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2")),
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30.0), ("90s", 90.0), ("1m30s", 90.0), ("1H", 3600.0), ("0", None), ("none", None)]
)
def test_connect_timeout_is_read_as_ssh_reads_it(text: str, seconds: float | None) -> None:
    assert connect_timeout({"connecttimeout": text}) == seconds


def test_no_connect_timeout_is_none() -> None:
    assert connect_timeout({}) is None


@pytest.mark.parametrize("text", ["soon", "-1", "1.5", ""])
def test_connect_timeout_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="is no time"):
        connect_timeout({"connecttimeout": text})
