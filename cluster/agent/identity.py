"""Say exactly what a rank on this node would run: package versions and a digest of the model. Runs on a node.

Argument: JSON {"venv", "program", "model", "key_file", "state_dir"}, empty where there is none; the program is that
of a server other than vLLM.
Answer: JSON {"python", "packages": {name: version}, "tools": {name: path}, "server": bool, "model": {"present",
"files", "bytes", "digest", "how", "unreadable": [...]}, "key": {...}, "state": {"free": bytes, "writable": bool}}.

The model's digest covers every file below 64 MiB whole. Of larger safetensors files it covers the size and the header
(8 + n bytes, n little-endian in the first 8: https://huggingface.co/docs/safetensors), of other large files the size;
`how` says which, so that nobody takes "headers" for "contents".
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import struct
import sys
from typing import Any

WHOLE = 64 * 1024 * 1024
LONGEST_HEADER = 100_000_000
TOOLS = ("ninja", "nvcc")
CUDA = ("/usr/local/cuda/bin", "/usr/local/cuda-13.0/bin")


def packages(venv: str) -> dict[str, str]:
    found = {}
    for folder in glob.glob(os.path.join(venv, "lib*", "python3*", "site-packages", "*.dist-info")):
        name, _, version = os.path.basename(folder)[: -len(".dist-info")].rpartition("-")
        found[re.sub(r"[-_.]+", "-", name).lower()] = version
    return found


def found(tool: str, venv: str) -> str:
    """Where a build of kernels would find it: in PATH, beside the server, or where CUDA is usually installed."""
    places = [os.path.join(venv, "bin")] if venv else []
    return shutil.which(tool, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *places, *CUDA])) or ""


def file_digest(path: str, size: int) -> tuple[str, str]:
    """(digest, "contents" | "headers" | "sizes") of one file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        if size <= WHOLE:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
            return digest.hexdigest(), "contents"
        digest.update(b"%d" % size)
        if path.endswith(".safetensors"):
            start = file.read(8)
            length = struct.unpack("<Q", start)[0]
            if length <= LONGEST_HEADER:
                digest.update(start + file.read(length))
                return digest.hexdigest(), "headers"
    return digest.hexdigest(), "sizes"


def follows(full: str, folder: str) -> bool:
    """Whether a link leads to its file in a container that has the folder, and the blobs of the hub's cache, alone."""
    try:
        text = os.readlink(full)
    except OSError:
        return True  # no link
    if os.path.isabs(text):
        return False
    there = os.path.normpath(os.path.join(os.path.dirname(full), text))
    repository = os.path.dirname(os.path.dirname(folder))
    seen = [folder, os.path.join(repository, "blobs")] if repository.split("/")[-1].startswith("models--") else [folder]
    return any(there.startswith(one.rstrip("/") + "/") for one in seen)


def model(path: str) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "present": False,
        "files": 0,
        "bytes": 0,
        "digest": "",
        "how": "contents",
        "unreadable": [],
        "outside": [],
    }
    if not os.path.isdir(path):
        return answer
    total = hashlib.sha256()
    rank = {"contents": 0, "headers": 1, "sizes": 2}
    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            full = os.path.join(folder, name)
            if name.startswith(".") or name.endswith((".py", ".md", ".txt")):
                continue
            if not follows(full, path):
                answer["outside"].append(os.path.dirname(os.path.realpath(full)))
            try:
                size = os.path.getsize(full)
                digest, how = file_digest(full, size)
            except OSError as error:
                answer["unreadable"].append("%s: %s" % (os.path.relpath(full, path), error.strerror or error))
                continue
            total.update(("%s %d %s\n" % (os.path.relpath(full, path), size, digest)).encode())
            answer["files"] += 1
            answer["bytes"] += size
            if rank[how] > rank[answer["how"]]:
                answer["how"] = how
    answer["outside"] = sorted(set(answer["outside"]))[:5]
    answer["present"] = os.path.isfile(os.path.join(path, "config.json"))
    answer["digest"] = total.hexdigest()
    return answer


def key(path: str) -> dict[str, Any] | None:
    """What a key file looks like from here; never its content."""
    if not path:
        return None
    try:
        seen = os.stat(os.path.expanduser(path))
    except OSError as error:
        return {"present": False, "why": error.strerror}
    return {"present": True, "mode": seen.st_mode & 0o777, "empty": seen.st_size == 0}


def state(path: str) -> dict[str, Any]:
    """Free bytes where our files will go, asked of the nearest folder that exists."""
    path = os.path.abspath(os.path.expanduser(path))
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    numbers = os.statvfs(path)
    return {"free": numbers.f_bavail * numbers.f_frsize, "writable": os.access(path, os.W_OK), "path": path}


def main() -> None:
    want = json.loads(sys.argv[1])
    venv = os.path.expanduser(want["venv"])
    program = os.path.expanduser(want.get("program") or (os.path.join(venv, "bin", "vllm") if venv else ""))
    json.dump(
        {
            "python": "%d.%d.%d" % sys.version_info[:3],
            "packages": packages(venv) if venv else {},
            "tools": {name: found(name, venv) for name in TOOLS},
            "server": shutil.which(program) is not None if program else False,
            "model": model(os.path.expanduser(want["model"])) if want["model"] else None,
            "key": key(want["key_file"]),
            "state": state(want["state_dir"]),
            "hostname": os.uname().nodename,
            "machine": os.uname().machine,
            "boot_id": boot_id(),
            "machine_id": machine_id(),
        },
        sys.stdout,
    )


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def machine_id() -> str:
    """A digest of the machine id: it identifies the box without telling its id to others (machine-id(5))."""
    try:
        with open("/etc/machine-id", "rb") as file:
            return hashlib.sha256(b"sparkctl" + file.read().strip()).hexdigest()[:16]
    except OSError:
        return ""


if __name__ == "__main__":
    main()
