"""What each check promises: what it looks at, what it wants, why that matters, and where that is known from."""

from difflib import get_close_matches
from enum import StrEnum

from cluster.model.checks import CheckResult, Contract, Finding, Severity
from cluster.plan.traps import TRAPS

REFUSAL, WARNING, NOTE = Severity.REFUSAL, Severity.WARNING, Severity.NOTE

_CHECKS: tuple[Contract, ...] = (
    Contract(
        "PORT.FREE",
        "the head's socket table (ss -ltn)",
        "PORT and MASTER_PORT free",
        "the API or the rendezvous cannot listen, and the boot fails after the model was loaded",
        REFUSAL,
    ),
    Contract(
        "SERVER.PRESENT",
        "the program vllm in VENV, on every node",
        "it is there",
        "a rank that cannot start leaves the other one waiting",
        REFUSAL,
    ),
    Contract(
        "MODEL.PRESENT",
        "the model's folder on every node: config.json, every file readable",
        "a whole model",
        "a missing file is only noticed ten minutes into loading",
        REFUSAL,
    ),
    Contract(
        "DISK.STATE",
        "free bytes of the folder for logs, on every node",
        "256 MiB",
        "a boot whose log cannot be written cannot be explained",
        REFUSAL,
    ),
    Contract(
        "API.KEY",
        "the file with the API key on the head",
        "present, not empty, mode 0600",
        "everybody on the node could read it",
        REFUSAL,
    ),
    Contract(
        "API.OPEN",
        "the address the API listens on, and whether a key is set",
        "loopback, or a private network",
        "the key guards /v1 only; other routes of vLLM answer without it",
        NOTE,
        source="seen on vLLM 0.32",
    ),
    Contract(
        "RANKS.VERSIONS",
        "the packages of VENV on every node",
        "equal ones",
        "ranks of different builds answer wrong text with status 200, or hang",
        REFUSAL,
        source="dynamo 2706; sparkrun 152",
    ),
    Contract(
        "RANKS.MODEL",
        "a digest of the model on every node",
        "equal ones",
        "ranks with different weights answer wrong text with status 200",
        REFUSAL,
    ),
    Contract(
        "RANKS.ARGV",
        "each rank's command line, read back from its node",
        "one for all",
        "unequal flags boot silently and hang or answer wrong text later",
        REFUSAL,
        source="measured with vLLM 0.26 and NCCL 2.28",
    ),
    Contract(
        "RANKS.IMAGE",
        "the layers of the image on every node",
        "equal ones",
        "one tag can stand for two images: shape errors at the first step, or a hang without a word",
        REFUSAL,
        source="dynamo 2706; sparkrun 152",
    ),
    Contract(
        "IMAGE.PRESENT",
        "the image of the container runtime on every node",
        "it is there",
        "a rank that cannot start leaves the other one waiting",
        REFUSAL,
    ),
    Contract(
        "MEM.BOOT_MARGIN",
        "MemAvailable of every node, against what the weights, the KV pool and the boot take",
        "enough of it",
        "a node that runs out is unreachable for minutes, or for good",
        REFUSAL,
        source="two-Spark kits; each boot's measured figures",
        fix="sparkctl fit shows the figures and what could be given up",
    ),
    Contract(
        "MEM.FREE",
        "MemFree of every node",
        "enough for what the driver takes at once",
        "CUDA sees what is free, not what is available: after a download the page cache holds it",
        WARNING,
        source="vllm-project/vllm 35313 and 35920",
        date="2026-09-30",
    ),
    Contract(
        "MEM.KILLERS",
        "earlyoom, nohang and systemd-oomd on every node",
        "none active",
        "a healthy server leaves 3 to 4 percent of the memory, which these take for an emergency and end it",
        WARNING,
        source="seed kits' notes on earlyoom; earlyoom 1.7 acts below 10 percent",
        date="2026-09-30",
        unless="a threshold below what the server leaves",
        fix="sudo systemctl disable --now earlyoom",
    ),
    Contract(
        "MEM.SHM",
        "what is free in /dev/shm of every node",
        "1 GiB",
        "ranks die with “No space left on device” or a bus error while the disks are empty",
        REFUSAL,
        source="vllm-project/vllm 1710 and 789; NVIDIA/nccl 290",
        date="2026-09-30",
    ),
    Contract(
        "MEM.WEIGHTS",
        "the headers of the model's files on the head",
        "whole files that can be counted",
        "what is not counted is missing in the prediction",
        WARNING,
    ),
    Contract(
        "FABRIC.ADDRESS",
        "the node's addresses (ip -j addr)",
        "the fabric address on an interface that is up, and no alias of the loopback",
        "NCCL cannot use an alias on lo, and a rank binds to an address it does not have",
        REFUSAL,
        source="NVIDIA/nccl 1053; two-Spark kits",
        date="2026-09-30",
    ),
    Contract(
        "FABRIC.HCA",
        "RDMA devices in /sys/class/infiniband, and the names in HEAD_CX7_IB, read as NCCL reads NCCL_IB_HCA",
        "every name stands for an active port with an IPv4 address",
        "a blank or a misspelt name leaves a rail out without a word",
        REFUSAL,
        source="NCCL source, parseStringList and matchIfList; MiaAI-Lab DSpark kit pull 95",
        date="2026-09-30",
    ),
    Contract(
        "FABRIC.GID",
        "the whole GID table of every port a rank uses, just before the boot",
        "an entry that is RoCE v2, carries the fabric address, and belongs to its interface",
        "the usual index 3 moves when addresses do; a wrong one fails a minute into the boot with errno 61 or 110",
        REFUSAL,
        source="MiaAI-Lab GLM kit pulls 16, 26 and 72; eugr/spark-vllm-docker 252; tonyd2wild 38",
        date="2026-09-30",
        fix="leave HEAD_GID and WORKER_GID empty, or set what the refusal suggests",
    ),
    Contract(
        "FABRIC.RAILS",
        "the ports of all ranks against each other: physical ports, subnets",
        "both halves of the cable, each with a partner in its subnet",
        "one half alone carries about 100 of 200 Gb/s; prefill loses 5 to 8 percent, decoding nothing",
        REFUSAL,
        source="tonyd2wild pull 35; MiaAI-Lab V4 kit pull 104; eugr/spark-vllm-docker 270",
        date="2026-09-30",
    ),
    Contract(
        "FABRIC.MTU",
        "the MTU of both ends of each rail",
        "equal ones, 9000 where the switch allows",
        "small messages pass, and the first large collective dies with completion status 12",
        REFUSAL,
        source="NVIDIA/nccl 1524; tonyd2wild 38",
        date="2026-09-30",
    ),
    Contract(
        "FABRIC.JUMBO",
        "a ping that fills the MTU and may not be fragmented, from every node to every other",
        "an answer",
        "a switch with a smaller MTU drops full packets without a word",
        REFUSAL,
    ),
    Contract(
        "FABRIC.REACH",
        "TCP connections over the fabric: the rendezvous port and a high one; a refusal proves the way",
        "open, or refused where nothing listens yet",
        "a firewall that lets ssh and ping pass stops the rendezvous for minutes",
        REFUSAL,
        source="NVIDIA/deepops 814; eugr/spark-vllm-docker 335",
        date="2026-09-30",
        fix="sudo ufw allow from the other node's fabric address",
    ),
    Contract(
        "FABRIC.SSH",
        "port 22 of the other nodes' fabric addresses",
        "open",
        "copying weights or images over the fabric needs it; serving does not",
        NOTE,
    ),
    Contract(
        "FABRIC.SPEED",
        "the rate of active ports in sysfs",
        "200 Gb/s",
        "a cable that is not seated negotiates 100; a port that is down reports a stale 40 and is not judged",
        WARNING,
        source="NVIDIA/dgx-spark-playbooks, multi-node guide",
        date="2026-09-30",
    ),
    Contract(
        "FABRIC.PCIE",
        "current_link_width and the PCIe error counters of each function",
        "4 lanes, no fatal errors",
        "firmware before April 2026 wired the second half with 2 lanes; boxes with fatal errors lock up under load",
        WARNING,
        source="tonyd2wild pull 35; MiaAI-Lab V4 kit 146",
        date="2026-09-30",
    ),
    Contract(
        "FABRIC.SUBNET",
        "the subnets of all interfaces of a node",
        "one interface in each",
        "with two the kernel answers on either, and a rail's traffic takes the wrong cable",
        WARNING,
        source="eugr/spark-vllm-docker 270",
        date="2026-09-30",
    ),
    Contract(
        "FABRIC.OWNER",
        "networkd, NetworkManager and ifupdown: who configures the fabric's interface; DHCP",
        "a fixed address that one of them sets at every boot",
        "after a reboot the address is gone, or another one is there",
        WARNING,
        source="two-Spark kits; sparkrun 0.4",
        date="2026-09-30",
    ),
    Contract(
        "HOST.MACHINE_ID",
        "/etc/machine-id of all nodes",
        "different ones",
        "nodes from one copied disk get the same DHCP leases, and tools take them for one",
        WARNING,
        source="spark-pulse pull 60",
        date="2026-09-30",
    ),
    Contract(
        "HOST.SSH_KEY",
        "the ssh host keys of all nodes",
        "different ones",
        "nodes from one copied disk can be taken for each other",
        WARNING,
    ),
    Contract(
        "HOST.ONE_MACHINE",
        "the kernel's boot id of all nodes",
        "different ones",
        "two names of one machine: both ranks would share its memory",
        WARNING,
    ),
)


def contracts() -> tuple[Contract, ...]:
    """Every check there is, by id."""
    traps = tuple(
        Contract(
            trap.id,
            trap.seen,
            "not there",
            trap.does,
            REFUSAL if trap.can_refuse else trap.severity,
            trap.source,
            trap.date,
            trap.unless,
            trap.fix,
        )
        for trap in TRAPS
    )
    return tuple(sorted((*_CHECKS, *traps), key=lambda one: one.id))


def contract(check: str) -> Contract | None:
    return next((one for one in contracts() if one.id == check.upper()), None)


class Purpose(StrEnum):
    """The verb that is checked for: sharing and packing need no free port and no memory for a model."""

    START = "start"
    SHARE = "share"
    PACK = "pack"


_NEEDED = {
    Purpose.PACK: ("MODEL.PRESENT", "DISK"),
    Purpose.SHARE: (
        "MODEL.PRESENT",
        "DISK",
        "FABRIC.ADDRESS",
        "FABRIC.JUMBO",
        "FABRIC.MTU",
        "FABRIC.OWNER",
        "FABRIC.REACH",
        "FABRIC.SSH",
        "HOST.FIREWALL",
        "HOST.MACHINE_ID",
        "HOST.ONE_MACHINE",
        "HOST.SSH_KEY",
    ),
}


def is_needed(check: str, purpose: Purpose) -> bool:
    return purpose is Purpose.START or is_asked(check, _NEEDED[purpose])


def with_contract(finding: Finding) -> CheckResult:
    """The finding beside what its check looked at, and where the rule comes from."""
    known = contract(finding.id)
    return CheckResult(finding, known.looks_at if known else "", known.source if known else "")


def is_asked(check: str, only: tuple[str, ...]) -> bool:
    """`--only FABRIC` takes every check of that group, `--only FABRIC.GID` the one."""
    return not only or any(check == one.upper() or check.startswith(f"{one.upper()}.") for one in only)


def unknown(asked: tuple[str, ...]) -> str:
    """The first name that is no check and no group, with what may have been meant; empty when all are known."""
    known = [one.id for one in contracts()]
    groups = sorted({one.partition(".")[0] for one in known})
    for name in asked:
        if name.upper() not in (*known, *groups):
            near = get_close_matches(name.upper(), [*known, *groups], 1)
            return f"{name} is no check" + (f"; did you mean {near[0]}?" if near else "")
    return ""
