"""A newer engine with containerd's image store, from a Debian root of its own, beside the one that is installed."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

CACHE = Path(os.environ.get("SPARKCTL_IMAGE_CACHE") or Path.home() / ".cache/sparkctl/images")
ROOT = CACHE / "root-trixie-docker"
MAKE = f"debootstrap --variant=minbase --include=docker.io,ca-certificates trixie {ROOT}"
ENTER = (
    'mount --make-rprivate / && mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" && '
    'mount --rbind /dev "$1/dev" && mount --bind "$2" "$1/mnt" && shift 2 && exec "$@"'
)


def missing() -> str | None:
    if os.geteuid() != 0:
        return "an engine in a root of its own needs root"
    return None if (ROOT / "usr/sbin/dockerd").exists() else f"no newer engine here; make one with: {MAKE}"


class ContainerdStore:
    """`with ContainerdStore(folder) as engine`. It has images alone: in a chroot no container starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = str(folder / "docker.sock")
        self.data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.data.mkdir(parents=True)
        (ROOT / "etc/docker").mkdir(exist_ok=True)
        (ROOT / "etc/docker/daemon.json").write_text(json.dumps({"features": {"containerd-snapshotter": True}}))
        dockerd = ("dockerd", "--data-root", "/mnt/data", "--exec-root", "/mnt/exec", "-H", "unix:///mnt/docker.sock")
        more = ("--pidfile", "/mnt/pid", "--bridge=none", "--iptables=false")
        words = ("unshare", "--mount", "sh", "-c", ENTER, "enter", ROOT, self.folder, "chroot", ROOT, *dockerd, *more)
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        for _ in range(300):
            if self.run("version", check=False).returncode == 0:
                return self
            time.sleep(0.1)
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def run(self, *words: str, data: bytes | None = None, check: bool = True) -> "subprocess.CompletedProcess[bytes]":
        done = subprocess.run(("docker", "-H", f"unix://{self.socket}", *words), input=data, capture_output=True)
        if check and done.returncode:
            raise RuntimeError(done.stderr.decode())
        return done

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
        shutil.rmtree(self.data, ignore_errors=True)
