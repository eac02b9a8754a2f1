"""Two real nodes on this machine: `with Lab.up(folder) as lab:` and then `lab.a.run(...)`, `lab.cut_link()`.

                    laptop  10.77.1.9
                       │ lan0 (control network)
            ┌──────────┴──────────┐
     10.77.1.1 lan0        10.77.1.2 lan0
        spark-a                spark-b            each: own root, /tmp, /run, /dev/shm, processes, hostname, sshd
     10.77.0.1 eth9 ═════ 10.77.0.2 eth9          the fabric: a cable that can be pulled, both ends lose the carrier

Every node is a set of anonymous namespaces held by its process 1 (`node_init.py`): when that one ends, its processes,
mounts and links end with it, so a lab leaves nothing but a folder. Both switches live in the laptop's namespace; no
interface is made on the host.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.lab import cgroups
from tests.lab.node import FABRIC, PATH, Node, Running, until
from tests.lab.specification import NUMBERS, SYSTEMD, make_keys, specification, to_lend
from tests.lab.start import connect, finish, inits_of, start_node

if TYPE_CHECKING:
    from collections.abc import Sequence

LABS = Path("/var/tmp")  # a disk, where /tmp may be memory


def missing(*, systemd: bool = False) -> str | None:
    """Why no lab can stand here, or None."""
    if os.geteuid() != 0:
        return "the lab needs root (namespaces, mounts)"
    tools = ("unshare", "nsenter", "setpriv", "ip", "mount", "pivot_root", "ssh-keygen", "sshd", "hostname", "ping")
    absent = [tool for tool in tools if shutil.which(tool, path=PATH) is None]
    if absent:
        return f"the lab needs {', '.join(absent)} (Debian: iproute2 util-linux openssh-server hostname iputils-ping)"
    if systemd and not SYSTEMD.exists():
        return "the lab with systemd needs systemd (Debian: systemd)"
    probe = "ip link add br0 type bridge && ip link add one type veth peer name two"
    tried = subprocess.run(
        ("unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--fork", "sh", "-c", probe),
        capture_output=True,
    )
    if tried.returncode:
        return f"the lab needs namespaces, bridges and veth: {tried.stderr.decode(errors='replace').strip()}"
    return None


@dataclass(slots=True)
class Lab:
    folder: Path
    a: Node
    b: Node
    laptop: Node
    _held: list[Running] = field(default_factory=list, repr=False)

    @classmethod
    def up(
        cls,
        folder: Path | None = None,
        *,
        lent: Sequence[Path] = (),
        small_disk_size: str = "64m",
        systemd: bool = False,
        outlive: bool = False,
    ) -> Lab:
        """Both nodes and the laptop, reachable. `lent` folders of the host are seen, read-only, at their own paths.

        With `systemd`, process 1 of every node becomes a real systemd; without, nodes have none.
        A lab ends with the thread that made it, however that ends; with `outlive` it stays until `sweep(folder)`.
        """
        folder = folder or LABS / f"sparkctl-lab-{os.getpid()}-{next(_numbers)}"
        making = folder.with_name(f".{folder.name}")  # never without an owner under a name that others sweep
        making.mkdir(mode=0o700)
        (making / "owner").write_text(f"{os.getpid()} {_birth(os.getpid())}\n")
        making.rename(folder)
        started: list[Node] = []
        try:
            keys = make_keys(folder)
            for name, number in NUMBERS.items():
                spec = specification(name, keys, to_lend(lent), small_disk_size, systemd=systemd)
                started.append(start_node(folder / name, number, spec, outlive=outlive))
            a, b, laptop = started
            connect(a, b, laptop)
            for node in started:
                finish(node, systemd=systemd)
            # a cable counts as plugged in a moment after it is: what is compared later must not find it changed
            until(lambda: all(map(_is_wired, (a, b))), "the interfaces of both nodes are up")
        except BaseException:
            sweep(folder)
            raise
        return cls(folder, a, b, laptop)

    @property
    def nodes(self) -> tuple[Node, Node]:
        return (self.a, self.b)

    def cut_link(self) -> None:
        """Pull the cable: both fabric interfaces stay up and lose their carrier."""
        self._cable("down")

    def restore_link(self) -> None:
        self._cable("up")
        until(lambda: _reaches(self.a, self.b.fabric_address), "the fabric carries packets again")

    def cut_control(self, node: Node) -> None:
        """The node drops off the control network; its fabric stays."""
        self._laptop_ip("link", "set", f"lan-{node.name[-1]}", "down")

    def restore_control(self, node: Node) -> None:
        self._laptop_ip("link", "set", f"lan-{node.name[-1]}", "up")
        others = [other for other in (self.a, self.b, self.laptop) if other is not node]
        until(
            lambda: all(_reaches(other, node.control_address) for other in others),
            f"{node.name} is back on the control network",
        )

    def fill_disk(self, node: Node) -> None:
        """Leave no byte on the node's small disk (`node.small_disk`, where sparkctl keeps its state)."""
        filler = ("dd", "if=/dev/zero", f"of={node.small_disk}/filler", "bs=64k")
        done = node.run(filler)
        assert "No space left" in done.stderr, done.stderr

    def free_disk(self, node: Node) -> None:
        node.run(("rm", "-f", f"{node.small_disk}/filler"), check=True)

    def occupy_port(self, node: Node, address: str, port: int) -> Running:
        """Someone else listens there, until `.end()` or the end of the lab."""
        program = (
            f"import socket,time; s=socket.create_server(({address!r},{port})); print('on',flush=True); time.sleep(9e5)"
        )
        squatter = node.popen(("python3", "-S", "-c", program), stdout=subprocess.PIPE)
        assert squatter.entry.stdout is not None
        assert squatter.entry.stdout.readline() == "on\n", f"{address}:{port} on {node.name} could not be taken"
        self._held.append(squatter)
        return squatter

    def down(self) -> None:
        for node in (self.a, self.b, self.laptop):
            node.down()
        for running in self._held:
            running.end()
        _remove(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def _cable(self, state: str) -> None:
        for end in ("cable-a", "cable-b"):
            self._laptop_ip("link", "set", end, state)
        wanted = "1" if state == "up" else "0"
        until(lambda: all(_carrier(node) == wanted for node in self.nodes), f"carrier {state} on both nodes")

    def _laptop_ip(self, *arguments: str) -> None:
        self.laptop.run(("ip", *arguments), check=True)


def sweep(folder: Path) -> None:
    """End whatever a lab in this folder still runs, and remove the folder."""
    for init in inits_of(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(init.pid, signal.SIGKILL)
    until(lambda: not any(True for _ in inits_of(folder)), f"the nodes of {folder} end")
    if folder.exists():
        _remove(folder)


def sweep_stale() -> tuple[Path, ...]:
    """Labs whose owner is gone; a pid that was given to another process since is told by its time of birth."""
    stale = tuple(folder for folder in LABS.glob("sparkctl-lab-[0-9]*-*") if not _is_owned(folder))
    for folder in stale:
        sweep(folder)
    return stale


_numbers = itertools.count(1)


def _remove(folder: Path) -> None:
    for listing in folder.glob("*/cgroups"):
        with contextlib.suppress(FileNotFoundError):
            for branch in map(Path, listing.read_text().splitlines()):
                cgroups.remove(branch)
    while folder.exists():
        with contextlib.suppress(FileNotFoundError):  # another run sweeps it too
            shutil.rmtree(folder)


def _is_owned(folder: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        pid, birth = (folder / "owner").read_text().split()
        return _birth(int(pid)) == birth
    return False


def _birth(pid: int) -> str:
    """When the process started, in ticks since boot: with its number, who it is."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _carrier(node: Node) -> str:
    return node.path(f"/sys/class/net/{FABRIC}/carrier").read_text().strip()


def _is_wired(node: Node) -> bool:
    states = [node.path(f"/sys/class/net/{name}/operstate") for name, _ in node.interfaces()]
    return all(state.read_text().strip() == "up" for state in states)


def _reaches(node: Node, address: str) -> bool:
    return node.run(("ping", "-c", "1", "-W", "1", address)).returncode == 0
