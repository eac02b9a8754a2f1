"""Ranks as transient units of a real systemd: what it holds, and that everything ends; a stand-in for the server."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.cli import Cli, Said
from tests.lab.memory import anonymous, evidence, has_available, meminfo_of_ours
from tests.lab.node import until
from tests.lab.specification import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.node import Node
    from tests.lab.nodes import Lab

pytestmark = pytest.mark.lab

STANDIN = REPOSITORY / "tests" / "contract" / "standin.py"
PLACE = "/opt/standin"  # every account can read it, where the checkout may lie in a closed folder
STATE = "/var/lib/sparkctl"
MODEL = REPOSITORY / "scripts" / "demo_model" / "model"
SETTINGS = {
    "DEPLOYMENT": "units",
    "HEAD_IP": "10.77.0.1",
    "WORKER_IP": "10.77.0.2",
    "WORKER_SSH": "spark-b",
    "HOST": "fabric",
    "MODEL_DIR": f"{PLACE}/model",
    "VENV": f"{PLACE}/venv",
    "HEAD_STATE_DIR": STATE,
    "WORKER_STATE_DIR": STATE,
    "STOP_GRACE": "3",
}
TREES = (["VLLM::EngineCore", "VLLM::Worker_TP0"], ["VLLM::Worker_TP1"])


@dataclass(frozen=True, slots=True)
class Bench:
    """Both nodes with the stand-in as their vLLM, and a sparkctl on the head."""

    lab: Lab
    sparkctl: Cli

    def start(self) -> str:
        """The boot that serves."""
        started = self.sparkctl("start")
        assert started.code == 0, started.result
        return str(started.result["boot"])


@pytest.fixture
def bench(systemd_lab: Lab) -> Bench:
    for node in systemd_lab.nodes:
        equip(node)
    return Bench(systemd_lab, Cli(systemd_lab.a, SETTINGS))


def equip(node: Node) -> None:
    files = {
        "standin.py": STANDIN.read_text(),
        "venv/bin/vllm": f'#!/bin/sh\nexec python3 {PLACE}/standin.py "$@"\n',
        "model/config.json": "{}",
    }
    for name, text in files.items():
        file = node.path(f"{PLACE}/{name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)


def unit_of(boot: str, rank: int) -> str:
    return f"sparkctl-units-rank{rank}-{boot}.service"


def properties(node: Node, unit: str) -> dict[str, str]:
    names = "ActiveState,KillMode,OOMPolicy,ControlGroup,LimitMEMLOCK,MainPID"
    shown = node.run(("systemctl", "show", unit, f"--property={names}"), check=True).stdout
    return dict(line.split("=", 1) for line in shown.splitlines())


def titles(node: Node) -> list[str]:
    return sorted(process.title for process in node.processes("VLLM::"))


def shim(node: Node) -> int:
    (pid,) = [process.pid for process in node.processes("/agent/rank-") if " run " in process.title]
    return pid


def server(node: Node) -> int:
    (pid,) = [process.pid for process in node.processes("standin.py")]
    return pid


def end_of(node: Node, boot: str, rank: int) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(
        node.path(f"{STATE}/deployments/units/boots/{boot}/rank{rank}/exit.json").read_text()
    )
    return record


def standing(said: Said) -> tuple[str, list[str]]:
    return said.result["state"], [rank["state"] for rank in said.result["ranks"]]


def nothing_is_left(lab: Lab) -> None:
    for node in lab.nodes:
        assert node.processes() == ()
        assert node.run(("systemctl", "list-units", "--all", "--no-legend", "sparkctl-*")).stdout == ""
        assert node.run(("systemctl", "is-system-running")).stdout == "running\n", "a unit of ours failed and stays"


def test_every_rank_is_a_unit_that_outlives_the_command_that_started_it(bench: Bench) -> None:
    boot = bench.start()
    for rank, node in enumerate(bench.lab.nodes):
        assert titles(node) == TREES[rank]
        assert not [one.title for one in node.processes("-m cluster")]
        unit = properties(node, unit_of(boot, rank))
        main, group = unit.pop("MainPID"), unit.pop("ControlGroup")
        assert unit == {
            "ActiveState": "active",
            "KillMode": "mixed",
            "OOMPolicy": "continue",
            "LimitMEMLOCK": "infinity",
        }
        assert (int(main), group) == (shim(node), f"/system.slice/{unit_of(boot, rank)}")
        assert node.path(f"/proc/{server(node)}/cgroup").read_text().splitlines()[-1].endswith(group)
    looked = bench.sparkctl("status")
    assert (looked.code, standing(looked)) == (0, ("serving", ["alive", "alive"]))
    ended = bench.sparkctl("stop")
    assert (ended.code, [rank["state"] for rank in ended.result["ranks"]]) == (0, ["graceful", "graceful"])
    assert [end_of(node, boot, rank)["requested"] for rank, node in enumerate(bench.lab.nodes)] == [True, True]
    nothing_is_left(bench.lab)


def test_systemd_ends_a_rank_whose_shim_was_killed(bench: Bench) -> None:
    bench.start()
    worker = bench.lab.b
    worker.kill(shim(worker))
    until(lambda: worker.processes() == (), "systemd ended the whole unit")
    looked = bench.sparkctl("status")
    assert (looked.code, standing(looked)) == (8, ("degraded", ["alive", "vanished"]))
    assert looked.result["reasons"][0] == "rank 1 (worker): it is not running, and left no exit code"
    again = bench.sparkctl("start")
    assert (again.code, again.failed["fix"]) == (4, "sparkctl restart")
    assert titles(bench.lab.a) == TREES[0]
    assert bench.sparkctl("stop").code == 0
    nothing_is_left(bench.lab)


def test_a_killed_server_is_on_record_and_a_restart_mends_it(bench: Bench) -> None:
    boot = bench.start()
    worker = bench.lab.b
    worker.kill(server(worker))
    until(lambda: worker.processes() == (), "the shim ended what was left, and itself")
    record = end_of(worker, boot, 1)
    assert (record["code"], record["signal"], record["requested"]) == (None, signal.SIGKILL, False)
    looked = bench.sparkctl("status")
    assert (looked.code, standing(looked)) == (8, ("degraded", ["alive", "exited"]))
    again = bench.sparkctl("restart")
    assert again.code == 0
    assert again.result["boot"] != boot
    assert [titles(node) for node in bench.lab.nodes] == list(TREES)
    assert bench.sparkctl("stop").code == 0
    nothing_is_left(bench.lab)


def test_a_unit_that_the_administrator_stops_ends_in_order(bench: Bench) -> None:
    boot = bench.start()
    bench.lab.b.run(("systemctl", "stop", unit_of(boot, 1)), check=True)
    record = end_of(bench.lab.b, boot, 1)
    assert (record["code"], record["signal"], record["killed"]) == (0, None, 0)
    assert standing(bench.sparkctl("status")) == ("degraded", ["alive", "exited"])
    assert bench.sparkctl("stop").code == 0
    nothing_is_left(bench.lab)


def test_the_guard_is_a_unit_of_its_own_and_ends_the_ranks_of_both_nodes(bench: Bench) -> None:
    guarded = Bench(bench.lab, Cli(bench.lab.a, SETTINGS | {"DSV41_MEM_GUARD": "act"}))
    worker = bench.lab.b
    with meminfo_of_ours(*bench.lab.nodes):
        boot = guarded.start()
        unit = f"sparkctl-units-guard1-{boot}.service"
        shown = properties(worker, unit)
        assert (shown["ActiveState"], shown["ControlGroup"]) == ("active", f"/system.slice/{unit}")
        hard = json.loads(worker.path(f"{STATE}/deployments/units/boots/{boot}/rank1/guard.json").read_text())["hard"]
        score = int(worker.path(f"/proc/{shown['MainPID']}/oom_score_adj").read_text())
        assert (hard["locked"], score) == (True, -1000 if hard["oom_score_adj"] else 0)
        held = anonymous(worker, [server(worker), *(one.pid for one in worker.processes("VLLM::"))])
        has_available(worker, 1.2)
        until(lambda: not any(node.processes() for node in bench.lab.nodes), "ranks and guards are gone", 40)
        gone = guarded.sparkctl("status")
    told = evidence(worker, f"{STATE}/deployments/units/boots/{boot}/rank1")
    assert "our ranks are to blame" in told["why"]
    assert told["samples"][-1]["ours"] >= held > 0
    assert [end_of(node, boot, rank)["requested"] for rank, node in enumerate(bench.lab.nodes)] == [True, True]
    assert gone.code == 9
    nothing_is_left(bench.lab)


@pytest.fixture
def ordinary(bench: Bench) -> Bench:
    """An account without rights on both nodes, whose units outlive its logins; sparkctl on a laptop."""
    for node in bench.lab.nodes:
        make = (
            "useradd --create-home --password '*' spark && cp -r /root/.ssh /home/spark && chown -R spark: /home/spark"
        )
        node.run(("sh", "-c", make), check=True)
        lingers = node.path("/var/lib/systemd/linger/spark")
        lingers.parent.mkdir(exist_ok=True)
        lingers.touch()
        number = node.run(("id", "-u", "spark"), check=True).stdout.strip()
        started = node.run(("systemctl", "start", f"user@{number}.service"))
        if started.returncode:
            pytest.skip(
                f"not run: no user's systemd in the lab (Debian: dbus libpam-systemd): {started.stderr.strip()}"
            )
    home = "~/.local/state/sparkctl"
    accounts = {
        "HEAD_SSH": "spark@spark-a",
        "WORKER_SSH": "spark@spark-b",
        "HEAD_STATE_DIR": home,
        "WORKER_STATE_DIR": home,
    }
    return Bench(bench.lab, Cli(bench.lab.laptop, SETTINGS | accounts))


def test_an_account_without_rights_runs_its_ranks_as_units_of_its_own(ordinary: Bench) -> None:
    boot = ordinary.start()
    for rank, node in enumerate(ordinary.lab.nodes):
        assert titles(node) == TREES[rank]
        number = node.run(("id", "-u", "spark"), check=True).stdout.strip()
        group = node.path(f"/proc/{server(node)}/cgroup").read_text().splitlines()[-1]
        assert group.endswith(f"/user@{number}.service/app.slice/{unit_of(boot, rank)}")
    looked = ordinary.sparkctl("status")
    assert (looked.code, standing(looked)) == (0, ("serving", ["alive", "alive"]))
    assert ordinary.sparkctl("stop").code == 0
    for node in ordinary.lab.nodes:
        assert node.processes("VLLM::") + node.processes("standin.py") + node.processes("/agent/rank-") == ()
        ours = node.run(("systemctl", "--user", "--machine=spark@", "list-units", "--all", "--no-legend", "sparkctl-*"))
        assert (ours.returncode, ours.stdout) == (0, ""), ours.stderr


def test_real_vllm_serves_from_units_and_leaves_nothing(systemd_lab: Lab, vllm_venv: Path) -> None:
    demo = {"RECIPE": "demo", "VENV": str(vllm_venv), "MODEL_DIR": str(MODEL), "STOP_GRACE": "20"}
    bench = Bench(systemd_lab, Cli(systemd_lab.a, SETTINGS | demo))
    boot = bench.start()
    assert [titles(node) for node in bench.lab.nodes] == list(TREES)
    for rank, node in enumerate(bench.lab.nodes):
        for process in node.processes("VLLM::"):
            group = node.path(f"/proc/{process.pid}/cgroup").read_text().splitlines()[-1]
            assert group.endswith(f"/system.slice/{unit_of(boot, rank)}")
    assert bench.sparkctl("smoke").code == 0
    ended = bench.sparkctl("stop")
    assert (ended.code, [rank["state"] for rank in ended.result["ranks"]]) == (0, ["graceful", "graceful"])
    nothing_is_left(bench.lab)
