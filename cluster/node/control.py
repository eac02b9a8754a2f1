"""How a person names the way to a node: `local`, `[user@]host[:port]`, or a host of ssh_config."""

import re
from dataclasses import dataclass

from cluster.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Local:
    pass


@dataclass(frozen=True, slots=True)
class Target:
    """`None`: what ssh_config or ssh's own default says."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        return (f"{self.user}@" if self.user else "") + host + (f":{self.port}" if self.port else "")


_SHAPE = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:@\[\]]+))(?::(?P<port>\d+))?"
)
_BARE_SIX = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<six>[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%\w+)?)")


def parse_control(text: str) -> Local | Target:
    """Raises SettingsError that shows the accepted shapes."""
    if text == "local":
        return Local()
    found = _BARE_SIX.fullmatch(text) or _SHAPE.fullmatch(text)
    if found:
        parts = found.groupdict()
        port = int(parts["port"]) if parts.get("port") else None
        host = parts.get("six") or parts.get("host") or ""
        if not host.startswith("-") and (port is None or 0 < port < 65536):
            return Target(host, parts["user"], port)
    raise SettingsError(
        f"{text!r} is no way to reach a node",
        fix="write `local`, `host`, `user@host`, `user@host:port`, `[IPv6]:port` or a Host of ~/.ssh/config",
    )
