"""What a node says of its set-up becomes facts."""

import pytest

from cluster.model.host import Cache, Gpu, Host, Owner, Reached
from cluster.model.units import Bytes
from cluster.probe.host import parse_gpus, parse_host
from cluster.probe.reach import parse_reach

SPARK = """user\top
uid\t1000
kernel\t7.0.0-1019-nvidia
cmdline\tBOOT_IMAGE=/vmlinuz root=UUID=1 ro quiet
min_free\t67584
watermark\t10
memlock\t16384000
meminfo\tCmaTotal:             0 kB
meminfo\tCmaFree:         940604 kB
meminfo\tSwapTotal:      16777212 kB
meminfo\tSwapFree:       16777212 kB
linger\tno
service\tsystemd-networkd
service\tNetworkManager
service\tsystemd-logind
owner\tenp1s0f1np1 networkd /run/systemd/network/10-netplan-enp1s0f1np1.network
nmcli\tenP7s7:connected:Wired connection 1
nmcli\tdocker0:connected (externally):docker0
nmcli\tenp1s0f1np1:unmanaged:
ufw\tENABLED=yes
host_key\tssh-ed25519 AAAAC3Nza op@spark-a
driver\t580.95.05
driver_since\t1759300000
cdi\t/etc/cdi/nvidia.yaml 580.82.09
cache\t/home/op/.triton/cache nfs 1750000000
cache\t/home/op/.cache/vllm ext2/ext3\x20
product\tNVIDIA_DGX_Spark
firmware\t5.36_0ACUM018
firmware\t08/07/2025
nccl\t/etc/nccl.conf:NCCL_IB_GID_INDEX=3
"""


def test_a_spark_is_read_whole():
    assert parse_host(SPARK) == Host(
        kernel="7.0.0-1019-nvidia",
        command_line="BOOT_IMAGE=/vmlinuz root=UUID=1 ro quiet",
        cma_total=Bytes(0),
        cma_free=Bytes(963178496),
        swap_total=Bytes(17179865088),
        swap_free=Bytes(17179865088),
        min_free=Bytes(69206016),
        watermark_scale=10,
        memlock="16384000",
        uid=1000,
        user="op",
        removes_ipc=True,
        lingers=False,
        services=("systemd-networkd", "NetworkManager", "systemd-logind"),
        firewall_on=True,
        managers=("NetworkManager", "networkd"),
        owners=(
            Owner("enp1s0f1np1", "networkd", "/run/systemd/network/10-netplan-enp1s0f1np1.network"),
            Owner("enP7s7", "NetworkManager", "Wired connection 1"),
        ),
        host_keys=("ssh-ed25519 AAAAC3Nza",),
        driver="580.95.05",
        driver_since=1759300000,
        devices=(("/etc/cdi/nvidia.yaml", "580.82.09"),),
        caches=(
            Cache("/home/op/.triton/cache", "nfs", 1750000000),
            Cache("/home/op/.cache/vllm", "ext2/ext3"),
        ),
        product="NVIDIA_DGX_Spark",
        firmware="5.36_0ACUM018 08/07/2025",
        nccl_files=(("/etc/nccl.conf", "NCCL_IB_GID_INDEX=3"),),
    )


def test_a_node_that_says_nothing_is_not_known():
    assert parse_host("") == Host()


def test_without_logind_nothing_is_removed_and_a_later_line_wins():
    assert parse_host("linger\tno\n").removes_ipc is None
    text = "service\tsystemd-logind\nremove_ipc\tRemoveIPC=yes\nremove_ipc\tRemoveIPC=no\n"
    assert parse_host(text).removes_ipc is False


def test_an_interface_of_ifupdown_has_an_owner():
    assert parse_host("ifupdown\tiface eth1 inet static\n").owners == (Owner("eth1", "ifupdown"),)


@pytest.mark.parametrize(
    ("row", "lost"),
    [
        ("yes:/etc/NetworkManager/system-connections/cx7.nmconnection:cx7", ""),
        ("yes:/run/NetworkManager/system-connections/netplan-cx7.nmconnection:cx7", ""),
        ("no:/etc/NetworkManager/system-connections/cx7.nmconnection:cx7", "it does not connect by itself"),
        ("yes:/run/NetworkManager/system-connections/cx7.nmconnection:cx7", "it lies in /run/NetworkManager/"),
        ("no:/etc/NetworkManager/system-connections/lan.nmconnection:lan", ""),
    ],
)
def test_a_connection_of_networkmanager_may_not_survive_a_reboot(row, lost):
    (owner,) = parse_host(f"nmcli\teth9:connected:cx7\nconnection\t{row}\n").owners
    assert (owner.interface, owner.by, owner.file) == ("eth9", "NetworkManager", "cx7")
    assert (owner.lost[: len(lost)], bool(owner.lost)) == (lost, bool(lost))


def test_a_gpu_without_figures_is_not_an_error():
    """MEM-02: `[N/A]` is unknown, whichever way it is spelt."""
    assert parse_gpus("NVIDIA GB10, 580.95.05, P0, 22.41, 0x0000000000000004\n") == (
        Gpu("NVIDIA GB10", "580.95.05", "P0", 22.41, ("software power cap",)),
    )
    assert parse_gpus("NVIDIA GB10, 580.95.05, P8, [N/A], 0x0000000000000001\n") == (
        Gpu("NVIDIA GB10", "580.95.05", "P8", None),
    )
    # as a real one prints it
    assert parse_gpus("NVIDIA H200, 580.159.04, P0, 111.41, 0x0000000000000001\n") == (
        Gpu("NVIDIA H200", "580.159.04", "P0", 111.41),
    )
    assert parse_gpus("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n") == ()


def test_what_a_node_reached_is_read():
    text = """[{"address": "10.40.0.1", "interface": "enp1s0f0np0", "mtu": 9000, "ping": true, "full": false,
 "ports": {"29521": "timeout", "22": "open"}}]"""
    assert parse_reach(text) == (
        Reached("10.40.0.1", "enp1s0f0np0", 9000, True, False, ((22, "open"), (29521, "timeout"))),
    )
    assert parse_reach("") == ()
