"""What a failed command means, read from its exit code and last words: typed, with what to type next. Pure."""

import re

from cluster.agent.wrap_find import EXTRA_DIRS
from cluster.errors import StepFailed, ToolMissing
from cluster.model.steps import Command
from cluster.node.base import Result


class SudoNeedsPassword(StepFailed):
    """`sudo -n` would have had to ask."""


class PermissionRefused(StepFailed):
    """The account may not do this."""


class NoSpace(StepFailed):
    """The disk or the quota is full."""


class NoSuchFile(StepFailed):
    """There is nothing at that path."""


_SUDO = re.compile(r"sudo: (a password is required|a terminal is required|no tty present|sorry, you must have a tty)")
# bash, dash, busybox, fish and zsh each say it in their own way; sudo says it with exit code 1.
_NOT_FOUND = re.compile(
    r"^(?:.*: )?([\w.+/-]+): (?:command )?not found$|command not found: (\S+)$|Unknown command: (\S+)$", re.MULTILINE
)
_SPACE = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_PERMISSION = re.compile(r"permission denied|operation not permitted|a user is not in the sudoers", re.IGNORECASE)


def classify_failure(result: Result, command: Command, where: str) -> StepFailed:
    """The error for a command that ended with another exit code than 0."""
    text = result.err_text or result.text
    evidence = tuple(line for line in text.splitlines() if line.strip())[-5:]
    name = command.argv[0]
    if found := _SUDO.search(text):
        return SudoNeedsPassword(
            f"sudo needs a password: {found[1]}",
            where=where,
            evidence=evidence,
            fix=f"allow it on {where} without one: `sudo visudo -f /etc/sudoers.d/sparkctl`, "
            "line `YOURUSER ALL=(root) NOPASSWD: ALL` or only the commands that `sparkctl plan` shows",
        )
    said = _NOT_FOUND.search(text) if result.exit == 127 or text.startswith("sudo: ") else None
    if said:
        missing = said[1] or said[2] or said[3]
        return ToolMissing(
            f"{missing} is not in any folder we look in",
            where=where,
            evidence=(*evidence, f"looked in the PATH of the login shell and in {':'.join(EXTRA_DIRS)}"),
            fix=f"install {missing} on {where}, or link it into /usr/local/bin",
        )
    if _SPACE.search(text):
        return NoSpace(
            f"no space left for {name}", where=where, evidence=evidence, fix=f"make room on {where}: `df -h`, `df -i`"
        )
    if _PERMISSION.search(text):
        return PermissionRefused(
            f"{name} was not permitted", where=where, evidence=evidence, fix="use an account that may, or sudo"
        )
    return StepFailed(f"{name} ended with exit code {result.exit}", where=where, evidence=evidence)


def file_failure(verb: str, path: str, code: str, text: str, where: str) -> StepFailed:
    """The error for a file that could not be read or written; `code` is errno's name."""
    kind, fix = {
        "ENOENT": (NoSuchFile, ""),
        "ENOTDIR": (NoSuchFile, ""),
        "EACCES": (PermissionRefused, f"`ls -ld {path}` on {where} shows who may"),
        "EPERM": (PermissionRefused, f"`ls -ld {path}` on {where} shows who may"),
        "EROFS": (PermissionRefused, f"the file system of {path} on {where} is mounted read-only"),
        "ENOSPC": (NoSpace, f"make room on {where}: `df -h`, `df -i`"),
        "EDQUOT": (NoSpace, f"make room on {where}: `df -h`, `df -i`"),
    }.get(code, (StepFailed, ""))
    return kind(f"cannot {verb} {path}: {text}", where=where, evidence=(code,), fix=fix)
