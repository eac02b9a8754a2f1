"""One QEMU machine of the VM lab: start it, command it over ssh, pull its cable, cut its power."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.vm import recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.vm.image import Image

MEMORY = "2560M"
DATA_DISK = "16G"
HARDWARE = ("-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1")
BOOT_LIMIT = 600.0  # two emulated machines on two busy cores
# No second of a test is worth a hang: the emulated side of a connection may be gone without a word.
PATIENT = ("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=8", "-o", "ControlMaster=auto",
           "-o", "ControlPersist=120")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of a pair. Everything it has on this host lies in `folder`, under its letter."""

    letter: str
    folder: Path
    port: int
    lent: Path

    @property
    def name(self) -> str:
        return f"vm-{self.letter}"

    @property
    def fabric_address(self) -> str:
        return f"10.77.0.{recipe.NODES[self.letter]}"

    @property
    def control_address(self) -> str:
        return f"10.77.1.{recipe.NODES[self.letter]}"

    def file(self, kind: str) -> Path:
        return self.folder / f"{self.letter}.{kind}"

    def make_disks(self, system: Path) -> None:
        """A layer over `system`, which no machine writes to, and an empty disk for data."""
        base = ("-b", str(system), "-F", "raw" if system.suffix == ".raw" else "qcow2")
        subprocess.run(("qemu-img", "create", "-q", "-f", "qcow2", *base, str(self.file("qcow2"))), check=True)
        subprocess.run(("qemu-img", "create", "-q", "-f", "qcow2", str(self.file("data")), DATA_DISK), check=True)

    def power_on(self, image: Image, memory: Path | None = None) -> None:
        """Start the machine, and return while it boots; or while it wakes, with the memory that it was frozen with."""
        self.file("qmp").unlink(missing_ok=True)
        incoming = ("-incoming", f"exec:zstd -dcq {shlex.quote(str(memory))}") if memory else ()
        argv = (*self._argv(image), *incoming)
        done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise SystemExit(f"vm-lab: {self.name} does not start: {done.stderr.strip()}")
        if memory:
            until(lambda: self.qmp("query-status")["status"] == "paused", f"{self.name} has its memory", 120)
            self.qmp("cont")

    def freeze(self, memory: Path) -> None:
        """Keep what is in its memory and switch it off; its disk is then as that memory believes."""
        self.run("sync")
        self._forget_connection()
        self.qmp("stop")
        self.qmp("migrate", uri=f"exec:zstd -1 -T1 -qf -o {shlex.quote(str(memory))}")
        until(lambda: self.qmp("query-migrate").get("status") in ("completed", "failed"), "its memory is kept", 300)
        status = self.qmp("query-migrate")
        if status["status"] != "completed":
            raise SystemExit(f"vm-lab: {self.name} cannot be frozen: {status}")
        self.power_off()

    def wake(self) -> None:
        """Its clock stood still while it was frozen."""
        self.wait()
        self.run(f"date -u -s @{time.time():.0f} >/dev/null")

    def power_off(self) -> None:
        """As if the plug were pulled: no shutdown, nothing is written that was not."""
        with contextlib.suppress(OSError):
            self.qmp("quit")
        if (pid := self.pid()) is not None:
            until(lambda: self.pid() != pid, f"{self.name} is off", 20)
        self._forget_connection()

    def kill(self) -> None:
        if (pid := self.pid()) is not None:
            os.kill(pid, signal.SIGKILL)
            until(lambda: self.pid() != pid, f"{self.name} is gone", 20)

    def pid(self) -> int | None:
        """Of its QEMU, while that runs."""
        with contextlib.suppress(OSError, ValueError):
            pid = int(self.file("pid").read_text())
            if str(self.file("qmp")).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return None

    def wait(self, seconds: float = BOOT_LIMIT) -> None:
        """Until a command runs on it; what its console said last is shown when none does."""
        end = time.monotonic() + seconds
        while not self._answers():
            if self.pid() is None or time.monotonic() > end:
                last = self.file("console").read_text(errors="replace").splitlines()[-12:]
                raise AssertionError(f"{self.name} does not answer ssh\n" + "\n".join(last))
            time.sleep(1)

    def reboot(self) -> None:
        """An orderly one, from inside, until a command runs again."""
        before = self.run("cat /proc/sys/kernel/random/boot_id").stdout
        self.run("systemctl reboot", check=False)
        self._forget_connection()
        until(lambda: self._answers() and self.run("cat /proc/sys/kernel/random/boot_id").stdout != before,
              f"{self.name} has booted again", BOOT_LIMIT, pause=1)  # fmt: skip

    def run(
        self,
        command: str | Sequence[str],
        *,
        check: bool = True,
        timeout: float = 120,
        input: str | None = None,  # noqa: A002
    ) -> subprocess.CompletedProcess[str]:
        """As root, over the host's own connection: a line for the shell, or the words of a command."""
        line = command if isinstance(command, str) else shlex.join(command)
        done = subprocess.run(
            self.ssh(line), input=input or "", capture_output=True, text=True, errors="replace", timeout=timeout
        )
        if check and done.returncode:
            raise AssertionError(f"{self.name}: {line} exited {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def ssh(self, *words: str) -> list[str]:
        control = ("-o", f"ControlPath={self.file('ssh')}")
        return ["ssh", "-F", str(self.folder / "home/.ssh/config"), *PATIENT, *control, self.name, *words]

    def set_link(self, port: str, *, up: bool) -> None:
        self.qmp("set_link", name=port, up=up)

    def qmp(self, command: str, **arguments: Any) -> Any:
        """One command of QEMU's own protocol, and its answer."""
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(20)
            door.connect(str(self.file("qmp")))
            lines = door.makefile("rw")
            lines.readline()  # its greeting
            answer: dict[str, Any] = {}
            for order in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                lines.write(json.dumps(order) + "\n")
                lines.flush()
                while "return" not in (answer := json.loads(lines.readline() or '{"return": null}')):
                    assert "error" not in answer, f"{self.name}: {command}: {answer['error']}"
            return answer["return"]

    def _answers(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.run("true", check=False, timeout=30).returncode == 0
        return False

    def _forget_connection(self) -> None:
        """A shared connection to a machine that has gone would keep the next command waiting."""
        subprocess.run([*self.ssh()[:-1], "-O", "exit", self.name], capture_output=True)
        self.file("ssh").unlink(missing_ok=True)

    def _argv(self, image: Image) -> list[str]:
        number = recipe.NODES[self.letter]
        words = (
            "root=/dev/vda rw console=ttyS0 quiet mitigations=off apparmor=0 audit=0 panic=5 systemd.show_status=0"
            f" vm_lab.node={self.letter} systemd.hostname={self.name} systemd.machine_id={number:032x}"
        )
        argv = [
            "qemu-system-x86_64", "-name", self.name, *HARDWARE,
            "-m", MEMORY, "-nodefaults", "-no-user-config", "-display", "none", "-daemonize",
            "-pidfile", str(self.file("pid")), "-serial", f"file:{self.file('console')}",
            "-qmp", f"unix:{self.file('qmp')},server=on,wait=off", "-object", "rng-random,id=rng,filename=/dev/urandom",
            "-device", "virtio-rng-pci,rng=rng",
            "-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", words,
            "-drive", f"if=virtio,format=qcow2,cache=unsafe,discard=unmap,file={self.file('qcow2')}",
            "-drive", f"if=virtio,format=qcow2,cache=unsafe,discard=unmap,file={self.file('data')}",
        ]  # fmt: skip
        for tag, place in (("checkout", recipe.REPOSITORY), ("lent", self.lent)):
            argv += ["-virtfs", f"local,path={place},mount_tag={tag},security_model=none,readonly=on,multidevs=remap"]
        for port, (name, wire) in enumerate(self._wires().items(), start=1):
            argv += ["-netdev", f"{wire},id={name}"]
            argv += ["-device", f"virtio-net-pci,netdev={name},id={name}-port,mac={recipe.mac(self.letter, port)}"]
        return argv

    def _wires(self) -> dict[str, str]:
        """Datagrams between two sockets: either end may go and come back, as with a cable."""
        other = next(letter for letter in recipe.NODES if letter != self.letter)

        def cable(name: str) -> str:
            ends = {"local": self.letter, "remote": other}
            sockets = (f"{end}.type=unix,{end}.path={self.folder}/{letter}.{name}" for end, letter in ends.items())
            return f"dgram,{','.join(sockets)}"

        user = f"user,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-10.0.2.15:22"
        return {"user": user, "control": cable("control"), "fabric": cable("fabric")}


def until(holds: Callable[[], bool], what: str, seconds: float, pause: float = 0.2) -> None:
    """Wait for something that comes on its own time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not so after {seconds:.0f} s: {what}"
        time.sleep(pause)
