"""What a pair of machines has on this host: ports on loopback, and a folder with which ssh finds them."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

from tests.vm import image

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.vm.machine import Machine

PORTS = range(20000, 32000)  # below those that the kernel hands out: a pair's port stays its own while a machine is off


def write_ssh(folder: Path, machines: Sequence[Machine]) -> None:
    """Keys, the machines' host keys, and a config that knows vm-a and vm-b and no unknown host."""
    keys, config, known = image.keys(), [], []
    for machine in machines:
        config += [f"Host {machine.name}", "    HostName 127.0.0.1", f"    Port {machine.port}"]
        known.append(f"[127.0.0.1]:{machine.port} {keys[machine.letter][1]}")
    config += [
        "Host vm-a vm-b",
        "    User root",
        f"    IdentityFile {folder}/id_ed25519",
        "    IdentitiesOnly yes",
        "    StrictHostKeyChecking yes",
        f"    UserKnownHostsFile {folder}/known_hosts",
        "    ConnectTimeout 60",  # a login takes a second, and half a minute while the host is busy
    ]
    secret, public = keys["person"]
    texts = {"id_ed25519": secret, "id_ed25519.pub": public, "known_hosts": "".join(known)}
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in (texts | {"config": "\n".join(config) + "\n"}).items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)


def free_ports(count: int, pairs: Path) -> list[int]:
    """Ports that nobody listens on and no other pair has."""
    taken = {int(word) for file in pairs.glob("*/ports") for word in file.read_text().split()}
    found: list[int] = []
    for port in PORTS[os.getpid() % 8000 :]:
        if len(found) == count:
            break
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            if port not in taken:
                found.append(port)
    return found
