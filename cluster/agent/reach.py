"""Say what of the other nodes can be reached over the fabric. Runs on a node; sends a few packets and no data.

Argument: JSON {"peers": [{"address", "ports": [n, ...]}], "limit": seconds}. Answer: JSON list, one per peer:
{"address", "interface", "mtu", "ping": bool | null, "full": bool | null, "ports": {"22": "open" | "refused" |
"timeout" | "errno N"}}. `full` is a packet that fills the interface's MTU and may not be fragmented. Null: there is
no ping here.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from typing import Any


def tool(argv: list[str], limit: float) -> tuple[int | None, str]:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit,
            check=False,
        )
        return done.returncode, done.stdout.decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired):
        return None, ""


def ping(address: str, size: int | None) -> bool | None:
    """`-M do` forbids fragments: a plain ping of any size proves nothing about the MTU."""
    exact = [] if size is None else ["-M", "do", "-s", str(size)]
    code, _ = tool(["ping", "-n", "-c", "1", "-W", "1", *exact, address], 3)
    return None if code not in (0, 1) else code == 0


def way(address: str) -> tuple[str, int | None]:
    """The interface towards it, and its MTU."""
    _, out = tool(["ip", "-o", "route", "get", address], 3)
    found = re.search(r" dev (\S+)", out)
    if not found:
        return "", None
    try:
        with open("/sys/class/net/%s/mtu" % found[1]) as file:
            return found[1], int(file.read())
    except (OSError, ValueError):
        return found[1], None


def dial(address: str, port: int, limit: float) -> str:
    try:
        socket.create_connection((address, port), timeout=limit).close()
    except ConnectionRefusedError:
        return "refused"
    except socket.timeout:
        return "timeout"
    except OSError as error:
        return "errno %s" % error.errno
    return "open"


def look(peer: dict[str, Any], limit: float, answers: list[dict[str, Any]]) -> None:
    address = peer["address"]
    interface, mtu = way(address)
    seen: dict[str, str] = {}

    def one(port: int) -> None:
        seen[str(port)] = dial(address, port, limit)

    threads = [threading.Thread(target=one, args=(port,)) for port in peer["ports"]]
    for thread in threads:
        thread.start()
    small = ping(address, None)
    full = ping(address, mtu - 28) if mtu and small else small
    for thread in threads:
        thread.join()
    answers.append({"address": address, "interface": interface, "mtu": mtu, "ping": small, "full": full, "ports": seen})


if __name__ == "__main__":
    want = json.loads(sys.argv[1])
    told: list[dict[str, Any]] = []
    each = [threading.Thread(target=look, args=(peer, want["limit"], told)) for peer in want["peers"]]
    for one_peer in each:
        one_peer.start()
    for one_peer in each:
        one_peer.join()
    json.dump(sorted(told, key=lambda peer: str(peer["address"])), sys.stdout)
