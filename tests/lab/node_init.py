"""Process 1 of a lab node: gives the node its own root, devices and sshd, then only buries its dead.

Started by `nodes.py` inside fresh mount, UTS, IPC, PID and network namespaces with one argument, the node's folder.
It reads its specification as a line of JSON, a second line once the links are there, starts sshd, and answers "ready".
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHANGED = 100  # the descriptor by which the host finds what this node changed of its root


def main() -> None:
    folder = Path(sys.argv[1])
    root = folder / "root"
    node = json.loads(sys.stdin.readline())
    _run("hostname", node["name"])
    mount_root(folder, root)
    mount_system(root)
    mount_devices(root / "dev")
    mount_cgroups(root / "sys/fs/cgroup", own=bool(node["systemd"]))
    mount_own(folder, root, node)
    pivot(root)
    write_identity(node)
    sys.stdin.readline()
    if node["sshd"] and not node["systemd"]:
        start_sshd()
    print("ready", flush=True)
    log = os.open("/var/log/node-init.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (0, 1, 2):
        os.dup2(log, stream)
    if node["systemd"]:
        become_systemd(node["systemd"], str(folder))
    # An ignored signal would be inherited by everything started here; a handler is not.
    signal.signal(signal.SIGINT, lambda *_: None)
    bury()


def become_systemd(program: str, folder: str) -> None:
    environment = {"container": "lab", "PATH": os.defpath, "LAB_NODE": folder}
    os.execve(program, (program, "--unit=lab.target"), environment)


def mount_root(folder: Path, root: Path) -> None:
    """The host's root with a private layer on top, so that a node can change any file and no one else sees it."""
    _run("mount", "--make-rprivate", "/")
    layers = folder / "layers"
    for attempt in ("disk", "memory"):
        for part in (layers / "upper", layers / "work", root):
            part.mkdir(parents=True, exist_ok=True)
        options = f"lowerdir=/,upperdir={layers}/upper,workdir={layers}/work"
        mounted = subprocess.run(("mount", "-t", "overlay", "overlay", "-o", options, str(root)), capture_output=True)
        if mounted.returncode == 0:
            os.dup2(os.open(layers / "upper", os.O_PATH | os.O_DIRECTORY), CHANGED)
            return
        if attempt == "memory":
            raise SystemExit(f"no overlay root: {mounted.stderr.decode(errors='replace').strip()}")
        # Where the folder is itself on an overlay (a container), the layer has to be in memory.
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "lab", str(layers))


def mount_system(root: Path) -> None:
    _run("mount", "-t", "proc", "proc", f"{root}/proc")
    # Kernel settings outside the network belong to the host.
    for place in (root / "proc/sys", root / "proc/sysrq-trigger"):
        if place.exists():
            _run("mount", "--bind", str(place), str(place))
            _run("mount", "-o", "remount,bind,ro", str(place))
    _run("mount", "-t", "sysfs", "-o", "ro", "sysfs", f"{root}/sys")
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "run", f"{root}/run")


def mount_devices(dev: Path) -> None:
    """A /dev of its own: the host's is one and the same file system everywhere."""
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "dev", str(dev))
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        (dev / name).touch()
        _run("mount", "--bind", f"/dev/{name}", f"{dev}/{name}")
    for name in ("pts", "shm"):
        (dev / name).mkdir()
    _run("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=620", "devpts", f"{dev}/pts")
    _run("mount", "-t", "tmpfs", "-o", "mode=1777,size=1g", "shm", f"{dev}/shm")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target in links.items():
        (dev / name).symlink_to(target)


def mount_cgroups(place: Path, *, own: bool) -> None:
    """The host's control groups, or with systemd those of the node's own branch, which it takes for the whole."""
    if not own:
        if place.is_dir():
            _run("mount", "--rbind", "/sys/fs/cgroup", str(place))
        return
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        _run("mount", "-t", "cgroup2", "cgroup2", str(place))
        return
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "cgroup", str(place))
    for name in ("systemd", "unified"):
        (place / name).mkdir()
    _run("mount", "-t", "cgroup", "-o", "none,name=systemd,xattr", "cgroup", str(place / "systemd"))
    _run("mount", "-t", "cgroup2", "cgroup2", str(place / "unified"))


def mount_own(folder: Path, root: Path, node: dict[str, Any]) -> None:
    """Folders the node does not share with the host, a small disk that can be filled, and what is lent to it."""
    for place in node["private"]:
        own = folder / "private" / place.strip("/").replace("/", "-")
        own.mkdir(parents=True, exist_ok=True)
        own.chmod(0o1777 if place == "/tmp" else 0o700)
        Path(f"{root}{place}").mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", str(own), f"{root}{place}")
    small = Path(f"{root}{node['small_disk']}")
    small.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"mode=700,size={node['small_disk_size']}", "small-disk", str(small))
    for lent in node["lent"]:
        target = Path(f"{root}{lent}")
        target.mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", lent, str(target))
        _run("mount", "-o", "remount,bind,ro", str(target))


def pivot(root: Path) -> None:
    old = root / ".host"
    old.mkdir(exist_ok=True)
    os.chdir(root)
    _run("pivot_root", ".", ".host")
    os.chdir("/")
    _run("umount", "--lazy", "/.host")
    Path("/.host").rmdir()


def write_identity(node: dict[str, Any]) -> None:
    """Names, keys and who is known; all of it lies in the node's own layer."""
    Path("/etc/hostname").unlink(missing_ok=True)
    Path("/etc/resolv.conf").unlink(missing_ok=True)
    for path, (mode, text) in node["files"].items():
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)


def start_sshd() -> None:
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    log = os.open("/var/log/sshd.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    argv = ("/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/lab_sshd_config")
    daemon = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    while listeners(22) < 2:
        if daemon.poll() is not None:
            raise SystemExit(f"sshd ended: {Path('/var/log/sshd.log').read_text()}")
        time.sleep(0.01)


def listeners(port: int) -> int:
    """How many sockets listen on the port, from the node's own socket table."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def bury() -> None:
    """Orphans end up here when their parents die; reap each, and otherwise sleep."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        signal.sigwait({signal.SIGCHLD})


def _run(*argv: str) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}: {done.stderr.strip()}")


if __name__ == "__main__":
    main()
