"""The lab keeps its promises: two separate nodes, faults that bite, and nothing left behind."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.node import Running, until
from tests.lab.nodes import LABS, Lab, missing, sweep_stale
from tests.lab.specification import REPOSITORY
from tests.lab.start import inits_of

pytestmark = pytest.mark.lab

PING = ("ping", "-c", "1", "-W", "1")
WRITE_A_MEGABYTE = ("dd", "if=/dev/zero", "of=/root/.local/state/file", "bs=1M", "count=1")


def listens(lab: Lab, address: str, port: int) -> bool:
    program = f"import socket; socket.create_server(({address!r},{port}))"
    return lab.a.run(("python3", "-S", "-c", program)).returncode == 0


@pytest.mark.parametrize("address", ["10.77.0.2", "10.77.1.2", "10.77.1.9"])
def test_node_a_reaches_the_other_node_and_the_laptop(lab: Lab, address: str) -> None:
    assert lab.a.run((*PING, address)).returncode == 0


@pytest.mark.parametrize("target", ["spark-b", "10.77.1.2", "10.77.0.2"])
def test_ssh_knows_the_worker_under_each_of_its_names(lab: Lab, target: str) -> None:
    assert lab.a.run(("ssh", "-o", "BatchMode=yes", target, "hostname"), check=True).stdout == "spark-b\n"


@pytest.mark.parametrize("target", ["spark-a", "spark-b"])
def test_the_laptop_reaches_both_nodes(lab: Lab, target: str) -> None:
    assert lab.laptop.run(("ssh", "-o", "BatchMode=yes", target, "hostname"), check=True).stdout == f"{target}\n"


def test_ssh_refuses_a_host_key_it_does_not_know(lab: Lab) -> None:
    stranger = ("ssh", "-o", "BatchMode=yes", "-o", "UserKnownHostsFile=/dev/null", "spark-b", "hostname")
    refused = lab.a.run(stranger)
    assert (refused.returncode, refused.stdout) == (255, "")
    assert "Host key verification failed" in refused.stderr


@pytest.mark.parametrize("place", ["/tmp", "/run", "/dev/shm", "/root/.local/state", "/root/.cache", "/opt"])
def test_what_a_node_writes_no_one_else_sees(lab: Lab, place: str) -> None:
    lab.a.run(("sh", "-c", f"echo mine > {place}/lab-test-file"), check=True)
    assert lab.a.path(f"{place}/lab-test-file").read_text() == "mine\n"
    assert not lab.b.path(f"{place}/lab-test-file").exists()
    assert not Path(f"{place}/lab-test-file").exists()


def test_a_node_has_its_own_name_and_processes(lab: Lab) -> None:
    with lab.b.popen(("sleep", "600")):
        until(lambda: bool(lab.b.processes("sleep 600")), "sleep runs on b")
        assert (lab.a.run(("hostname",)).stdout, lab.b.run(("hostname",)).stdout) == ("spark-a\n", "spark-b\n")
        assert lab.a.processes() == ()
        assert "sleep" not in lab.a.run(("ps", "-e")).stdout


def test_the_checkout_is_lent_and_cannot_be_changed(lab: Lab) -> None:
    assert lab.a.run(("test", "-f", f"{REPOSITORY}/pyproject.toml")).returncode == 0
    assert "Read-only file system" in lab.a.run(("touch", f"{REPOSITORY}/lab-test-file")).stderr


def test_a_pulled_cable_takes_the_carrier_and_leaves_the_control_network(lab: Lab) -> None:
    lab.cut_link()
    links = [node.run(("ip", "-br", "link", "show", "eth9")).stdout for node in lab.nodes]
    assert all("NO-CARRIER" in link and ",UP" in link for link in links), links
    assert lab.a.run((*PING, "10.77.0.2")).returncode == 1
    assert lab.a.run(("ssh", "spark-b", "true")).returncode == 0
    lab.restore_link()
    assert lab.a.run((*PING, "10.77.0.2")).returncode == 0


def test_a_node_can_drop_off_the_control_network_alone(lab: Lab) -> None:
    lab.cut_control(lab.b)
    assert lab.a.run((*PING, "10.77.1.2")).returncode == 1
    assert lab.a.run((*PING, "10.77.0.2")).returncode == 0
    lab.restore_control(lab.b)
    assert lab.a.run((*PING, "10.77.1.2")).returncode == 0


def test_a_full_disk_takes_no_byte_until_it_is_freed(lab: Lab) -> None:
    lab.fill_disk(lab.a)
    assert "No space left" in lab.a.run(WRITE_A_MEGABYTE).stderr
    assert lab.b.run(WRITE_A_MEGABYTE).returncode == 0
    lab.free_disk(lab.a)
    assert lab.a.run(WRITE_A_MEGABYTE).returncode == 0


def test_an_occupied_port_is_taken_until_it_is_released(lab: Lab) -> None:
    squatter = lab.occupy_port(lab.a, "10.77.0.1", 8000)
    assert not listens(lab, "10.77.0.1", 8000)
    squatter.end()
    assert listens(lab, "10.77.0.1", 8000)


def test_a_signal_reaches_the_command_and_its_own_exit_code_comes_back(lab: Lab) -> None:
    command = lab.a.popen(
        ("sh", "-c", "trap 'echo caught; exit 7' INT; echo on; while :; do sleep 0.05; done"), stdout=-1
    )
    assert command.entry.stdout is not None
    assert command.entry.stdout.readline() == "on\n"
    command.signal(signal.SIGINT)
    assert (command.communicate(timeout=10)[0], command.poll()) == ("caught\n", 7)


def test_a_command_out_of_time_is_gone(lab: Lab) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        lab.a.run(("sleep", "600"), timeout=0.5)
    assert lab.a.processes() == ()


def test_a_process_is_ended_by_the_number_it_has_inside(lab: Lab) -> None:
    command: Running = lab.a.popen(("sleep", "600"))
    until(lambda: bool(lab.a.processes("sleep 600")), "sleep runs on a")
    lab.a.kill(lab.a.processes("sleep 600")[0].pid)
    assert command.wait(10) == -signal.SIGKILL


def test_orphans_are_buried(lab: Lab) -> None:
    lab.a.run(("sh", "-c", "setsid sleep 0.2 & exit 0"), check=True)
    until(lambda: lab.a.processes() == (), "no orphan and no zombie on a")


def test_a_node_can_run_systemd_and_end_a_whole_unit(systemd_lab: Lab) -> None:
    node = systemd_lab.b
    program = "echo hello; setsid sleep 600 & exec sleep 601"
    start = (
        "systemd-run",
        "--quiet",
        "--collect",
        "--unit=rank1",
        "--property=KillMode=control-group",
        "sh",
        "-c",
        program,
    )
    assert systemd_lab.a.run(("ssh", "spark-b", shlex.join(start))).returncode == 0
    assert node.run(("systemctl", "is-system-running"), check=True).stdout == "running\n"
    until(lambda: [process.title for process in node.processes()] == ["sleep 601", "sleep 600"], "both sleep on b")
    assert systemd_lab.a.processes() == ()
    node.run(("systemctl", "stop", "rank1"), check=True)
    assert node.processes() == ()
    assert "hello" in node.run(("journalctl", "--no-pager", "--unit=rank1"), check=True).stdout


def test_down_leaves_no_control_group_of_systemd(lab_ground: None) -> None:
    if reason := missing(systemd=True):
        pytest.skip(f"not run: {reason}")
    with Lab.up(systemd=True) as lab:
        lab.a.run(("systemd-run", "--quiet", "--unit=rank0", "sleep", "600"), check=True)
        groups = [Path(line) for file in lab.folder.glob("*/cgroups") for line in file.read_text().splitlines()]
        assert groups
        assert all(group.is_dir() for group in groups)
    assert not [group for group in groups if group.exists()]


def test_down_leaves_no_process_mount_interface_or_file(lab_ground: None) -> None:
    before = (interfaces(), mounts())
    lab = Lab.up()
    detached = [node.run(("sh", "-c", "setsid sleep 600 > /dev/null 2>&1 & echo $!")) for node in lab.nodes]
    assert all(one.returncode == 0 for one in detached)
    spaces = {Path(f"/proc/{node.init}/ns/pid").readlink() for node in (lab.a, lab.b, lab.laptop)}
    assert spaces <= pid_namespaces()
    lab.down()
    assert not spaces & pid_namespaces()
    assert (interfaces(), mounts()) == before
    assert not lab.folder.exists()


def test_a_killed_run_leaves_no_process_and_its_folder_is_swept(lab_ground: None) -> None:
    program = "from tests.lab.nodes import Lab; lab = Lab.up(); print(lab.folder, flush=True); input()"
    with subprocess.Popen(
        (sys.executable, "-c", program), cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        owner.kill()
    assert folder.parent == LABS
    until(lambda: not tuple(inits_of(folder)), "the nodes end with their owner")
    assert folder in sweep_stale()
    assert not folder.exists()


def interfaces() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/net").iterdir())


def mounts() -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if "sparkctl-lab" in line]


def pid_namespaces() -> set[Path]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.add((process / "ns" / "pid").readlink())
        except OSError:
            continue
    return found
