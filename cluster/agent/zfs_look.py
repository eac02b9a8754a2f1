"""Say what ZFS a node has, and of each wanted folder its dataset, snapshots, holds and rights. Changes nothing.

Argument: JSON {"places": {name: {"path", "dataset": name or "", "last": last part of a dataset's name, or ""}},
"dataset": columns, "snapshot": columns}. On the head a folder's dataset is the one it is mounted from; on a worker
(`last` given) the one that is called so. Answer: JSON {"zfs": [words], "user", "groups", "problem", "list", "places":
{name: {"list", "snapshots", "holds", "token", "allow", "problem", "listing", "hidden", "absent": the outermost folder
of the path that is not there and that we could remove again, or ""}}}.
"""

from __future__ import annotations

import grp
import hashlib
import json
import os
import pwd
import shutil
import subprocess
import sys
from typing import Any, Dict, List, Tuple

PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin"
LIMIT = 60.0


def run(*words: str) -> Tuple[int, str, str]:
    environment = dict(os.environ, LC_ALL="C", PATH=PATH)
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=LIMIT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def usable() -> Tuple[List[str], str]:
    """The words that run zfs: with sudo when we are not root and may."""
    program = shutil.which("zfs", path=PATH)
    if program is None:
        return [], "zfs is in none of %s" % PATH
    code, _, err = run(program, "list", "-H", "-o", "name")
    if code:
        return [], err.strip() or "zfs list ended with exit code %d" % code
    may_sudo = os.getuid() and run("sudo", "-n", program, "list", "-H", "-o", "name")[0] == 0
    return (["sudo", "-n", program] if may_sudo else [program]), ""


class Looker:
    def __init__(self, want: Dict[str, Any], zfs: List[str]) -> None:
        self.want, self.zfs = want, zfs
        self.list = self.ask("list", "-Hp", "-t", "filesystem", "-o", want["dataset"])
        self.names = [line.split("\t")[0] for line in self.list.splitlines()]

    def ask(self, *words: str) -> str:
        """What it prints; nothing when it fails."""
        code, out, _ = run(*self.zfs, *words)
        return out if code == 0 else ""

    def place(self, one: Dict[str, str]) -> Dict[str, Any]:
        path = os.path.expanduser(one["path"])
        name, problem = self.dataset_of(path, one)
        line = next((line for line in self.list.splitlines() if line.split("\t")[0] == name), "")
        said: Dict[str, Any] = {
            "list": line,
            "problem": problem,
            "snapshots": "",
            "holds": "",
            "token": "",
            "listing": listing(path) if not one["last"] else "",
            "hidden": is_filled(path) and path not in self.mounted(),
            "allow": self.allow(name),
            "absent": absent(path) if one["last"] and may_remove() else "",
        }
        if line:
            said["snapshots"] = self.ask("list", "-Hp", "-t", "snapshot", "-d", "1", "-o", self.want["snapshot"], name)
            shots = [row.split("\t")[0] for row in said["snapshots"].splitlines()]
            said["holds"] = self.ask("holds", "-H", *shots) if shots else ""
            said["token"] = self.token(line)
        return said

    def dataset_of(self, path: str, one: Dict[str, str]) -> Tuple[str, str]:
        if one["dataset"]:
            return one["dataset"], "" if one["dataset"] in self.names else "there is no dataset %s" % one["dataset"]
        if one["last"]:
            found = [name for name in self.names if name.rpartition("/")[2] == one["last"]]
            return (found[0], "") if found else ("", "")
        code, out, err = run(*self.zfs, "list", "-H", "-o", "name", path)
        return (out.strip(), "") if code == 0 else ("", err.strip())

    def mounted(self) -> List[str]:
        columns = self.want["dataset"].split(",")
        where, is_mounted = columns.index("mountpoint"), columns.index("mounted")
        rows = [line.split("\t") for line in self.list.splitlines()]
        return [row[where] for row in rows if row[is_mounted] == "yes"]

    def allow(self, name: str) -> str:
        """Of a dataset that is not there yet, what its nearest parent grants; without a name, of every pool."""
        while name and name not in self.names:
            name = name.rpartition("/")[0]
        wanted = [name] if name else [one for one in self.names if "/" not in one]
        return "\n".join(self.ask("allow", one) for one in wanted)

    def token(self, line: str) -> str:
        token = line.split("\t")[self.want["dataset"].split(",").index("receive_resume_token")]
        if token in ("-", ""):
            return ""
        _, out, err = run(*self.zfs, "send", "-nvt", token)  # it tells what is in it even when it cannot go on
        return out + err


def listing(folder: str) -> str:
    """Names, sizes and times: what changes when anybody changes a file."""
    rows = []
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if one not in (".zfs", ".sparkctl"))
        for name in sorted(names):
            path = os.path.join(base, name)
            seen = os.lstat(path)
            rows.append("%s\0%d\0%d" % (os.path.relpath(path, folder), seen.st_size, seen.st_mtime_ns))
    return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogateescape")).hexdigest()


def may_remove() -> bool:
    """Sudo may be for zfs alone."""
    return os.getuid() == 0 or run("sudo", "-n", "true")[0] == 0


def absent(path: str) -> str:
    """The outermost folder on the way to it that a mount would make."""
    found, here = "", os.path.abspath(path)
    while not os.path.lexists(here):
        found, here = here, os.path.dirname(here)
    return found


def is_filled(path: str) -> bool:
    try:
        return bool(os.listdir(path))
    except OSError:
        return False


def main(want: Dict[str, Any]) -> Dict[str, Any]:
    zfs, problem = usable()
    said: Dict[str, Any] = {
        "zfs": zfs,
        "problem": problem,
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "groups": [grp.getgrgid(one).gr_name for one in os.getgroups()],
        "list": "",
        "places": {},
    }
    if zfs:
        looker = Looker(want, zfs)
        said["list"] = looker.list
        said["places"] = {name: looker.place(one) for name, one in want["places"].items()}
    return said


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
