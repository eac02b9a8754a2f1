"""The memory guard with real processes that really take memory, in a process namespace of their own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contract.sshd import free_port

pytestmark = pytest.mark.contract
STAGE = Path(__file__).with_name("guard_stage.py")
ROOT = Path(__file__).parents[2]
STILL = [500, 0, 0, 0]  # MiB at once; after so many seconds, MiB a second, at most


@pytest.fixture
def play(tmp_path):
    """Plays a story and returns what is left of it."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("not run: a process namespace of our own needs root and unshare")

    def act(server: list[float], stranger: list[float] | None = None, seconds: float = 6, **more: Any) -> Any:
        story = {
            "folder": str(tmp_path), "seconds": seconds, "server": server, "stranger": stranger, "cache": 0, "spec": {},
            "second": False, "kill_guard": False, "stuck_disk": False, "port": free_port(), **more,
        }  # fmt: skip
        own = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"]
        done = subprocess.run(
            [*own, sys.executable, str(STAGE), json.dumps(story)],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return act


def events(rank: dict[str, Any]) -> list[str]:
    return [line["event"] for line in rank["log"]]


def test_a_stranger_that_grows_is_named_and_the_server_lives(play):
    told = play(STILL, stranger=[20, 1, 400, 1100])
    (rank,) = told["ranks"]
    why = next(line["why"] for line in rank["log"] if line["event"] == "warn")
    assert f"ffmpeg (pid {told['pid']})" in why
    assert "others are to blame" in why
    assert (rank["state"], rank["stop"]) == ("alive", None)
    assert told["stranger"] in ("R", "S")


@pytest.mark.parametrize(("foreign", "state"), [("freeze", "T"), ("stop", "Z")])
def test_a_stranger_that_may_be_touched_is_frozen_or_ended(play, foreign, state):
    told = play(STILL, stranger=[20, 1, 300, 1300], spec={"foreign": foreign})
    assert (told["stranger"], told["ranks"][0]["state"]) == (state, "alive")


def test_a_rank_that_grows_is_stopped_on_both_nodes_with_evidence(play):
    head, worker = play([500, 2, 200, 1500], second=True, seconds=20)["ranks"]
    assert [rank["state"] for rank in (head, worker)] == ["exited", "exited"]
    assert [rank["exit"]["requested"] for rank in (head, worker)] == [True, True]
    assert [rank["stop"]["by"] for rank in (head, worker)] == ["guard", "guard"]
    assert "our ranks are to blame" in head["stop"]["why"]
    assert worker["stop"]["why"] == "another node of this deployment is out of memory"
    assert head["evidence"] == ["at", "begin", "gpu", "meminfo", "pressure", "samples", "why"]
    assert head["samples"] > 5
    assert [rank["record"]["ended"] for rank in (head, worker)] == ["the rank ended"] * 2
    assert [rank["guard"]["state"] for rank in (head, worker)] == ["ended"] * 2


def test_a_leak_that_takes_its_time_is_stopped_too(play):
    (rank,) = play([900, 1, 40, 1000], seconds=30)["ranks"]
    assert (rank["state"], rank["stop"]["by"]) == ("exited", "guard")


def test_page_cache_alone_is_dropped_and_nobody_dies(play, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "model-1.safetensors").write_bytes(bytes(1 << 20))
    (rank,) = play([100, 0, 0, 0], cache=1500, seconds=2, spec={"drop": [str(model)]})["ranks"]
    assert [what for what in events(rank) if what not in ("began", "look")] == ["drop"]
    assert rank["record"]["did"][0]["what"].startswith("dropped 1 files from the page cache")
    assert rank["state"] == "alive"


def test_a_guard_that_only_watches_tells_and_touches_nobody(play):
    (rank,) = play([500, 1, 400, 1500], seconds=6, spec={"mode": "watch"})["ranks"]
    assert "our ranks are to blame" in next(line["why"] for line in rank["log"] if line["event"] == "warn")
    assert (rank["state"], rank["stop"]) == ("alive", None)


def test_a_disk_that_hangs_does_not_keep_a_guard_from_stopping_both_nodes(play):
    head, worker = play([500, 2, 200, 1500], second=True, seconds=20, stuck_disk=True)["ranks"]
    assert [rank["state"] for rank in (head, worker)] == ["exited", "exited"]
    assert [rank["exit"]["requested"] for rank in (head, worker)] == [True, True]
    assert head["evidence"] is None
    assert worker["stop"]["why"] == "another node of this deployment is out of memory"


def test_a_guard_that_was_killed_is_seen_to_be(play):
    (rank,) = play(STILL, seconds=1, kill_guard=True)["ranks"]
    assert (rank["guard"]["state"], rank["record"]["ended"], rank["state"]) == ("killed", None, "alive")


def may_go_last() -> bool:
    """Root of a container often lacks this right (CAP_SYS_RESOURCE)."""
    granted = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff"))
    return bool(int(granted.split()[1], 16) >> 24 & 1)


def test_a_guard_is_last_in_line_where_it_may_and_never_swapped(play):
    (rank,) = play(STILL, seconds=1)["ranks"]
    assert rank["record"]["hard"] == {"oom_score_adj": may_go_last(), "locked": True}
    assert rank["oom_score_adj"] == (-1000 if may_go_last() else 0)
