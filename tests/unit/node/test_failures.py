"""What a failed command means."""

import pytest

from cluster.errors import StepFailed, ToolMissing
from cluster.model.steps import Command
from cluster.node.base import Result
from cluster.node.failures import (
    NoSpace,
    NoSuchFile,
    PermissionRefused,
    SudoNeedsPassword,
    classify_failure,
    file_failure,
)


def classified(exit_code: int, err: str, *argv: str) -> StepFailed:
    return classify_failure(Result(exit_code, b"", err.encode()), Command(argv or ("x",)), "spark-b")


@pytest.mark.parametrize(
    "said",
    [
        "sudo: a terminal is required to read the password; either use the -S option to read from standard input",
        "sudo: a password is required\n",
        "sudo: no tty present and no askpass program specified",
    ],
)
def test_ssh_03_sudo_that_would_ask_is_its_own_kind(said: str) -> None:
    error = classified(1, said, "sudo", "-n", "zfs", "list")
    assert type(error) is SudoNeedsPassword
    assert "NOPASSWD" in error.fix


@pytest.mark.parametrize(
    ("said", "tool"),
    [
        ("bash: line 1: zfs: command not found", "zfs"),
        ("sh: 1: zfs: not found", "zfs"),
        ("env: some noise\n/bin/sh: 3: /opt/x/nvcc: not found\n", "/opt/x/nvcc"),
        ("zsh:1: command not found: zfs", "zfs"),
        ("fish: Unknown command: zfs\nfish: \nzfs list\n^~^", "zfs"),
    ],
)
def test_ssh_04_tool_not_in_path_is_told_from_a_tool_that_failed(said: str, tool: str) -> None:
    error = classified(127, said, "sh", "-c", "zfs list")
    assert type(error) is ToolMissing
    assert error.what == f"{tool} is not in any folder we look in"
    assert all(part in error.evidence[-1] for part in ("/usr/sbin", "/sbin", "/usr/local/sbin", "/snap/bin"))


def test_ssh_04_sudo_that_finds_no_tool_says_so_with_exit_code_1() -> None:
    assert classified(1, "sudo: zfs: command not found", "sudo", "-n", "zfs").what.startswith(
        "zfs is not in any folder"
    )


def test_ssh_04_tool_that_itself_exits_127_has_failed() -> None:
    assert type(classified(127, "zfs: internal error 127", "zfs")) is StepFailed


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("cp: error writing 'x': No space left on device", NoSpace),
        ("tar: Disk quota exceeded", NoSpace),
        ("ls: cannot open directory '/root': Permission denied", PermissionRefused),
        ("ip: RTNETLINK answers: Operation not permitted", PermissionRefused),
        ("something else", StepFailed),
        ("", StepFailed),
    ],
)
def test_other_failures_by_their_words(said: str, kind: type[StepFailed]) -> None:
    assert type(classified(1, said)) is kind


def test_last_words_are_the_evidence() -> None:
    error = classified(2, "\n".join(str(number) for number in range(9)), "make")
    assert (str(error), error.evidence) == ("spark-b: make ended with exit code 2", ("4", "5", "6", "7", "8"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ENOENT", NoSuchFile),
        ("EACCES", PermissionRefused),
        ("EROFS", PermissionRefused),
        ("ENOSPC", NoSpace),
        ("EIO", StepFailed),
    ],
)
def test_file_errors_by_their_code(code: str, kind: type[StepFailed]) -> None:
    error = file_failure("write", "/x", code, "Why", "spark-b")
    assert (type(error), str(error)) == (kind, "spark-b: cannot write /x: Why")
