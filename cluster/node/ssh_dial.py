"""A way to a Unix socket on a node, through one channel of the connection over SSH."""

import secrets
from base64 import b64encode
from importlib.resources import files
from typing import Any

from cluster.errors import Unreachable

# The system's own Python first: shims and environments in the PATH of a login shell are slow and change under us.
# One word between single quotes is the same to sh, bash, zsh, fish and csh.
PYTHON = "p=/usr/bin/python3; test -x $p || p=python3"


class Closed(Unreachable):
    """Before the node said whether the socket answers: the connection may have broken."""


class Dialled:
    """A pipe to a Unix socket on the node. What a login shell prints before our marker is dropped."""

    def __init__(self, channel: Any, path: str) -> None:
        marker = f"sparkctl:{secrets.token_hex(8)}"
        self._channel = channel
        self._channel.exec_command(dial_command(path, marker))
        heard = b""
        while marker.encode() not in heard or not heard.endswith(b"\n"):
            byte = self._channel.recv(1)
            if not byte:
                raise Closed("the node closed the way to a socket", evidence=[heard.decode("utf-8", "replace")])
            heard += byte
        if not heard.endswith(f"{marker} ok\n".encode()):
            raise Unreachable(f"cannot connect to {path}", evidence=[heard.decode("utf-8", "replace").strip()])

    def send(self, data: bytes) -> None:
        self._channel.sendall(data)

    def receive(self) -> bytes:
        return bytes(self._channel.recv(1 << 16))

    def end_sending(self) -> None:
        self._channel.shutdown_write()

    def close(self) -> None:
        self._channel.close()


def dial_command(path: str, marker: str) -> str:
    """One line that every login shell reads alike; the program is an argument, for its standard input is taken."""
    program = b64encode(files("cluster.agent").joinpath("dial.py").read_bytes()).decode()
    run = f'{PYTHON}; exec $p -IS -c "import sys,base64;exec(base64.b64decode(sys.argv[3]))"'
    return f"exec sh -c '{run} {b64encode(path.encode()).decode()} {marker} {program}'"
