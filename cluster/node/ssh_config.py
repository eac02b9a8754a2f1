"""What our SSH library does not read in ssh_config: `Include` lines, files of known keys, `ConnectTimeout`."""

import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path

from cluster.errors import SettingsError

DEEPEST = 16  # as ssh


def ssh_config_text(given: Path | None) -> str:
    """The given file alone, or else the user's and then the system's, as ssh orders them."""
    if given is not None:
        return _expanded(given.expanduser(), Path("~/.ssh").expanduser())
    files = (Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config"))
    return "\nHost *\n".join(_expanded(file, file.parent) for file in files if file.is_file())


def _expanded(file: Path, base: Path, depth: int = 0) -> str:
    block = "Host *"
    lines = []
    for line in file.read_text("utf-8", "replace").splitlines():
        word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        match word.lower():
            case "host" | "match":
                block = line
                lines.append(line)
            case "include" if depth < DEEPEST:
                for included in _files(rest, base):
                    # An included file may open a block of its own; what follows belongs to ours again.
                    lines += [block, _expanded(included, base, depth + 1), block]
            case _:
                lines.append(line)
    return "\n".join(lines)


def _files(patterns: str, base: Path) -> list[Path]:
    found = []
    for pattern in _words(patterns):
        found += [Path(name) for name in sorted(glob.glob(str(base / os.path.expanduser(pattern))))]  # noqa: PTH111, PTH207
    return [file for file in found if file.is_file()]


def _words(text: str) -> list[str]:
    """Words as ssh_config quotes them: with double quotes only; a backslash is a letter."""
    parts = text.split('"')
    return [word for index, part in enumerate(parts) for word in ([part] if index % 2 else part.split())]


def known_hosts_files(options: dict[str, str]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The user's files, the first of which takes new keys, and the system's."""
    user = options.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")
    system = options.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2")
    return _paths(user), _paths(system)


def _paths(text: str) -> tuple[Path, ...]:
    home = str(Path("~").expanduser())
    return tuple(Path(word.replace("%d", home)).expanduser() for word in _words(text) if word.lower() != "none")


UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def connect_timeout(options: Mapping[str, str]) -> float | None:
    """Seconds, written as ssh takes them (`30`, `1m30s`); None where nothing is set, or no limit at all."""
    text = options.get("connecttimeout", "none").lower()
    if text == "none":
        return None
    if not re.fullmatch(r"(\d+[smhdw]?)+", text):
        what = f"ConnectTimeout {text} is no time"
        raise SettingsError(what, where="ssh_config", fix="write seconds: ConnectTimeout 30")
    return float(sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhdw]?)", text))) or None
