"""What is in a machine of the VM lab: its packages, its files, and the commands that make one root of them.

    host 127.0.0.1 ──ssh── user0         user0 ──ssh── 127.0.0.1 host
                     vm-a                     vm-b
       10.77.1.1 lan0 ──────────────────────── lan0 10.77.1.2      control
       10.77.0.1 enp1s0f1np1 ═════ enp1s0f1np1 10.77.0.2           the fabric, with rocep1s0f1 on it (soft RoCE)

Both machines boot the same root; `vm_lab.node=a|b` on the kernel's command line says which of them it is.
"""

from __future__ import annotations

from pathlib import Path

SUITE, MIRROR, SECURITY = "bookworm", "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"
FABRIC, DEVICE, CONTROL = "enp1s0f1np1", "rocep1s0f1", "lan0"
NODES = {"a": 1, "b": 2}
REPOSITORY = Path(__file__).resolve().parents[2]

SYSTEM = (
    "systemd-sysv", "udev", "dbus", "libpam-systemd", "dbus-user-session", "kmod", "initramfs-tools",
    "linux-image-amd64", "openssh-server", "openssh-client", "iproute2", "iputils-ping", "procps", "hostname",
    "netbase", "sudo", "acl", "python3", "rsync", "less", "zstd", "e2fsprogs", "fdisk", "busybox-static",
    "ca-certificates", "nfs-kernel-server", "nfs-common", "docker.io", "apparmor", "rdma-core", "ibverbs-utils",
    "ibverbs-providers", "perftest", "ethtool", "nftables", "iptables",
)  # fmt: skip
# The modules are built here, natively, against the guest's own kernel: under emulation it takes an hour.
ZFS = ("linux-headers-amd64", "dkms", "zfs-dkms", "zfsutils-linux")

SOURCES = f"""deb {MIRROR} {SUITE} main contrib
deb {MIRROR} {SUITE}-updates main contrib
deb {SECURITY} {SUITE}-security main contrib
"""

# Which machine this is, before anything reads its name, addresses or host key.
BECOME = """#!/bin/sh
set -eu
node=$(sed -n 's/.*vm_lab.node=\\([a-z]\\).*/\\1/p' /proc/cmdline)
[ -e /etc/vm-lab/become ] || { cp -a "/etc/vm-lab/$node/." /; touch /etc/vm-lab/become; }
hostname -F /etc/hostname
"""
BECOME_UNIT = """[Unit]
Description=Become machine a or b of the VM lab
DefaultDependencies=no
After=systemd-remount-fs.service
Before=sysinit.target systemd-networkd.service ssh.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/vm-lab-become
[Install]
WantedBy=sysinit.target
"""
RXE_UNIT = f"""[Unit]
Description=Soft RoCE on the fabric interface
After=systemd-networkd.service sys-subsystem-net-devices-{FABRIC}.device
Wants=sys-subsystem-net-devices-{FABRIC}.device
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/modprobe rdma_rxe
ExecStart=/usr/bin/rdma link add {DEVICE} type rxe netdev {FABRIC}
ExecStop=/usr/bin/rdma link delete {DEVICE}
[Install]
WantedBy=multi-user.target
"""
NETWORK = """[Match]
Name={name}
[Link]
RequiredForOnline=no
{mtu}[Network]
Address={address}/24
LinkLocalAddressing=ipv6
IPv6AcceptRA=no
"""
USER_NETWORK = """[Match]
Name=user0
[Network]
DHCP=no
Address=10.0.2.15/24
LinkLocalAddressing=no
IPv6AcceptRA=no
"""
LINK = "[Match]\nMACAddress={macs}\n[Link]\nNamePolicy=\nName={name}\n"
SSHD = """HostKey /etc/ssh/vm_lab_host_key
PermitRootLogin prohibit-password
PasswordAuthentication no
UseDNS no
"""
SSH_CLIENT = """Host vm-a vm-b 10.77.*
    User root
    IdentityFile ~/.ssh/id_ed25519
    IdentitiesOnly yes
    StrictHostKeyChecking yes
    UserKnownHostsFile ~/.ssh/known_hosts
    ConnectTimeout 20
Host vm-a
    HostName 10.77.1.1
Host vm-b
    HostName 10.77.1.2
"""
FSTAB = """/dev/vda / ext4 defaults,noatime 0 1
checkout /opt/sparkctl 9p trans=virtio,version=9p2000.L,ro,msize=262144,nofail,x-systemd.automount 0 0
lent /mnt/lent 9p trans=virtio,version=9p2000.L,ro,msize=262144,nofail,noauto,x-systemd.automount 0 0
"""
# The checkout is lent read-only and read afresh by every boot; its libraries are in the image.
SPARKCTL = """#!/bin/sh
export PYTHONPATH=/opt/sparkctl:/opt/sparkctl-libraries PYTHONPYCACHEPREFIX=/var/cache/sparkctl-pyc
exec python3 -m cluster "$@"
"""
# Nothing may wait for the network, look for updates, or load what no test needs.
DISABLED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
    "fstrim.timer", "man-db.timer", "docker.service", "containerd.service", "apparmor.service",
    "systemd-timesyncd.service", "systemd-networkd-wait-online.service", "zfs-zed.service", "nfs-blkmap.service",
    "systemd-pstore.service", "nftables.service",
)  # fmt: skip
MASKED = ("getty@.service", "apt-daily.service", "systemd-networkd-wait-online.service", "systemd-random-seed.service")
ENABLED = ("vm-lab-become.service", "vm-lab-rxe.service", "systemd-networkd.service", "docker.socket", "ssh.service",
           "nfs-server.service")  # fmt: skip


def mac(node: str, port: int) -> str:
    return f"52:54:00:77:{NODES[node]:02x}:{port:02x}"


def files(keys: dict[str, tuple[str, str]]) -> dict[str, tuple[int, str]]:
    """Every file of ours in the root, with its mode; `keys` are (secret, public) of person, a and b."""
    person = keys["person"]
    common: dict[str, tuple[int, str]] = {
        "/etc/apt/sources.list": (0o644, SOURCES),
        "/etc/fstab": (0o644, FSTAB),
        "/etc/hostname": (0o644, "vm\n"),
        "/etc/machine-id": (0o444, ""),
        "/etc/resolv.conf": (0o644, "# no name server in the lab\n"),
        "/etc/ssh/sshd_config.d/vm-lab.conf": (0o644, SSHD),
        "/etc/sudoers.d/spark": (0o440, "spark ALL=(ALL) NOPASSWD: ALL\n"),
        "/etc/systemd/system/vm-lab-become.service": (0o644, BECOME_UNIT),
        "/etc/systemd/system/vm-lab-rxe.service": (0o644, RXE_UNIT),
        "/etc/initramfs-tools/conf.d/vm-lab": (0o644, "MODULES=list\nCOMPRESS=zstd\n"),
        "/etc/initramfs-tools/modules": (0o644, "virtio_pci\nvirtio_blk\next4\ncrc32c_generic\n"),
        "/etc/modules-load.d/vm-lab.conf": (0o644, "9pnet_virtio\n"),
        "/usr/local/sbin/vm-lab-become": (0o755, BECOME),
        "/var/lib/systemd/linger/root": (0o644, ""),  # else every login starts a user manager: ten seconds here
        "/usr/local/bin/sparkctl": (0o755, SPARKCTL),
    }
    for port, name in ((1, "user0"), (2, CONTROL), (3, FABRIC)):
        macs = " ".join(mac(node, port) for node in NODES)
        common[f"/etc/systemd/network/10-{name}.link"] = (0o644, LINK.format(macs=macs, name=name))
    for home in ("/root", "/home/spark"):
        common |= {
            f"{home}/.ssh/config": (0o600, SSH_CLIENT),
            f"{home}/.ssh/id_ed25519": (0o600, person[0]),
            f"{home}/.ssh/id_ed25519.pub": (0o644, person[1]),
            f"{home}/.ssh/authorized_keys": (0o600, person[1]),
            f"{home}/.ssh/known_hosts": (0o600, known_hosts(keys)),
        }
    for node in NODES:
        common |= {f"/etc/vm-lab/{node}{path}": entry for path, entry in _own_files(node, keys[node]).items()}
    return common


def known_hosts(keys: dict[str, tuple[str, str]]) -> str:
    return "".join(f"vm-{node},10.77.1.{number},10.77.0.{number} {keys[node][1]}" for node, number in NODES.items())


def _own_files(node: str, key: tuple[str, str]) -> dict[str, tuple[int, str]]:
    number = NODES[node]
    others = "".join(f"10.77.1.{index} vm-{other}\n" for other, index in NODES.items() if other != node)
    return {
        "/etc/hostname": (0o644, f"vm-{node}\n"),
        "/etc/hosts": (0o644, f"127.0.0.1 localhost\n127.0.1.1 vm-{node}\n{others}"),
        "/etc/ssh/vm_lab_host_key": (0o600, key[0]),
        "/etc/systemd/network/20-user0.network": (0o644, USER_NETWORK),
        f"/etc/systemd/network/20-{CONTROL}.network": (
            0o644, NETWORK.format(name=CONTROL, mtu="", address=f"10.77.1.{number}"),
        ),
        f"/etc/systemd/network/20-{FABRIC}.network": (
            0o644, NETWORK.format(name=FABRIC, mtu="MTUBytes=9000\n", address=f"10.77.0.{number}"),
        ),
    }  # fmt: skip
