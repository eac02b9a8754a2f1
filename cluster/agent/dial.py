"""Carry bytes between our standard streams and a Unix socket on this node. Runs on a node, from the command line.

Arguments: the socket's path in base64, a marker. First comes a line of our own, `MARKER ok`, or `MARKER errno 13` and
the end, so that what a login shell prints before us is told apart from the other side's first bytes.
"""

import base64
import contextlib
import os
import select
import socket
import sys


def main() -> None:
    path, marker = base64.b64decode(sys.argv[1]).decode(), sys.argv[2]
    out = sys.stdout.fileno()
    other = socket.socket(socket.AF_UNIX)
    try:
        other.connect(path)
    except OSError as error:
        os.write(out, b"%s errno %d\n" % (marker.encode(), error.errno or 0))
        return
    os.write(out, b"%s ok\n" % marker.encode())
    carry(other, out)


def carry(other: socket.socket, out: int) -> None:
    """Until the other side ends. When our input ends, the other side hears it and may still answer."""
    sources = [0, other.fileno()]
    while other.fileno() in sources:
        ready, _, _ = select.select(sources, [], [])
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if data:
                other.sendall(data)
            else:
                sources.remove(0)
                other.shutdown(socket.SHUT_WR)
        if other.fileno() in ready:
            data = other.recv(1 << 16)
            if not data:
                return
            while data:
                data = data[os.write(out, data) :]


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        main()
