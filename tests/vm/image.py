"""The root of the VM lab's machines: built from Debian packages, kept in a cache, made again when its recipe changes.

Two steps, each with its own stamp: the packages (minutes: bootstrap, kernel modules of ZFS, libraries of sparkctl), and
on top of them the lab's files, the initial RAM disk and one disk image (half a minute).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.vm import recipe

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOLS = {
    "debootstrap": "debootstrap", "qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils",
    "mke2fs": "e2fsprogs",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
    "zstd": "zstd", "ssh": "openssh-client", "ssh-keygen": "openssh-client", "unshare": "util-linux",
}  # fmt: skip
DISK = "8G"
QUIET = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
NO_SERVICES = "#!/bin/sh\nexit 101\n"  # a package that is installed in a chroot must not start its daemon on this host


@dataclass(frozen=True, slots=True)
class Image:
    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "disk.raw"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd.img"


def cache() -> Path:
    """Where images and running pairs are kept: gigabytes, on a disk, outside the checkout."""
    if own := os.environ.get("SPARKCTL_VM_LAB"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "sparkctl-vm-lab" if base else Path("/var/tmp/sparkctl-vm-lab")


def missing() -> str | None:
    """Why no VM lab can stand here, or None."""
    if os.geteuid() != 0:
        return "the VM lab needs root (debootstrap, chroot, mount)"
    if absent := _absent():
        return f"the VM lab needs the Debian packages {' '.join(absent)}; `scripts/vm-lab build` installs them"
    return None


def equip() -> None:
    """Install what a VM lab needs of this host, where that is ours to do."""
    if os.geteuid() == 0 and (absent := _absent()):
        argv = (sys.executable, str(recipe.REPOSITORY / "scripts/provision.py"), "apt", *absent)
        if subprocess.run(argv).returncode:
            raise SystemExit(f"vm-lab: could not install {' '.join(absent)}")


def _absent() -> list[str]:
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    return sorted({
        package for tool, package in TOOLS.items() if not (Path(tool).is_file() or shutil.which(tool, path=path))
    })  # fmt: skip


def keys() -> dict[str, tuple[str, str]]:
    """One key pair for the person, one host key for each machine; secret part, public part. Made once."""
    folder = cache() / "keys"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = {}
    for name in ("person", *recipe.NODES):
        file = folder / name
        if not file.exists():
            argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"vm-lab-{name}", "-f", str(file))
            subprocess.run(argv, check=True)
        made[name] = (file.read_text(), file.with_suffix(".pub").read_text())
    return made


def built() -> Image:
    """The image of the present recipe, from the cache or made now."""
    cache().mkdir(parents=True, exist_ok=True)
    with _only_one():
        packages = _packages()
        content = [packages.name, recipe.files(keys()), recipe.DISABLED, recipe.MASKED, recipe.ENABLED, DISK]
        folder = cache() / f"image-{stamp(content)}"
        if not folder.exists():
            _image(packages, folder)
    return Image(folder)


def _packages() -> Path:
    libraries = tomllib.loads((recipe.REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    root = cache() / f"root-{stamp([recipe.SUITE, recipe.SYSTEM, recipe.ZFS, libraries])}"
    if root.exists():
        return root
    making = root.with_suffix(".part")
    shutil.rmtree(making, ignore_errors=True)
    _say("bootstrap")
    include = "--include=systemd-sysv,udev,dbus,ca-certificates"
    options = ("--variant=minbase", "--components=main,contrib", include)
    _run("debootstrap", *options, recipe.SUITE, str(making), recipe.MIRROR)
    (making / "etc/apt/sources.list").write_text(recipe.SOURCES)
    _write(making / "usr/sbin/policy-rc.d", 0o755, NO_SERVICES)
    shutil.copyfile("/etc/resolv.conf", making / "etc/resolv.conf")
    _say("packages")
    _inside(making, "apt-get", "update")
    _inside(making, "apt-get", "install", "-y", "--no-install-recommends", *recipe.SYSTEM)
    _say("ZFS modules")
    _inside(making, "apt-get", "install", "-y", "--no-install-recommends", *recipe.ZFS)
    _inside(making, "apt-get", "clean")
    if not list(making.glob("lib/modules/*/updates/dkms/zfs.ko*")):
        raise SystemExit(f"vm-lab: dkms built no zfs module; see {making}/var/lib/dkms/zfs")
    _say("libraries")
    target = making / "opt/sparkctl-libraries"
    _run(sys.executable, "-m", "pip", "install", "-q", "--no-input", "--only-binary=:all:", "--python-version=3.11",
         "--implementation=cp", f"--target={target}", *libraries)  # fmt: skip
    _inside(making, "python3", "-m", "compileall", "-q", "/opt/sparkctl-libraries")
    making.rename(root)
    return root


def _image(root: Path, folder: Path) -> None:
    """The root with the lab's files over it, as one disk; the root itself is left as it was."""
    _say("disk image")
    making = folder.with_suffix(".part")
    merged = making / "merged"
    if merged.is_mount():
        _run("umount", str(merged))
    shutil.rmtree(making, ignore_errors=True)
    upper, work = making / "upper", making / "work"
    for place in (merged, upper, work):
        place.mkdir(parents=True)
    _run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={root},upperdir={upper},workdir={work}", str(merged))
    try:
        _furnish(merged)
        version = next((merged / "lib/modules").glob("*-amd64")).name
        for name in ("vmlinuz", "initrd.img"):
            shutil.copyfile(merged / f"boot/{name}-{version}", making / name)
        _run("mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", str(merged), str(making / "disk.raw"), DISK)
    finally:
        _run("umount", str(merged))
    for place in (merged, upper, work):
        shutil.rmtree(place)
    making.rename(folder)


def _furnish(root: Path) -> None:
    _inside(root, "useradd", "--create-home", "--shell", "/bin/bash", "--groups", "sudo,docker", "spark")
    for host_key in (root / "etc/ssh").glob("ssh_host_*"):
        host_key.unlink()
    for path, (mode, text) in recipe.files(keys()).items():
        _write(root / path.lstrip("/"), mode, text)
    for home in ("root", "home/spark"):
        (root / home / ".ssh").chmod(0o700)
    for folder in ("opt/sparkctl", "mnt/lent", "var/cache/sparkctl-pyc"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "var/cache/sparkctl-pyc").chmod(0o1777)
    _inside(root, "chown", "-R", "spark:spark", "/home/spark")
    _inside(root, "systemctl", "disable", *recipe.DISABLED)
    _inside(root, "systemctl", "mask", *recipe.MASKED)
    _inside(root, "systemctl", "enable", *recipe.ENABLED)
    _inside(root, "update-initramfs", "-u", "-k", "all")
    (root / "usr/sbin/policy-rc.d").unlink()


def _inside(root: Path, *argv: str) -> None:
    """A command in the root. What packages want to see is mounted in a namespace that ends with the command."""
    mounts = "mount -t proc proc proc && mount -t sysfs -o ro sysfs sys"
    _run("unshare", "--mount", "sh", "-c", f'cd "$0" && {mounts} && exec chroot . "$@"', str(root), *argv)


def _run(*argv: str) -> None:
    """Its words go to a log; the end of them is shown when it fails."""
    with (cache() / "build.log").open("a+") as log:
        log.write(f"\n# {' '.join(argv)}\n")
        log.flush()
        env = {**os.environ, **QUIET}
        if subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env).returncode == 0:
            return
        log.seek(0)
        last = "\n".join(log.read().splitlines()[-15:])
    raise SystemExit(f"vm-lab: failed: {' '.join(argv)}\n{last}\nthe whole log: {cache()}/build.log")


def _write(path: Path, mode: int, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def stamp(content: list[Any]) -> str:
    """Short, and another one whenever the content is: what is cached under it never has to be judged."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def _say(what: str) -> None:
    print(f"vm-lab: {time.strftime('%H:%M:%S')} {what} ...", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    with (cache() / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
