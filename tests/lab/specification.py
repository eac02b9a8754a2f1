"""What a lab node is told to become: its names, keys, private folders and sshd."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.lab.node import SMALL_DISK

if TYPE_CHECKING:
    from collections.abc import Sequence

REPOSITORY = Path(__file__).resolve().parents[2]
NUMBERS = {"spark-a": 1, "spark-b": 2, "laptop": 9}
SYSTEMD = Path("/usr/lib/systemd/systemd")
# Where a node must not see what the host has: keys, settings and caches of whoever runs the tests.
PRIVATE = ("/tmp", "/root/.ssh", "/root/.config", "/root/.cache")
SSHD_CONFIG = """
HostKey /etc/ssh/lab_host_key
ListenAddress {fabric}
ListenAddress {control}
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PidFile /run/sshd.pid
Subsystem sftp internal-sftp
"""
SSH_CONFIG = """
Host spark-a spark-b 10.77.*
    User root
    IdentityFile ~/.ssh/id_ed25519
    IdentitiesOnly yes
    StrictHostKeyChecking yes
    UserKnownHostsFile ~/.ssh/known_hosts
    ConnectTimeout 10
"""
LAB_TARGET = """
[Unit]
Requires=basic.target lab-sshd.service
After=basic.target lab-sshd.service
"""
ONE_SHOT = """
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=true
"""
LAB_SSHD = """
[Service]
Type=notify
RuntimeDirectory=sshd
ExecStart=/usr/sbin/sshd -D -f /etc/ssh/lab_sshd_config
KillMode=process
"""
# What would reach for the host's kernel, clock, devices or lent folders; an empty unit file is a masked one.
MASKED = (
    "systemd-sysctl.service", "systemd-modules-load.service", "systemd-remount-fs.service", "systemd-udevd.service",
    "systemd-udev-trigger.service", "systemd-timesyncd.service", "systemd-random-seed.service", "dev-mqueue.mount",
    "systemd-tmpfiles-setup.service", "systemd-tmpfiles-setup-dev.service", "systemd-tmpfiles-clean.timer",
    "dev-hugepages.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount", "systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount", "timers.target",
    "systemd-update-utmp.service", "systemd-machine-id-commit.service",
)  # fmt: skip


def make_keys(folder: Path) -> dict[str, tuple[str, str]]:
    """One key pair for the person, one host key for each node; secret part, public part."""
    keys = {}
    for name in ("person", "spark-a", "spark-b"):
        file = folder / f"key-{name}"
        argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(file))
        subprocess.run(argv, check=True, capture_output=True)
        keys[name] = (file.read_text(), file.with_suffix(".pub").read_text())
    return keys


def specification(
    name: str, keys: dict[str, tuple[str, str]], lent: Sequence[str], small_disk_size: str, *, systemd: bool
) -> dict[str, Any]:
    control = {other: f"10.77.1.{number}" for other, number in NUMBERS.items()}
    fabric = {other: f"10.77.0.{number}" for other, number in NUMBERS.items()}
    # Debian maps a machine's own name to 127.0.1.1; the nodes have that trap too.
    hosts = ["127.0.0.1 localhost", f"127.0.1.1 {name}"]
    hosts += [f"{address} {other}" for other, address in control.items() if other != name]
    sparks = ("spark-a", "spark-b")
    known = "".join(f"{spark},{control[spark]},{fabric[spark]} {keys[spark][1]}" for spark in sparks)
    files = {
        "/etc/hostname": (0o644, f"{name}\n"),
        "/etc/hosts": (0o644, "\n".join(hosts) + "\n"),
        "/etc/resolv.conf": (0o644, "# no name server in the lab\n"),
        # Debian's bash reads it for every command over SSH; what the host's own does there is no part of a test.
        "/root/.bashrc": (0o644, ""),
        "/root/.ssh/config": (0o600, SSH_CONFIG),
        "/root/.ssh/id_ed25519": (0o600, keys["person"][0]),
        "/root/.ssh/id_ed25519.pub": (0o644, keys["person"][1]),
        "/root/.ssh/known_hosts": (0o600, known),
    }
    if name in sparks:
        files["/root/.ssh/authorized_keys"] = (0o600, keys["person"][1])
        files["/etc/ssh/lab_host_key"] = (0o600, keys[name][0])
        files["/etc/ssh/lab_sshd_config"] = (0o644, SSHD_CONFIG.format(fabric=fabric[name], control=control[name]))
    if systemd:
        files |= _systemd_files(with_sshd=name in sparks)
    return {
        "name": name,
        "systemd": str(SYSTEMD) if systemd else "",
        "files": files,
        "private": PRIVATE,
        "lent": lent,
        "small_disk": str(SMALL_DISK),
        "small_disk_size": small_disk_size,
        "sshd": name in sparks,
    }


def _systemd_files(*, with_sshd: bool) -> dict[str, tuple[int, str]]:
    units = dict.fromkeys(MASKED, "") | {
        "lab.target": LAB_TARGET,
        "lab-sshd.service": LAB_SSHD if with_sshd else ONE_SHOT,
    }
    files = {f"/etc/systemd/system/{unit}": (0o644, text) for unit, text in units.items()}
    return files | {"/etc/fstab": (0o644, ""), "/etc/machine-id": (0o444, f"{uuid.uuid4().hex}\n")}


def to_lend(lent: Sequence[Path]) -> list[str]:
    """The checkout and the Python of these tests, which may lie where a node sees its own files instead."""
    hidden = ("/tmp/", "/run/", "/root/.cache/", "/root/.config/")
    pythons = [Path(prefix) for prefix in (sys.prefix, sys.base_prefix) if f"{prefix}/".startswith(hidden)]
    return list(dict.fromkeys(str(path.resolve()) for path in (REPOSITORY, *pythons, *lent)))
