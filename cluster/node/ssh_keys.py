"""Which host keys we trust: those in known_hosts, new ones only when asked to, changed ones never.

Shares the door to paramiko with `ssh.py`.
"""

import socket
from typing import Any

import paramiko

from cluster.errors import HostKeyChanged, HostKeyUnknown
from cluster.node import known_hosts
from cluster.node.ssh_config import known_hosts_files

CUT = 12.0  # seconds without a sign from the other side's kernel: with the probes every 5 s, a cut shows within 17


class _NoQuestions(paramiko.Transport):
    """A second factor would be asked for on our terminal; nobody may sit there."""

    def auth_interactive_dumb(self, username: str, handler: Any = None, submethods: str = "") -> list[str]:
        raise paramiko.AuthenticationException(f"the server wants a second factor for {username}")


class StrictKeys(paramiko.MissingHostKeyPolicy):
    """Decides on every host key: paramiko's own list stays empty, so that it always asks here."""

    def __init__(self, node: str, accept_new: bool, accepted: list[str]) -> None:
        self._node = node
        self._accept_new = accept_new
        self._accepted = accepted
        self.fingerprint = ""

    def expect(self, host: str, port: int, options: dict[str, str], through: str) -> None:
        """`through`: what to type before a command so that it runs on the jump host; empty without one."""
        self._place = known_hosts.host_name(host, port)
        self._scan = f"{through}ssh-keyscan {f'-p {port} ' if port != 22 else ''}{host}"
        self._host = options.get("hostkeyalias", host)
        self._port = 22 if "hostkeyalias" in options else port
        self._files, system = known_hosts_files(options)
        self._lines = known_hosts.load((*self._files, *system))

    def transport(self, sock: Any, **options: Any) -> paramiko.Transport:
        if isinstance(sock, socket.socket) and sock.family != socket.AF_UNIX:
            # A cut link then ends a blocked send too, which no thread of ours can interrupt.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(CUT * 1000))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = _NoQuestions(sock, **options)
        wanted = known_hosts.kinds_for(self._lines, known_hosts.host_name(self._host, self._port))
        security = transport.get_security_options()
        first = [kind for kind in security.key_types if _plain(kind) in wanted]
        security.key_types = (*first, *(kind for kind in security.key_types if kind not in first))
        return transport

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        kind, text = key.get_name(), key.get_base64()
        self.fingerprint = known_hosts.fingerprint(text)
        match known_hosts.judge(self._lines, self._host, self._port, kind, text):
            case known_hosts.Known():
                return
            case known_hosts.Changed(lines):
                raise self._changed(kind, lines)
            case known_hosts.Revoked(line):
                raise HostKeyChanged(
                    f"the host key of {self._place} is marked as revoked",
                    where=self._node,
                    evidence=(f"{line.file}:{line.line}", f"{kind} {self.fingerprint}"),
                    fix="whoever shows this key may not be the node: give the node a new host key",
                )
            case known_hosts.Unknown() if self._accept_new and self._files:
                name = known_hosts.host_name(self._host, self._port)
                known_hosts.remember(self._files[0], name, kind, text)
                self._accepted.append(f"added the host key of {name} to {self._files[0]}: {kind} {self.fingerprint}")
            case known_hosts.Unknown():
                raise self._unknown(kind)

    def _unknown(self, kind: str) -> HostKeyUnknown:
        file = self._files[0] if self._files else "~/.ssh/known_hosts"
        return HostKeyUnknown(
            f"the host key of {self._place} is not known",
            where=self._node,
            evidence=(f"{kind} {self.fingerprint}",),
            fix="compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the node; if it is the same, "
            f"`{self._scan} >> {file}`, or add --accept-new-host-key",
        )

    def _changed(self, kind: str, lines: tuple[known_hosts.KnownKey, ...]) -> HostKeyChanged:
        name = known_hosts.host_name(self._host, self._port)
        on_record = [f"{line.file}:{line.line} has {line.kind} {known_hosts.fingerprint(line.key)}" for line in lines]
        files = dict.fromkeys(line.file for line in lines)
        return HostKeyChanged(
            f"the host key of {self._place} is not the one on record",
            where=self._node,
            evidence=(*on_record, f"the host shows {kind} {self.fingerprint}"),
            fix="a reinstalled node or somebody in between: only if you know that it was reinstalled, "
            + " and ".join(f"`ssh-keygen -R '{name}' -f {file}`" for file in files),
        )


def _plain(kind: str) -> str:
    """RSA keys are on record as ssh-rsa and asked for by their signature's name."""
    return "ssh-rsa" if kind.startswith("rsa-sha2-") else kind
