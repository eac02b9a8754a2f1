"""The way to a machine over SSH: the hops of ssh_config, strict host keys, a login that never asks a question.

Shares the door to fabric and paramiko with `ssh.py`. Their errors while connecting become ours here.
"""

import contextlib
import logging
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

import fabric
import paramiko

from cluster.errors import (
    HostKeyChanged,
    HostKeyUnknown,
    LoginRefused,
    NodeError,
    SettingsError,
    SparkctlError,
    Unreachable,
)
from cluster.node import known_hosts
from cluster.node.base import Identity
from cluster.node.control import Target, parse_control
from cluster.node.ssh_config import known_hosts_files, ssh_config_text

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it prints tracebacks for what becomes an error of ours

CONNECT = 15.0  # seconds for all hops together, name lookup and login included
CUT = 12.0  # seconds without a sign from the other side's kernel: with the probes every 5 s, a cut shows within 17


@dataclass(frozen=True, slots=True)
class Connected:
    """Open fabric connections, jump hosts first, the node's own last."""

    hops: "tuple[_Hop, ...]"
    identity: Identity

    @property
    def transport(self) -> Any:
        return self.hops[-1].connection.transport

    def close(self) -> None:
        for hop in reversed(self.hops):
            hop.close()


class Route:
    """How to get there: the hops of ssh_config and, for each, whose key we trust and who we say we are."""

    def __init__(self, node: str, target: Target, ssh_config: Path | None, accept_new: bool) -> None:
        self._node = node
        self._target = target
        self._ssh_config = ssh_config
        self._accept_new = accept_new
        self.accepted: list[str] = []

    def open(self) -> Connected:
        """Raises the NodeError that fits, within CONNECT seconds."""
        hops = self._hops(self._target)
        last = hops[-1]
        result: SimpleQueue[Connected | BaseException] = SimpleQueue()
        too_late = Event()

        def connect() -> None:
            try:
                key = [_open(hop, self._node) for hop in hops][-1]
                identity = Identity(last.host, last.port, last.user, key)
                connected = Connected(tuple(hops), identity)
            except BaseException as error:  # a thread's root: the caller raises it
                for hop in reversed(hops):
                    hop.close()
                result.put(error)
            else:
                result.put(connected)
                if too_late.is_set():
                    connected.close()

        Thread(target=connect, name=f"connect {self._node}", daemon=True).start()
        try:
            opened = result.get(timeout=CONNECT)
        except Empty:
            too_late.set()
            what = f"no connection to {last} within {CONNECT:.0f} s"
            raise Unreachable(what, where=self._node, fix=f"try `{last.by_hand} true`") from None
        if isinstance(opened, Connected):
            return opened
        raise opened

    def _hops(self, target: Target) -> "list[_Hop]":
        """The jump hosts, outermost first, and the target."""
        try:
            config = paramiko.SSHConfig.from_text(ssh_config_text(self._ssh_config))
            return self._chain(target, config)
        except FileNotFoundError as error:
            raise SettingsError(f"there is no {error.filename}", where="ssh_config") from error
        except (paramiko.ssh_exception.ConfigParseError, paramiko.ssh_exception.CouldNotCanonicalize) as error:
            raise SettingsError(
                f"ssh_config cannot be read: {error}", where=str(self._ssh_config or "ssh_config")
            ) from error

    def _chain(self, target: Target, config: paramiko.SSHConfig, seen: tuple[str, ...] = ()) -> "list[_Hop]":
        if target.host in seen:
            raise SettingsError(f"{target.host} is its own ProxyJump", where="ssh_config")
        options = config.lookup(target.host)
        jumps = [
            jump.strip() for jump in options.get("proxyjump", "").split(",") if jump.strip().lower() not in ("", "none")
        ]
        before: list[_Hop] = []
        for index, jump in enumerate(jumps):
            step = parse_control(jump.removeprefix("ssh://"))
            if not isinstance(step, Target):
                step = Target(jump)
            # Only the first jump host's own ProxyJump counts; the others are reached through the one before.
            before += (
                self._chain(step, config, (*seen, target.host)) if index == 0 else [self._hop(step, config, before[-1])]
            )
        return [*before, self._hop(target, config, before[-1] if before else None)]

    def _hop(self, target: Target, config: paramiko.SSHConfig, through: "_Hop | None") -> "_Hop":
        return _Hop(target, config, through, _StrictKeys(self._node, self._accept_new, self.accepted))


class _Hop:
    """One connection of the chain, not open yet."""

    def __init__(self, target: Target, config: paramiko.SSHConfig, through: "_Hop | None", keys: "_StrictKeys") -> None:
        options: dict[str, Any] = dict(config.lookup(target.host))
        # lazy: else ~/.fabric.yml and /etc/fabric.yml would change what we do.
        settings = fabric.Config(lazy=True, ssh_config=config)
        self.connection: Any = fabric.Connection(
            target.host,
            user=target.user,
            port=target.port,
            config=settings,
            gateway=through.connection if through else False,
            forward_agent=False,
            connect_timeout=CONNECT,
            connect_kwargs={
                "banner_timeout": CONNECT,
                "auth_timeout": CONNECT,
                "channel_timeout": CONNECT,
                "look_for_keys": options.get("identitiesonly", "no") != "yes",
                "transport_factory": keys.transport,
            },
        )
        self.through = through
        self.proxy = _Proxy(options["proxycommand"]) if options.get("proxycommand") and not through else None
        self.host, self.port, self.user = self.connection.host, int(self.connection.port), self.connection.user
        # ssh skips an IdentityFile that is not there, paramiko fails on it.
        files = [Path(name).expanduser() for name in self.connection.connect_kwargs.get("key_filename", [])]
        self.key_files = [str(file) for file in files if file.is_file()]
        self.connection.connect_kwargs["key_filename"] = self.key_files
        keys.expect(self, options)
        self.connection.client.set_missing_host_key_policy(keys)
        self.keys = keys

    def __str__(self) -> str:
        return known_hosts.host_name(self.host, self.port)

    def open(self) -> None:
        if self.proxy is not None:
            self.connection.connect_kwargs["sock"] = self.proxy.start()
        self.connection.open()

    def close(self) -> None:
        self.connection.client.close()
        if self.proxy is not None:
            self.proxy.close()

    @property
    def by_hand(self) -> str:
        """The same with ssh, to type."""
        jump = f"-J {self.through.user}@{self.through.host}:{self.through.port} " if self.through else ""
        port = f"-p {self.port} " if self.port != 22 else ""
        return f"ssh {jump}{port}{self.user}@{self.host}"


class _Proxy:
    """A ProxyCommand on one end of a socket pair, run by a shell as ssh does.

    paramiko's own spins on a command that ended, and never sees that it did.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> socket.socket:
        ours, its = socket.socketpair()
        with its:
            command = ("sh", "-c", f"exec {self._command}")
            self._process = subprocess.Popen(
                command, stdin=its.fileno(), stdout=its.fileno(), stderr=subprocess.DEVNULL, start_new_session=True
            )
        return ours

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            self._process.kill()
            self._process.wait()


class _NoQuestions(paramiko.Transport):
    """A second factor would be asked for on our terminal; nobody may sit there."""

    def auth_interactive_dumb(self, username: str, handler: Any = None, submethods: str = "") -> list[str]:
        raise paramiko.AuthenticationException(f"the server wants a second factor for {username}")


class _StrictKeys(paramiko.MissingHostKeyPolicy):
    """Decides on every host key: paramiko's own list stays empty, so that it always asks here."""

    def __init__(self, node: str, accept_new: bool, accepted: list[str]) -> None:
        self._node = node
        self._accept_new = accept_new
        self._accepted = accepted
        self.fingerprint = ""

    def expect(self, hop: _Hop, options: dict[str, str]) -> None:
        self._hop = hop
        self._host = options.get("hostkeyalias", hop.host)
        self._port = 22 if "hostkeyalias" in options else hop.port
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
                    f"the host key of {self._hop} is marked as revoked",
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
        through = f"{self._hop.through.by_hand} " if self._hop.through else ""
        port = f"-p {self._hop.port} " if self._hop.port != 22 else ""
        file = self._files[0] if self._files else "~/.ssh/known_hosts"
        return HostKeyUnknown(
            f"the host key of {self._hop} is not known",
            where=self._node,
            evidence=(f"{kind} {self.fingerprint}",),
            fix="compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the node; if it is the same, "
            f"`{through}ssh-keyscan {port}{self._hop.host} >> {file}`, or add --accept-new-host-key",
        )

    def _changed(self, kind: str, lines: tuple[known_hosts.KnownKey, ...]) -> HostKeyChanged:
        name = known_hosts.host_name(self._host, self._port)
        on_record = [f"{line.file}:{line.line} has {line.kind} {known_hosts.fingerprint(line.key)}" for line in lines]
        files = dict.fromkeys(line.file for line in lines)
        return HostKeyChanged(
            f"the host key of {self._hop} is not the one on record",
            where=self._node,
            evidence=(*on_record, f"the host shows {kind} {self.fingerprint}"),
            fix="a reinstalled node or somebody in between: only if you know that it was reinstalled, "
            + " and ".join(f"`ssh-keygen -R '{name}' -f {file}`" for file in files),
        )


def _plain(kind: str) -> str:
    """RSA keys are on record as ssh-rsa and asked for by their signature's name."""
    return "ssh-rsa" if kind.startswith("rsa-sha2-") else kind


def _open(hop: _Hop, node: str) -> str:
    """Open one hop and return the fingerprint of its key."""
    try:
        hop.open()
    except SparkctlError:
        raise
    except paramiko.AuthenticationException as error:
        raise _login_refused(hop, node, error) from error
    except paramiko.ChannelException as error:
        raise Unreachable(f"{hop.through} could not reach {hop}", where=node, evidence=(str(error),)) from error
    except (OSError, EOFError, paramiko.SSHException) as error:
        if "No authentication methods" in str(error):
            raise _login_refused(hop, node, error) from error
        raise _unreachable(hop, node, error) from error
    return hop.keys.fingerprint


def _login_refused(hop: _Hop, node: str, error: Exception) -> LoginRefused:
    """sparkctl never asks for a password or a passphrase, so say what was tried and how to make it work."""
    tried = list(hop.key_files)
    if hop.connection.connect_kwargs["look_for_keys"]:
        tried += [str(file) for file in sorted(Path("~/.ssh").expanduser().glob("id_*")) if not file.suffix]
    agent = "an agent" if os.environ.get("SSH_AUTH_SOCK") else "no agent"
    locked = [file for file in tried if _has_passphrase(file)]
    if locked and not os.environ.get("SSH_AUTH_SOCK"):
        fix = f"{locked[0]} has a passphrase and no agent runs: `eval $(ssh-agent); ssh-add {locked[0]}`"
    elif locked:
        fix = f"{locked[0]} has a passphrase: `ssh-add {locked[0]}`"
    else:
        fix = (
            f"`ssh-copy-id -p {hop.port} {hop.user}@{hop.host}`, then `{hop.by_hand} true` must work without a question"
        )
    return LoginRefused(
        f"{hop} does not let {hop.user} in",
        where=node,
        evidence=(str(error).rstrip("."), f"tried {agent} and {', '.join(dict.fromkeys(tried)) or 'no key file'}"),
        fix=fix,
    )


def _has_passphrase(file: str) -> bool:
    try:
        paramiko.PKey.from_path(file)
    except (paramiko.PasswordRequiredException, TypeError):
        return True
    except (paramiko.SSHException, OSError, ValueError):
        return False
    return False


def _unreachable(hop: _Hop, node: str, error: Exception) -> NodeError:
    text = str(error) or type(error).__name__
    match error:
        case socket.gaierror():
            what, fix = f"the name {hop.host} does not resolve", f"`getent hosts {hop.host}`; is the node's name right?"
        case paramiko.ssh_exception.NoValidConnectionsError(errors=errors):
            text = "; ".join(str(each) for each in errors.values())
            what, fix = f"nothing answers on {hop}", "does the node run, and sshd on it, at this port?"
        case TimeoutError():
            what, fix = f"no answer from {hop}", "does the node run, and does a firewall drop packets?"
        case OSError():
            what, fix = f"no way to {hop}", f"`ip route get {hop.host}`"
        case EOFError():
            what, fix = f"{hop} closed the connection at once", f"`{hop.by_hand} -v true` shows more"
        case _ if "banner" in text or "protocol version" in text:
            what, fix = f"{hop} does not answer as an SSH server", "is this the right port?"
        case _:
            what, fix = f"no SSH connection to {hop}", f"`{hop.by_hand} -v true` shows more"
    return Unreachable(what, where=node, evidence=(text,), fix=fix)
