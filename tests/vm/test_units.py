"""Ranks as units of each machine's own systemd, through a reboot of the worker: a stand-in for the server."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.vm import cli

if TYPE_CHECKING:
    from tests.lab.cli import Said
    from tests.vm.machine import Machine
    from tests.vm.pair import Pair

PLACE, STATE = "/opt/standin", "/var/lib/sparkctl"
SETTINGS = {
    "DEPLOYMENT": "units",
    "HEAD_IP": "10.77.0.1",
    "WORKER_IP": "10.77.0.2",
    "WORKER_SSH": "vm-b",
    "HOST": "fabric",
    "MODEL_DIR": f"{PLACE}/model",
    "VENV": f"{PLACE}/venv",
    "HEAD_STATE_DIR": STATE,
    "WORKER_STATE_DIR": STATE,
    "STOP_GRACE": "20",
}
EQUIP = f"""
mkdir -p {PLACE}/venv/bin {PLACE}/model && cd {PLACE} && cp /opt/sparkctl/tests/contract/standin.py .
printf '#!/bin/sh\\nexec python3 {PLACE}/standin.py "$@"\\n' > venv/bin/vllm && chmod 755 venv/bin/vllm
echo '{{}}' > model/config.json
"""
UNITS = "systemctl list-units --all --plain --no-legend 'sparkctl-units-*' | awk '{print $1, $3}'"


def state(said: Said) -> tuple[str, list[str]]:
    return said.result["state"], [rank["state"] for rank in said.result["ranks"]]


def units(machine: Machine) -> list[list[str]]:
    return [line.split() for line in machine.run(UNITS).stdout.splitlines()]


def assert_named(looked: Said, machine: Machine) -> None:
    """The reboot is the first cause, with its time by the machine's own clock, and what to type is said."""
    reasons = looked.result["reasons"]
    told = re.fullmatch(
        r"rank 1 \(worker\): its node was rebooted at (\S+)Z, after the start, and the rank went with it", reasons[0]
    )
    assert told, looked.result
    booted = float(machine.run("date +%s").stdout) - float(machine.run("cut -d' ' -f1 /proc/uptime").stdout)
    assert abs(datetime.fromisoformat(told[1]).replace(tzinfo=UTC).timestamp() - booted) < 10
    assert reasons[-1] == "`sparkctl restart` starts all ranks anew"
    assert looked.result["ranks"][1]["detail"].endswith(f"its node was rebooted at {told[1]}Z, after the start")


def test_a_worker_that_reboots_is_missed_and_a_restart_brings_it_back(pair: Pair) -> None:
    for machine in pair.machines:
        machine.run(EQUIP)
    started = cli.on_machine(pair.a, SETTINGS, "start", timeout=900)
    assert started.code == 0, started.events[-3:]
    boot = started.result["boot"]
    assert [units(machine) for machine in pair.machines] == [
        [[f"sparkctl-units-rank{rank}-{boot}.service", "active"]] for rank in (0, 1)
    ]
    pair.b.reboot()
    looked = cli.on_machine(pair.a, SETTINGS, "status")
    # An orderly reboot stops the unit, and the shim writes down how its rank ended.
    assert (looked.code, state(looked)) == (8, ("degraded", ["alive", "exited"])), looked.result
    assert_named(looked, pair.b)
    again = cli.on_machine(pair.a, SETTINGS, "restart", timeout=900)
    assert again.code == 0, again.events[-3:]
    serving = cli.on_machine(pair.a, SETTINGS, "status")
    assert (serving.code, state(serving)) == (0, ("serving", ["alive", "alive"]))
    stopped = cli.on_machine(pair.a, SETTINGS, "stop")
    assert (stopped.code, [units(machine) for machine in pair.machines]) == (0, [[], []])


def test_a_worker_whose_power_was_cut_is_told_as_that_and_not_as_stopped(pair: Pair) -> None:
    for machine in pair.machines:
        machine.run(EQUIP)
    assert cli.on_machine(pair.a, SETTINGS, "start", timeout=900).code == 0
    pair.b.power_off()
    dark = cli.on_machine(pair.a, SETTINGS, "status")
    assert (dark.code, state(dark)[1]) == (3, ["alive", "unknown"]), dark.result
    pair.power_on(pair.b)
    back = cli.on_machine(pair.a, SETTINGS, "status")
    assert (back.code, state(back)) == (8, ("degraded", ["alive", "vanished"])), back.result
    assert_named(back, pair.b)
    stopped = cli.on_machine(pair.a, SETTINGS, "stop")
    assert (stopped.code, [units(machine) for machine in pair.machines]) == (0, [[], []])
