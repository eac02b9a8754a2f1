"""Build an image from exactly the files that were counted. The request is called from the end of this file.

The context is an archive made here, so that nothing else that lies in the folder can get into the image. What the
builder says goes to standard output, and to a file that stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
from typing import Any, Dict, List, Optional

CHANGED, NO_CLIENT = 71, 72
# Not the beginning of time: an archive for Python's packages cannot be older than 1980.
MADE = 315619200
BUILT_IN = 23  # clients before it bring BuildKit themselves; later ones need the part called buildx


def clients() -> List[str]:
    """Every docker on the PATH: a newer one without buildx may hide an older one that can build."""
    places = os.environ.get("PATH", "").split(os.pathsep)
    found = [os.path.join(place, "docker") for place in places if place]
    return [path for path in dict.fromkeys(map(os.path.realpath, found)) if os.access(path, os.X_OK)]


def has_buildkit(client: str) -> bool:
    said = answer([client, "--version"])
    major = re.search(r"version (\d+)", said or "")
    if major is None:
        return False
    return int(major.group(1)) < BUILT_IN or answer([client, "buildx", "version"]) is not None


def answer(words: List[str]) -> Optional[str]:
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


class Changed(Exception):
    """A file is not what it was when it was counted."""


def pack(folder: str, files: List[Dict[str, Any]], out: Any) -> None:
    """The context: no owner, no time and no umask of this machine is in it."""
    with tarfile.open(fileobj=out, mode="w|") as archive:
        for one in files:
            path = os.path.join(folder, one["path"])
            member = tarfile.TarInfo(one["path"])
            member.mtime, member.mode = MADE, 0o755 if one["mode"] & 0o100 else 0o644
            if os.path.islink(path):
                content, member.type, member.linkname = (
                    os.fsencode(os.readlink(path)),
                    tarfile.SYMTYPE,
                    os.readlink(path),
                )
            else:
                with open(path, "rb") as file:
                    content = file.read()
                member.size = len(content)
            if hashlib.sha256(content).hexdigest() != one["digest"]:
                raise Changed(one["path"])
            archive.addfile(member, io.BytesIO(content) if member.isreg() else None)


def build(request: Dict[str, Any]) -> int:
    """The builder's exit code; CHANGED when a file changed meanwhile, NO_CLIENT without a docker here."""
    folder, found = os.path.expanduser(request["folder"]), clients()
    if not found:
        return NO_CLIENT
    able = [one for one in found if has_buildkit(one)]
    if not able:
        print("note: docker has no buildx here, which BuildKit needs: this is the older builder", flush=True)
    environment = dict(os.environ, DOCKER_BUILDKIT="1" if able else "0", BUILDKIT_PROGRESS="plain")
    # With them an image is a list of two, and the same files never make the same image twice.
    environment["BUILDX_NO_DEFAULT_ATTESTATIONS"] = "1"
    words = [(able or found)[0], "-H", request["engine"], "build", *request["words"], "-"]
    log = os.path.expanduser(request["log"])
    os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
    running = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    teller = threading.Thread(target=tell, args=(running, log))
    teller.start()
    assert running.stdin is not None
    changed = ""
    with contextlib.suppress(BrokenPipeError):  # it ended early, and says why
        try:
            pack(folder, request["files"], running.stdin)
        except Changed as error:
            changed = str(error)
            running.kill()
    with contextlib.suppress(BrokenPipeError):
        running.stdin.close()
    code = running.wait()
    teller.join()
    if changed:
        print("changed while it was read: " + changed, flush=True)
    return CHANGED if changed else code


def main(text: str) -> None:
    sys.exit(build(json.loads(text)))


def tell(running: Any, log: str) -> None:
    with open(log, "wb") as kept:
        for line in running.stdout:
            kept.write(line)
            kept.flush()
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
