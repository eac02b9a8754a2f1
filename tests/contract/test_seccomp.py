"""What a container may do under the profile that ranks with Engram tables get, and under the engine's own."""

import json
from pathlib import Path

import pytest

from cluster.model.containers import ContainerSpec, Seccomp
from cluster.node.engine import Engine
from cluster.node.local import LocalNode
from tests.contract import dockerd

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / "cluster" / "seccomp" / "io_uring.json"
PUBLISHED = ROOT / "tests" / "golden" / "engram" / "moby-26.1.5-seccomp.json"
IMAGE = "sparkctl-python:1"
EPERM = 1
# io_uring_setup, io_uring_enter, io_uring_register and one that no profile allows; numbers are the same everywhere.
CALLS = {"setup": 425, "enter": 426, "register": 427, "kexec_file_load": 320}
TRY = f"""
import ctypes, json
library = ctypes.CDLL(None, use_errno=True)
said = {{}}
for name, number in {CALLS}.items():
    room = ctypes.create_string_buffer(120)
    first = 4 if name == "setup" else -1
    said[name] = 0 if library.syscall(number, first, room, 0, 0, 0) >= 0 else ctypes.get_errno()
print(json.dumps(said))
"""

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(dockerd.missing() is not None, reason=f"not run: {dockerd.missing()}"),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with dockerd.Dockerd(tmp_path_factory.mktemp("dockerd")) as running:
        if b"seccomp" not in running.run("info", "--format", "{{.SecurityOptions}}").stdout:
            pytest.skip("not run: this kernel or engine has no seccomp")
        dockerd.python_image(running, IMAGE)
        yield running


def errors_under(daemon, profile: Path) -> dict[str, int]:
    """What each call ends with in a container that the engine was asked for as a start asks for it."""
    here = LocalNode("here")
    engine = Engine(here, daemon.socket)
    wanted = ContainerSpec(
        f"sparkctl-{profile.stem}",
        IMAGE,
        ("python3", "-c", TRY),
        seccomp=Seccomp("/nowhere", profile.read_text(encoding="utf-8")),
    )
    engine.start(engine.create(wanted))
    daemon.run("wait", wanted.name)
    said = daemon.run("logs", wanted.name).stdout
    engine.close()
    here.close()
    seen: dict[str, int] = json.loads(said)
    return seen


def test_ranks_may_use_io_uring_and_nothing_more_than_under_the_published_profile(daemon):
    published, ours = errors_under(daemon, PUBLISHED), errors_under(daemon, OURS)
    assert published == dict.fromkeys(CALLS, EPERM)
    assert (ours["setup"], ours["kexec_file_load"]) == (0, EPERM)
    assert EPERM not in (ours["enter"], ours["register"])
