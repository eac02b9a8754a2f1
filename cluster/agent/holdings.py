"""Which folders of weights a node has, who uses them, and the removal of one that nobody does. Runs on a node.

Argument: JSON {"registry": folder of notes, "folders": [path, ...], "pin": {"path", "text"} | null, "remove": [path,
...]}. Answer: JSON list, one object for each folder. A removal takes the folder's lease first and looks again at who
uses it; it removes the files that the manifest names, what was begun of them, and nothing else.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any, Dict, Iterator, List, Optional, Tuple

OWN = ".sparkctl"
DOCKER_LIMIT = 20


def read(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            return dict(json.load(file))
    except (OSError, ValueError, TypeError):
        return None


def known(registry: str, folders: List[str]) -> List[str]:
    found = [os.path.realpath(os.path.expanduser(one)) for one in folders]
    with suppress(OSError):
        for name in sorted(os.listdir(registry)):
            note = read(os.path.join(registry, name))
            if note:
                found.append(str(note.get("path")))
    return list(dict.fromkeys(found))


def names(folder: str) -> List[str]:
    """Files of the manifest; a name that leads out of the folder is none."""
    manifest = read(os.path.join(folder, OWN, "manifest.json")) or {}
    listed = [os.path.normpath(str(one)) for one in manifest.get("files", {})]
    return [one for one in listed if not one.startswith("..") and not os.path.isabs(one)]


def parts(folder: str) -> List[str]:
    base = os.path.join(folder, OWN, "parts")
    with suppress(OSError):
        return [os.path.join(base, one) for one in sorted(os.listdir(base))]
    return []


def lying(folder: str) -> List[str]:
    """All files of a folder that nobody fetched, without hidden ones."""
    found = []
    for base, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith(".")]
        found += [os.path.relpath(os.path.join(base, one), folder) for one in files if not one.startswith(".")]
    return found


def sizes(paths: List[str]) -> Tuple[int, int]:
    """How many are there, and their bytes."""
    count = total = 0
    for path in paths:
        with suppress(OSError):
            total += os.stat(path).st_size
            count += 1
    return count, total


def describe(folder: str, users: List[str], blind: int) -> Dict[str, Any]:
    manifest = read(os.path.join(folder, OWN, "manifest.json"))
    listed = names(folder) if manifest else lying(folder)
    files, size = sizes([os.path.join(folder, one) for one in listed])
    pin = ""
    with suppress(OSError), open(os.path.join(folder, OWN, "pin"), encoding="utf-8") as file:
        pin = file.read().strip()
    return {
        "path": folder,
        "present": os.path.isdir(folder),
        "repo": (manifest or {}).get("repo", ""),
        "revision": (manifest or {}).get("revision", ""),
        "files": files,
        "size": size,
        "partial": sizes(parts(folder))[1],
        "pin": pin,
        "lease": holder(folder),
        "claims": users,
        "blind": blind,
    }


def holder(folder: str) -> str:
    """Who holds the lease just now; a text without a lock is a stale one."""
    try:
        file = os.open(os.path.join(folder, OWN, "lease"), os.O_RDWR)
    except OSError:
        return ""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        said = read(os.path.join(folder, OWN, "lease")) or {}
        return "`%s` by %s on %s" % (said.get("command", "?"), said.get("user", "?"), said.get("host", "?"))
    else:
        return ""
    finally:
        os.close(file)


def inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def ancestors() -> List[int]:
    """This process, and all that led to it."""
    found = [os.getpid()]
    with suppress(OSError, ValueError, IndexError):
        while found[-1] > 1:
            with open("/proc/%d/stat" % found[-1], encoding="utf-8", errors="replace") as file:
                found.append(int(file.read().rpartition(")")[2].split()[1]))
    return found


def processes() -> Iterator[Tuple[str, List[str], bool]]:
    """Every process: its name, the paths it names, has open or has mapped, and whether all of it could be seen."""
    ours = ancestors()
    for pid in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        if int(pid) in ours:
            continue  # a command line that asks about a folder does not use it
        base, seen = os.path.join("/proc", pid), True
        try:
            with open(os.path.join(base, "cmdline"), "rb") as file:
                words = file.read().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if not words[0]:
            continue  # a kernel thread
        paths = [word.rpartition("=")[2] for word in words[1:]]
        try:
            for one in os.listdir(os.path.join(base, "fd")):
                with suppress(FileNotFoundError):
                    paths.append(os.readlink(os.path.join(base, "fd", one)))
            with open(os.path.join(base, "maps"), encoding="utf-8", errors="replace") as file:
                paths += {line.split(None, 5)[5].strip() for line in file if line.count("/")}
        except PermissionError:
            seen = False
        except OSError:
            continue  # it has ended
        yield "%s (pid %s)" % (os.path.basename(words[0]), pid), paths, seen


def containers() -> Tuple[List[Tuple[str, List[str]]], bool]:
    """Running containers with what is mounted into them, and whether the engine could be asked."""
    if not os.path.exists("/var/run/docker.sock"):
        return [], True
    ask = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "timeout": DOCKER_LIMIT, "check": True}
    try:
        running = subprocess.run(["docker", "ps", "-q"], **ask).stdout.decode().split()  # type: ignore[call-overload]
        if not running:
            return [], True
        shape = "{{json .Name}}\t{{json .Mounts}}"
        told = subprocess.run(["docker", "inspect", "--format", shape, *running], **ask)  # type: ignore[call-overload]
    except (OSError, subprocess.SubprocessError):
        return [], False
    found = []
    for line in told.stdout.decode().splitlines():
        name, mounts = line.split("\t", 1)
        found.append((json.loads(name).lstrip("/"), [str(one.get("Source", "")) for one in json.loads(mounts)]))
    return found, True


def claims(folders: List[str]) -> Tuple[Dict[str, List[str]], int]:
    """Folder -> who uses it; and how many processes could not be looked into."""
    found: Dict[str, List[str]] = {one: [] for one in folders}
    blind = 0
    for name, paths, seen in processes():
        blind += not seen
        for folder in folders:
            if any(inside(path, folder) for path in paths):
                found[folder].append(name)
    boxes, asked = containers()
    for folder in folders:
        for name, sources in boxes:
            if any(source and (inside(folder, source) or inside(source, folder)) for source in sources):
                found[folder].append("container %s" % name)
        if not asked:
            found[folder].append("containers could not be asked")
        found[folder] += ["shared over NFS as %s" % one for one in published(folder)]
    return found, blind


def published(folder: str) -> List[str]:
    """Trees of hard links that workers may have mounted; they would keep the bytes as well."""
    with suppress(OSError):
        return sorted(one for one in os.listdir(os.path.join(folder, OWN, "export")) if not one.startswith("."))
    return []


def remove(folder: str, registry: str) -> Tuple[int, str]:
    """Bytes freed, and why not if nothing was."""
    own = os.path.join(folder, OWN)
    try:
        file = os.open(os.path.join(own, "lease"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        return 0, str(error.strerror)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return 0, "being changed: %s" % holder(folder)
    try:
        users = claims([folder])[0][folder]
        if users or os.path.exists(os.path.join(own, "pin")):
            return 0, "; ".join(users) or "pinned"
        freed = 0
        for path in [*(os.path.join(folder, one) for one in names(folder)), *parts(folder)]:
            with suppress(FileNotFoundError):
                seen = os.lstat(path)
                os.unlink(path)
                freed += seen.st_blocks * 512 if seen.st_nlink == 1 else 0  # another name keeps the bytes
        for name in ("manifest.json", "lease"):
            with suppress(OSError):
                os.unlink(os.path.join(own, name))
        for base, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):
                os.rmdir(base)  # only what is empty goes
        for name in os.listdir(registry):
            note = read(os.path.join(registry, name))
            if note and note.get("path") == folder:
                os.unlink(os.path.join(registry, name))
    except OSError as error:
        return 0, "%s: %s" % (error.filename, error.strerror)
    else:
        return freed, ""
    finally:
        os.close(file)


def pin(folder: str, text: str) -> None:
    path = os.path.join(folder, OWN, "pin")
    if not text:
        with suppress(FileNotFoundError):
            os.unlink(path)
        return
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def main(want: Dict[str, Any]) -> List[Dict[str, Any]]:
    registry = os.path.expanduser(want["registry"])
    if want["pin"] and os.path.isdir(want["pin"]["path"]):
        pin(os.path.realpath(want["pin"]["path"]), want["pin"]["text"])
    folders = known(registry, want["folders"])
    users, blind = claims(folders)
    told = [describe(folder, users[folder], blind) for folder in folders]
    named = {os.path.realpath(os.path.expanduser(one)) for one in want["folders"]}
    for one in told:
        one["named"] = one["path"] in named
        if one["path"] in want["remove"]:
            one["freed"], one["detail"] = remove(one["path"], registry)
    return told


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
