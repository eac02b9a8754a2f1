"""What the other tests here believe about a pair of machines, seen on one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.vm import cli
from tests.vm.recipe import DEVICE, FABRIC

if TYPE_CHECKING:
    from pathlib import Path

    from tests.vm.machine import Machine
    from tests.vm.pair import Pair


def carriers(pair: Pair) -> list[str]:
    return [machine.run(f"cat /sys/class/net/{FABRIC}/carrier").stdout.strip() for machine in pair.machines]


def test_each_machine_knows_who_it_is(pair: Pair) -> None:
    asked = "hostname; ip -4 -br addr show lan0 | awk '{print $3}'; cut -c32 /etc/machine-id"
    assert [machine.run(asked).stdout.split() for machine in pair.machines] == [
        ["vm-a", "10.77.1.1/24", "1"],
        ["vm-b", "10.77.1.2/24", "2"],
    ]


def test_nothing_failed_in_their_boot(pair: Pair) -> None:
    assert [machine.run("systemctl --failed --no-legend").stdout for machine in pair.machines] == ["", ""]


def test_their_clocks_are_this_host_s(pair: Pair) -> None:
    behind = [time.time() - float(machine.run("date +%s.%N").stdout) for machine in pair.machines]
    assert [abs(seconds) < 30 for seconds in behind] == [True, True], behind


def test_a_jumbo_packet_crosses_the_fabric_whole(pair: Pair) -> None:
    pair.a.run(f"ping -M do -s 8972 -c 2 -W 5 {pair.b.fabric_address}")


@pytest.mark.parametrize("address", ["10.77.1.2", "10.77.0.2", "vm-b"])
def test_a_reaches_b_by_ssh_on_either_network(pair: Pair, address: str) -> None:
    assert pair.a.run(f"ssh {address} hostname").stdout == "vm-b\n"


def test_an_unknown_host_key_is_refused(pair: Pair) -> None:
    pair.a.run("cp .ssh/known_hosts known && sed -i /vm-b/d .ssh/known_hosts")
    try:
        refused = pair.a.run("ssh -o BatchMode=yes vm-b true", check=False)
    finally:
        pair.a.run("mv known .ssh/known_hosts")
    assert (refused.returncode, "Host key verification failed" in refused.stderr) == (255, True)


def test_a_cut_cable_takes_the_carrier_of_both_ends_and_mending_brings_it_back(pair: Pair) -> None:
    pair.cut()
    cut = carriers(pair)
    pair.mend()
    assert (cut, carriers(pair)) == (["0", "0"], ["1", "1"])


def test_soft_roce_stands_on_the_fabric_and_nowhere_else(pair: Pair) -> None:
    shown = [machine.run("rdma -j link | tr -d '\\n\\t '").stdout for machine in pair.machines]
    assert all(f'"ifname":"{DEVICE}"' in one and f'"netdev":"{FABRIC}"' in one for one in shown), shown
    assert [one.count("ifname") for one in shown] == [1, 1]


def test_memory_is_written_from_one_machine_to_the_other_by_rdma(pair: Pair) -> None:
    pair.b.run(f"setsid ib_write_bw -d {DEVICE} -x 1 -s 4096 -n 200 -F </dev/null >/tmp/served 2>&1 &")
    asked = f"for n in 1 2 3 4 5 6; do ib_write_bw -d {DEVICE} -x 1 -s 4096 -n 200 -F 10.77.0.2 && exit; sleep 2; done"
    assert " 4096 " in pair.a.run(asked).stdout


def test_a_file_is_the_same_over_nfs_by_tcp_and_by_rdma(pair: Pair) -> None:
    pair.a.run(
        "mkdir -p /srv/lab && head -c 3000000 /dev/urandom > /srv/lab/file"
        " && exportfs -o ro,fsid=77,no_subtree_check,insecure 10.77.0.2:/srv/lab"
        # A second write of it made an oops of Debian 6.1.192 here, which then hung.
        " && modprobe rpcrdma && { grep -q rdma /proc/fs/nfsd/portlist || echo rdma 20049 > /proc/fs/nfsd/portlist; }"
    )
    expected = pair.a.run("sha256sum < /srv/lab/file").stdout
    options = ("proto=tcp,nconnect=4", "proto=rdma,port=20049")
    seen = [
        pair.b.run(
            f"mount -t nfs -o vers=4.2,ro,{option} 10.77.0.1:/srv/lab /mnt && grep -o 'proto=[tr][a-z]*' /proc/mounts"
            " && sha256sum < /mnt/file; umount /mnt"
        ).stdout.splitlines()
        for option in options
    ]
    pair.a.run("exportfs -u 10.77.0.2:/srv/lab")
    assert seen == [["proto=tcp", expected.strip()], ["proto=rdma", expected.strip()]]


def test_a_dataset_goes_from_pool_to_pool(pair: Pair) -> None:
    for machine in pair.machines:
        machine.run("zpool create -f -m /tank tank /dev/vdb")
    pair.a.run("zfs create tank/data && head -c 3000000 /dev/urandom > /tank/data/file && zfs snapshot tank/data@one")
    pair.a.run("zfs send -Lce tank/data@one | ssh vm-b zfs receive -su tank/data")
    pair.b.run("zfs mount tank/data")
    same = [machine.run("sha256sum < /tank/data/file").stdout for machine in pair.machines]
    for machine in pair.machines:
        machine.run("zpool destroy tank")
    assert same[0] == same[1]


def test_a_container_runs(pair: Pair) -> None:
    def ran(machine: Machine) -> str:
        machine.run("tar -C / -c bin/busybox | docker import - busybox:lab >/dev/null")
        return machine.run("docker run --rm --network none busybox:lab /bin/busybox echo from inside").stdout

    assert [ran(machine) for machine in pair.machines] == ["from inside\n", "from inside\n"]


def test_sparkctl_runs_on_a_machine_and_on_this_host(pair: Pair, tmp_path: Path) -> None:
    here = cli.on_host(pair, tmp_path, cli.SHARED, "status")
    there = cli.on_machine(pair.a, cli.SHARED, "status")
    assert [(said.code, said.result["state"]) for said in (here, there)] == [(9, "absent"), (9, "absent")]


def test_a_power_cut_loses_what_was_not_written_and_nothing_else(pair: Pair) -> None:
    pair.b.run("echo kept > kept; sync; echo lost > lost")
    pair.b.power_off()
    off = pair.a.run(f"ping -c 2 -W 2 {pair.b.fabric_address}", check=False).returncode
    pair.power_on(pair.b)
    assert (off, pair.b.run("ls kept lost", check=False).stdout) == (1, "kept\n")
    assert pair.b.run("systemctl is-active --quiet vm-lab-rxe.service; echo $?").stdout == "0\n"
