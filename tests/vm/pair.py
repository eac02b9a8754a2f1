"""Two machines and the cables between them: `with Pair.up("name") as pair:` and then `pair.a.run(...)`, `pair.cut()`.

A pair lives in a folder of the cache and outlives the process that made it unless that says otherwise. Each `up` starts
from the clean image: what a pair wrote is gone with it. At most two pairs run on a machine at a time; a third waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.vm import frozen, host, image
from tests.vm.machine import Machine, until

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 2  # four emulated processors and ten GiB


@dataclass(frozen=True, slots=True)
class Pair:
    name: str
    folder: Path
    a: Machine
    b: Machine
    made_of: image.Image

    @classmethod
    def up(cls, name: str, lent: Path | None = None, *, owned: bool = False, patience: float = 1800) -> Pair:
        """Both machines, booted. An `owned` pair may be swept when this process has ended."""
        if not re.fullmatch(r"[a-z0-9-]{1,24}", name):
            raise SystemExit(f"vm-lab: {name!r} is no name for a pair: up to 24 of a-z 0-9 -")
        made_of = frozen.machines(image.built())
        end = time.monotonic() + patience
        while not (pair := cls._place(name, lent, made_of, owned=owned)):
            if time.monotonic() > end:
                raise SystemExit(f"vm-lab: {MOST} pairs run already: {' '.join(running())}; end one with down NAME")
            print(f"vm-lab: waiting for one of {' '.join(running())} to end", file=sys.stderr, flush=True)
            time.sleep(20)
        try:
            for machine in pair.machines:
                machine.wake()
        except BaseException:
            pair.down()
            raise
        return pair

    @classmethod
    def of(cls, name: str) -> Pair:
        """One that is up already."""
        folder = _home() / name
        if not (folder / "ports").exists():
            raise SystemExit(f"vm-lab: no pair {name} is up; up are: {' '.join(running()) or 'none'}")
        ports = [int(word) for word in (folder / "ports").read_text().split()]
        a, b = (Machine(letter, folder, port, folder / "lent") for letter, port in zip("ab", ports, strict=True))
        return cls(name, folder, a, b, image.Image(Path((folder / "image").read_text())))

    @classmethod
    def _place(cls, name: str, lent: Path | None, made_of: image.Image, *, owned: bool) -> Pair | None:
        """Take one of the places, start both machines; None while none is free."""
        with _only_one():
            sweep()
            if name in running():
                raise SystemExit(f"vm-lab: {name} is up already; down {name} ends it")
            if len(running()) >= MOST:
                return None
            folder = _home() / name
            shutil.rmtree(folder, ignore_errors=True)
            (folder / "home/.ssh").mkdir(parents=True)
            (folder / "home/.ssh").chmod(0o700)
            if lent is None:
                (folder / "lent").mkdir()
            else:
                (folder / "lent").symlink_to(lent.resolve())
            (folder / "owner").write_text(f"{os.getpid()} {_birth(os.getpid())}" if owned else "")
            (folder / "image").write_text(str(made_of.folder))
            (folder / "ports").write_text(" ".join(map(str, host.free_ports(2, folder.parent))))
            pair = cls.of(name)
            try:
                host.write_ssh(pair.home / ".ssh", pair.machines)
                for machine in pair.machines:
                    machine.make_disks(frozen.disk(made_of, machine.letter))
                    machine.power_on(made_of, frozen.memory(made_of, machine.letter))
            except BaseException:
                pair.down()
                raise
            return pair

    @property
    def machines(self) -> tuple[Machine, Machine]:
        return (self.a, self.b)

    @property
    def home(self) -> Path:
        """A home folder for commands on this host: its `.ssh/config` knows vm-a and vm-b."""
        return self.folder / "home"

    def cut(self, cable: str = "fabric") -> None:
        """Pull the cable: both interfaces stay up and lose their carrier."""
        for machine in self._on():
            machine.set_link(cable, up=False)

    def mend(self, cable: str = "fabric") -> None:
        for machine in self._on():
            machine.set_link(cable, up=True)
        address = self.b.fabric_address if cable == "fabric" else self.b.control_address
        if len(self._on()) == len(self.machines):
            probe = f"ping -c 1 -W 2 {address}"
            until(lambda: self.a.run(probe, check=False).returncode == 0, f"the {cable} carries packets again", 60)

    def power_on(self, machine: Machine) -> None:
        machine.power_on(self.made_of)
        machine.wait()

    def down(self) -> None:
        for machine in self.machines:
            with contextlib.suppress(AssertionError):
                machine.power_off()
            machine.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def _on(self) -> list[Machine]:
        return [machine for machine in self.machines if machine.pid() is not None]


def running() -> list[str]:
    """Names of the pairs that are up; one with both plugs pulled still is."""
    return sorted(file.parent.name for file in _home().glob("*/ports"))


def sweep() -> None:
    """End pairs whose maker has ended without ending them."""
    for folder in _home().glob("*"):
        if not (folder / "ports").exists():
            shutil.rmtree(folder, ignore_errors=True)
        elif not _is_owned(folder):
            Pair.of(folder.name).down()


def _is_owned(folder: Path) -> bool:
    words = (folder / "owner").read_text().split()
    if not words:
        return True
    with contextlib.suppress(OSError):
        return _birth(int(words[0])) == words[1]
    return False


def _birth(pid: int) -> str:
    """When the process started, in ticks since boot: with its number, who it is."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _home() -> Path:
    home = image.cache() / "run"
    home.mkdir(parents=True, exist_ok=True)
    return home


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    with (image.cache() / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
