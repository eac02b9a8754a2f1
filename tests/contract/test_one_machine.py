"""sparkctl itself over two ranks on this machine, in one folder: what it says of ranks that lost their shims."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contract.bench import STANDIN, lives, until
from tests.contract.sshd import free_port

pytestmark = pytest.mark.contract

REPOSITORY = Path(__file__).parents[2]
SETTINGS = """
nodes:
  - {{name: head, control: local, address: 127.0.0.1, state_dir: {folder}/state}}
  - {{name: worker, control: local, address: 127.0.0.1, state_dir: {folder}/state}}
serve: {{model: {folder}/model, served_model_name: standin, host: loopback, port: {port}, master_port: {other}}}
launch: {{venv: {folder}/venv}}
watch: {{stop_grace: 3}}
"""


@dataclass(frozen=True, slots=True)
class Desk:
    folder: Path

    def __call__(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Exit code and result of a verb."""
        argv = (sys.executable, "-m", "cluster", *words, "--json")
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(argv, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout.splitlines()[-1])

    def records(self) -> list[dict[str, Any]]:
        """rank.json of the newest boot, rank 0 first."""
        boot = max((self.folder / "state/deployments/pair/boots").iterdir())
        return [json.loads((boot / f"rank{rank}/rank.json").read_text()) for rank in (0, 1)]

    def tree(self) -> list[int]:
        """Every process of ours, by the pid of its shim's session."""
        sessions = {record["session"] for record in self.records()}
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) in sessions and fields[0] not in "ZX":
                found.append(int(stat.parent.name))
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    if Path("/run/systemd/system").is_dir():
        pytest.skip("not run: systemd is the init here and leaves no orphans; tests/lab/test_systemd.py covers it")
    desk = Desk(tmp_path)
    for name, text in {
        "venv/bin/vllm": f'#!/bin/sh\nexec {sys.executable} {STANDIN} "$@"\n',
        "model/config.json": "{}",
        "cluster.yaml": "deployment: pair\n" + SETTINGS.format(folder=tmp_path, port=free_port(), other=free_port()),
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    yield desk
    assert desk("stop")[0] == 0
    assert desk.tree() == []


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: [pid for pid in pids if lives(pid)], lambda left: not left)


def standing(report: dict[str, Any]) -> tuple[str, list[str]]:
    return report["state"], [rank["state"] for rank in report["ranks"]]


def test_ranks_that_lost_their_shims_are_told_refused_and_mended(desk: Desk) -> None:
    code, served = desk("start")
    assert (code, served["event"]) == (0, "served")
    kill(*(record["pid"] for record in desk.records()))
    code, report = desk("status")
    assert (code, standing(report)) == (8, ("degraded", ["orphaned", "orphaned"]))
    assert report["reasons"][0] == "rank 0 (head): its launcher was killed; processes of it live on: 3"
    assert "sparkctl stop ends them" in report["ranks"][1]["detail"]
    before = desk.tree()
    code, refused = desk("start")
    assert (code, refused["event"], refused["fix"]) == (4, "failed", "sparkctl restart")
    assert desk.tree() == before
    code, again = desk("restart")
    assert (code, again["event"], again["boot"] != served["boot"]) == (0, "served", True)
    assert [pid for pid in before if lives(pid)] == []
    code, stopped = desk("stop")
    assert (code, {rank["rank"]: rank["state"] for rank in stopped["ranks"]}) == (0, {0: "graceful", 1: "graceful"})
    code, gone = desk("status")
    assert (code, standing(gone)) == (9, ("absent", ["exited", "exited"]))
    assert gone["reasons"] == ["it was stopped as asked"]


def test_a_stop_alone_ends_every_orphan(desk: Desk) -> None:
    assert desk("start")[0] == 0
    kill(*(record["pid"] for record in desk.records()))
    orphans = desk.tree()
    assert len(orphans) == 5
    code, stopped = desk("stop")
    assert (code, [rank["state"] for rank in stopped["ranks"]]) == (0, ["graceful", "graceful"])
    assert [pid for pid in orphans if lives(pid)] == []
    assert desk("status")[0] == 9
