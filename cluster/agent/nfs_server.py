"""Say what a head exports over NFS, what it could, and what lies published there. Runs on a node, changes nothing.

Argument: JSON {"folders": {name: {"source", "root": folder or "", "prefix"}}, "dropin", "record", "box", "engine"}.
Answer: JSON {"user", "sudo", "tools": [...], "threads": n | null, "ports": [...], "exports": text, "dropin": text |
null, "record": text | null, "rdma": [...], "box": inspected | null, "folders": {name: {"source": real path, "root",
"present", "kind": file system of the root, "device", "files": listing, "trees": {tree: {name: inode}}}}}.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, Optional

from cluster.agent.links import listing
from cluster.agent.nfs_common import content, myself, output
from cluster.agent.touch import mount_of


def inspected(engine: str, box: str) -> Optional[Dict[str, Any]]:
    """A container that exports: its image, whether it runs, what it has of the node, and what it exports."""
    said = output("docker", "-H", "unix://" + engine, "inspect", box) if box else None
    if said is None:
        return None
    seen = json.loads(said)[0]
    runs = bool(seen["State"]["Running"])
    exports = output("docker", "-H", "unix://" + engine, "exec", box, "exportfs", "-s") if runs else None
    return {
        "ours": (seen["Config"].get("Labels") or {}).get("sparkctl.exporter", ""),
        "image": seen["Config"]["Image"],
        "runs": runs,
        "binds": {one["Source"]: one["Destination"] for one in seen.get("Mounts") or [] if one.get("Type") == "bind"},
        "environment": seen["Config"].get("Env") or [],
        "exports": exports or "",
    }


def near(path: str) -> str:
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def published(root: str, prefix: str) -> Dict[str, Dict[str, int]]:
    """Whole trees only: one that is being made has a name of its own."""
    try:
        trees = [one for one in os.listdir(root) if one.startswith(prefix + ".")]
    except OSError:
        return {}
    return {tree: {name: one[1] for name, one in listing(os.path.join(root, tree)).items()} for tree in sorted(trees)}


def folder(want: Dict[str, str]) -> Dict[str, Any]:
    source = os.path.realpath(os.path.expanduser(want["source"]))
    root = os.path.realpath(os.path.expanduser(want["root"])) if want["root"] else source + "/.sparkctl/export"
    there = near(root)
    return {
        "source": source,
        "root": root,
        "present": os.path.isdir(source),
        "kind": mount_of(there)[1],
        "device": os.stat(there).st_dev,
        "files": listing(source),
        "trees": published(root, want["prefix"]),
    }


def main(want: Dict[str, Any]) -> Dict[str, Any]:
    threads = content("/proc/fs/nfsd/threads")
    return {
        **myself("exportfs", "systemctl", "docker"),
        "threads": int(threads) if threads else None,
        "ports": (content("/proc/fs/nfsd/portlist") or "").splitlines(),
        "exports": content("/var/lib/nfs/etab") or "",
        "dropin": content(want["dropin"]),
        "record": content(want["record"]),
        "box": inspected(want["engine"], want["box"]),
        "folders": {name: folder(one) for name, one in want["folders"].items()},
    }


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
