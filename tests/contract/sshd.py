"""A real OpenSSH server on a free loopback port, with keys, files and configuration of its own."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def need_sshd() -> str:
    if SSHD is None:
        pytest.skip("sshd is missing: install openssh-server")
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is missing: install openssh-client")
    return SSHD


def new_key(file: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(file)], check=True)
    return file


@dataclass
class Sshd:
    """`with Sshd(tmp_path) as server`. `ssh_config` reaches it as host `node`, with its key on record."""

    folder: Path
    options: tuple[str, ...] = ()
    forced: str = ""
    authorize: bool = True
    port: int = 0
    inside: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    _process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def __enter__(self) -> "Sshd":
        program = need_sshd()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        new_key(self.folder / "host_key")
        new_key(self.folder / "id")
        public = (self.folder / "id.pub").read_text()
        forced = f'command="{self.forced}" ' if self.forced else ""
        self.authorized.write_text(forced + public if self.authorize else "")
        self.authorized.chmod(0o600)
        self.known_hosts.write_text(self.known_line())
        self._write_server_config()
        self.write_ssh_config()
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # its privilege separation wants this folder
        log = (self.folder / "sshd.log").open("wb")
        self._process = subprocess.Popen(
            [*self.inside, program, "-D", "-e", "-f", str(self.folder / "sshd_config")],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self._wait_until_it_listens()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            for pid in self.session_pids():
                _kill(pid)
            self._process.terminate()
            self._process.wait(10)

    @property
    def authorized(self) -> Path:
        return self.folder / "authorized_keys"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        return self.folder / "ssh_config"

    def known_line(self) -> str:
        kind, key = (self.folder / "host_key.pub").read_text().split()[:2]
        return f"[{self.address}]:{self.port} {kind} {key}\n"

    def write_ssh_config(self, *more: str) -> None:
        lines = (
            "Host node",
            f"  HostName {self.address}",
            f"  Port {self.port}",
            f"  User {getpass.getuser()}",
            f"  IdentityFile {self.folder / 'id'}",
            "  IdentitiesOnly yes",
            f"  UserKnownHostsFile {self.known_hosts}",
            "  GlobalKnownHostsFile none",
            *(f"  {line}" for line in more),
        )
        self.ssh_config.write_text("\n".join(lines) + "\n")

    def session_pids(self) -> list[int]:
        """The processes that serve one connection each."""
        assert self._process is not None
        return _children(self._process.pid)

    def kill_sessions(self) -> None:
        for pid in self.session_pids():
            for child in _children(pid):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                    if b"sshd" in Path(f"/proc/{child}/cmdline").read_bytes():
                        _kill(child)
            _kill(pid)

    def _write_server_config(self) -> None:
        lines = (
            f"ListenAddress {self.address}",
            f"Port {self.port}",
            f"HostKey {self.folder / 'host_key'}",
            f"AuthorizedKeysFile {self.authorized}",
            f"PidFile {self.folder / 'sshd.pid'}",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UsePAM no",
            "StrictModes no",
            "PermitRootLogin yes",
            "AllowTcpForwarding yes",
            "MaxStartups 100",
            *self.options,
        )
        (self.folder / "sshd_config").write_text("\n".join(lines) + "\n")

    def _answers(self) -> bool:
        if self.inside:  # a network of its own, where only the log can be asked
            return "Server listening" in (self.folder / "sshd.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex((self.address, self.port)) == 0

    def _wait_until_it_listens(self) -> None:
        assert self._process is not None
        until = time.monotonic() + 10
        while time.monotonic() < until and self._process.poll() is None:
            if self._answers():
                return
            time.sleep(0.02)
        raise RuntimeError(f"sshd did not start: {(self.folder / 'sshd.log').read_text()}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
