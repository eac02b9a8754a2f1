"""Say what a worker has mounted over NFS, and whether it reaches the server. Runs on a node.

No server that is gone holds it up.

Argument: JSON {"targets": {name: folder}, "volumes": {name: volume}, "server", "port", "record", "engine"}.
Answer: JSON {"user", "sudo", "tools": [...], "rdma": [...], "record": text | null, "reach": "open" | "no_listener" |
"filtered" | "rejected", "source": address we are seen with, "mounts": [{"target", "device", "options", "read_ahead"}],
"targets": {name: {"path", "problem": errno, "entries", "absent": [folders that are not there, outermost first]}},
"volumes": {name: inspected | null}, "users": {name: [containers]}}.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from typing import Any, Dict, List

from cluster.agent.nfs_common import content, myself, output
from cluster.agent.touch import touched, unescaped

DIAL = 3.0


def reach(server: str, port: int) -> str:
    with socket.socket() as dialled:
        dialled.settimeout(DIAL)
        try:
            dialled.connect((server, port))
        except socket.timeout:
            return "filtered"
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                return "no_listener"
            return "filtered" if is_cut(error.errno or 0, server) else "rejected"
    return "open"


def is_cut(code: int, server: str) -> bool:
    """Without a carrier the address may go, and the way with it; or it stays, and nobody on the wire answers."""
    if code == errno.EHOSTUNREACH:
        return is_unanswered(server, content("/proc/net/arp") or "")
    return code == errno.ENETUNREACH


def is_unanswered(server: str, table: str) -> bool:
    """Nobody has that address on the wire, as with a cut cable: the same errno as a firewall's rejection."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return any(row[0] == server and int(row[2], 16) == 0 for row in rows)


def seen_as(server: str, port: int) -> str:
    """The address that the kernel would send from."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((server, port))
        except OSError:
            return ""
        return str(asked.getsockname()[0])


def nfs_mounts() -> List[Dict[str, Any]]:
    found = []
    for line in (content("/proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        words, after = left.split(), right.split()
        if not after or not after[0].startswith("nfs") or after[0] == "nfsd":
            continue
        ahead = content("/sys/class/bdi/" + words[2] + "/read_ahead_kb")
        found.append(
            {
                "target": unescaped(words[4]),
                "device": unescaped(after[1]),
                "options": words[5] + "," + after[-1],
                "read_ahead": int(ahead) if ahead else None,
            }
        )
    return found


def target(path: str, mounted: List[str]) -> Dict[str, Any]:
    path = os.path.abspath(os.path.expanduser(path))
    if path in mounted:
        return {"path": path, "problem": touched(path), "entries": 0, "absent": []}
    absent: List[str] = []
    here = path
    while not os.path.lexists(here):
        absent.insert(0, here)
        here = os.path.dirname(here)
    problem = 0 if absent else touched(path)
    entries = 0 if absent or problem else len(os.listdir(path))
    return {"path": path, "problem": problem, "entries": entries, "absent": absent}


def volume(engine: str, name: str) -> Any:
    said = output("docker", "-H", "unix://" + engine, "volume", "inspect", name)
    return json.loads(said)[0] if said else None


def users(engine: str, name: str) -> List[str]:
    said = output(
        "docker", "-H", "unix://" + engine, "ps", "--all", "--filter", "volume=" + name, "--format", "{{.Names}}"
    )
    return (said or "").split()


def main(want: Dict[str, Any]) -> Dict[str, Any]:
    mounts = nfs_mounts()
    mounted = [one["target"] for one in mounts]
    return {
        **myself("mount.nfs", "docker"),
        "record": content(want["record"]),
        "reach": reach(want["server"], want["port"]),
        "source": seen_as(want["server"], want["port"]),
        "mounts": mounts,
        "targets": {name: target(path, mounted) for name, path in want["targets"].items()},
        "volumes": {name: volume(want["engine"], one) for name, one in want["volumes"].items()},
        "users": {name: users(want["engine"], one) for name, one in want["volumes"].items()},
    }


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
