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
    LoginRefused,
    NodeError,
    SettingsError,
    SparkctlError,
    Unreachable,
)
from cluster.node import known_hosts
from cluster.node.base import Identity
from cluster.node.control import Target, parse_control
from cluster.node.ssh_config import connect_timeout, ssh_config_text
from cluster.node.ssh_keys import StrictKeys

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it prints tracebacks for what becomes an error of ours

CONNECT = 15.0  # seconds for all hops without a ConnectTimeout together, name lookup and login included


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
        """Raises the NodeError that fits, within the time that ssh_config gives, or CONNECT."""
        hops = self._hops(self._target)
        limit = _limit([hop.timeout for hop in hops])
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
            opened = result.get(timeout=limit)
        except Empty:
            too_late.set()
            what = f"no connection to {last} within {limit:g} s"
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
        return _Hop(target, config, through, StrictKeys(self._node, self._accept_new, self.accepted))


def _limit(timeouts: list[float | None]) -> float:
    """For all hops: what ssh_config gives each of them, and CONNECT once for those to which it gives nothing."""
    return sum(each for each in timeouts if each) + (CONNECT if None in timeouts else 0.0)


class _Hop:
    """One connection of the chain, not open yet."""

    def __init__(self, target: Target, config: paramiko.SSHConfig, through: "_Hop | None", keys: StrictKeys) -> None:
        options: dict[str, Any] = dict(config.lookup(target.host))
        self.timeout = connect_timeout(options)
        limit = self.timeout or CONNECT
        # lazy: else ~/.fabric.yml and /etc/fabric.yml would change what we do.
        settings = fabric.Config(lazy=True, ssh_config=config)
        self.connection: Any = fabric.Connection(
            target.host,
            user=target.user,
            port=target.port,
            config=settings,
            gateway=through.connection if through else False,
            forward_agent=False,
            connect_timeout=limit,
            connect_kwargs={
                "banner_timeout": limit,
                "auth_timeout": limit,
                "channel_timeout": limit,
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
        keys.expect(self.host, self.port, options, f"{through.by_hand} " if through else "")
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
