"""Hold a registry on this node's loopback, and a way to it from a worker, while our caller listens. Runs on the head.

Argument: JSON {"port", "folder", "repository", "reach": [word, ...]}. A registry that answers at the port is used as it
is; otherwise the standard one is started there, and keeps its blobs in `folder`. `reach` are the words that run a
command on the worker over ssh; none where it is this machine. Output: one line of JSON, {"here", "there": HOST:PORT,
"free": bytes | null, "knows": whether it has had that repository} or {"error": sentence}; then it waits to be ended.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, Optional

LOOPBACK = "127.0.0.1"
NAMES = ("docker-registry", "registry")  # Debian's name and the project's own
PATIENCE = 15.0
ALLOCATED = re.compile(r"Allocated port (\d+) for remote forward")


class Cannot(Exception):
    """Why there is no registry, or no way to it."""


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def asked(port: int) -> Optional[bool]:
    """Whether a registry listens there; None where nobody does."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", "/v2/")
        return bool(connection.getresponse().getheader("Docker-Distribution-Api-Version"))
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def registry(port: int, folder: str) -> Iterator[bool]:
    """Yields whether it is one that we started."""
    there = asked(port)
    if there is not None:
        if not there:
            raise Cannot("port %d is taken by something that is no registry" % port)
        yield False
        return
    words = [program(), "serve", configuration(port, folder)]
    with running(words) as process:
        end = time.monotonic() + PATIENCE
        while not asked(port):
            if process.poll() is not None or time.monotonic() > end:
                raise Cannot("the registry does not start: %s" % last_words(process))
            time.sleep(0.05)
        threading.Thread(target=drain, args=(process,), daemon=True).start()
        yield True


def program() -> str:
    for path in filter(None, map(shutil.which, NAMES)):
        said = subprocess.run([path, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
        if b"distribution" in said:
            return path
    raise Cannot("no registry is installed (Debian and Ubuntu: docker-registry)")


def configuration(port: int, folder: str) -> str:
    """JSON is YAML too. What is started for one user's images is that user's to read."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, "config.yml")
    wanted = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": folder}},
        "http": {"addr": "%s:%d" % (LOOPBACK, port)},
    }
    with open(path, "w") as file:
        json.dump(wanted, file)
    return path


@contextlib.contextmanager
def running(words: List[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def drain(process: subprocess.Popen[bytes]) -> None:
    assert process.stderr is not None
    for _ in process.stderr:
        pass


def last_words(process: subprocess.Popen[bytes]) -> str:
    process.terminate()
    assert process.stderr is not None
    lines = process.stderr.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it says nothing"


@contextlib.contextmanager
def way(reach: List[str], port: int) -> Iterator[Optional[subprocess.Popen[bytes]]]:
    """The ssh that holds the worker's end open: `cat` there ends with it."""
    if not reach:
        yield None
        return
    forward = ["-o", "ExitOnForwardFailure=yes", "-o", "LogLevel=INFO", "-R", "%s:0:%s:%d" % (LOOPBACK, LOOPBACK, port)]
    with running([reach[0], *forward, *reach[1:], "cat"]) as process:
        yield process


def port_there(process: subprocess.Popen[bytes]) -> int:
    """The worker's sshd chooses a free port, and the client tells of it."""
    assert process.stderr is not None
    words = []
    for line in process.stderr:
        words.append(line.decode("utf-8", "replace").strip())
        found = ALLOCATED.search(words[-1])
        if found:
            return int(found.group(1))
    raise Cannot("no way for the worker to it: %s" % "; ".join(words[-3:]))


def hold(wanted: Dict[str, Any]) -> None:
    port, folder = int(wanted["port"]), os.path.expanduser(wanted["folder"])
    with registry(port, folder) as is_ours, way(wanted["reach"], port) as tunnel:
        there = port_there(tunnel) if tunnel else port
        tell(here="%s:%d" % (LOOPBACK, port), there="%s:%d" % (LOOPBACK, there), **room(folder, wanted, is_ours))
        if tunnel:
            drain(tunnel)
        else:
            signal.pause()


def room(folder: str, wanted: Dict[str, Any], is_ours: bool) -> Dict[str, Any]:
    """Of the disk that a registry of ours fills; another's is not ours to measure."""
    if not is_ours:
        return {"free": None, "knows": True}
    disk = os.statvfs(folder)
    known = os.path.isdir(os.path.join(folder, "docker/registry/v2/repositories", wanted["repository"]))
    return {"free": disk.f_bavail * disk.f_frsize, "knows": known}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        hold(json.loads(sys.argv[1]))
    except (Cannot, OSError) as error:
        tell(error=str(error))
