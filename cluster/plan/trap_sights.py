"""How each known trap is seen: pure looks at facts and settings, each a sentence of evidence, "" or None (unseen)."""

import re
from dataclasses import dataclass

from cluster.model.facts import NodeFacts
from cluster.model.rules import has_vision
from cluster.model.settings import NodeSettings, RuntimeKind, Settings
from cluster.model.units import format_bytes

GIB = 2**30
SPARK = 100 * GIB  # below it a machine is none, and figures made for one mean nothing
SYSTEM_USERS = 1000
ONE_IMAGE, IMAGE_ROOM = 1025, 1536


@dataclass(frozen=True, slots=True)
class Sight:
    """One node, and what was asked of it."""

    settings: Settings
    node: NodeSettings
    facts: NodeFacts

    @property
    def has_rdma(self) -> bool:
        return bool(self.facts.fabric.ports)


def kexec_handover(sight: Sight) -> str | None:
    host = sight.facts.host
    version = re.match(r"(\d+)\.", host.kernel)
    if not sight.has_rdma or not version or int(version[1]) < 7 or _is_off(host.command_line):
        return ""
    if host.cma_free > host.cma_total:
        free, total = format_bytes(host.cma_free), format_bytes(host.cma_total)
        return f"kernel {host.kernel} keeps memory for kexec handover: CmaFree {free}, CmaTotal {total}"
    return f"kernel {host.kernel} without kho=off"


def kexec_handover_proved(sight: Sight) -> bool:
    return sight.facts.host.cma_free > sight.facts.host.cma_total


def _is_off(command_line: str) -> bool:
    return bool(re.search(r"(^|\s)kho=(off|0|n|no)(\s|$)", command_line))


def removes_ipc(sight: Sight) -> str | None:
    host = sight.facts.host
    if not host.removes_ipc or (host.uid is not None and host.uid < SYSTEM_USERS):
        return ""
    if host.lingers is None:
        return None
    return "" if host.lingers else f"RemoveIPC is on and {host.user} does not linger"


def memlock(sight: Sight) -> str | None:
    host = sight.facts.host
    if not sight.has_rdma or host.uid == 0:
        return ""
    if not host.memlock:
        return None
    return "" if host.memlock == "unlimited" else f"ulimit -l is {host.memlock} KiB"


def min_free(sight: Sight) -> str | None:
    have = sight.facts.host.min_free
    if sight.facts.memory.total < SPARK:
        return ""
    if have is None:
        return None
    return f"vm.min_free_kbytes is {have // 1024} ({format_bytes(have)})" if have < GIB else ""


def swap(sight: Sight) -> str | None:
    host = sight.facts.host
    if sight.facts.memory.total < SPARK:
        return ""
    used = host.swap_total - host.swap_free
    if used > GIB:
        return f"{format_bytes(used)} of swap in use"
    return "" if host.swap_total else "no swap"


def firewall(sight: Sight) -> str | None:
    return None if sight.facts.host.firewall_on is None else "a firewall is on" if sight.facts.host.firewall_on else ""


def jit_on_network(sight: Sight) -> str | None:
    found = [one for one in sight.facts.host.caches if one.filesystem.startswith(("nfs", "cifs", "smb", "fuse.sshfs"))]
    return ", ".join(f"{one.path} is on {one.filesystem}" for one in found)


def jit_stale(sight: Sight) -> str | None:
    host = sight.facts.host
    if host.driver_since is None:
        return "" if not host.caches else None
    found = [one.path for one in host.caches if one.oldest is not None and one.oldest < host.driver_since]
    return f"{', '.join(found)} has entries older than driver {host.driver}" if found else ""


def gpu_held_down(sight: Sight) -> str | None:
    gpus = sight.facts.gpus
    if not gpus:
        return None
    return ", ".join(f"{one.name} ({one.state}): {', '.join(one.limits)}" for one in gpus if one.limits)


def stale_cdi(sight: Sight) -> str | None:
    host = sight.facts.host
    if sight.settings.launch.runtime is RuntimeKind.NATIVE:
        return ""
    if not host.devices or not host.driver:
        return None
    found = [(file, version) for file, version in host.devices if version and version != host.driver]
    return ", ".join(f"{file} is for driver {version}, {host.driver} is loaded" for file, version in found)


def nccl_file(sight: Sight) -> str | None:
    found = sight.facts.host.nccl_files
    return f"{found[0][0]} sets {', '.join(line.partition('=')[0].strip() for _, line in found)}" if found else ""


def device_cgroup(sight: Sight) -> str | None:
    is_native = sight.settings.launch.runtime is RuntimeKind.NATIVE
    return "" if is_native or sight.facts.host.devices else "no container device files (CDI) here"


def vision_chunk(sight: Sight) -> str | None:
    tokens = sight.settings.serve.max_num_batched_tokens
    if not has_vision(sight.settings) or tokens is None or tokens >= IMAGE_ROOM:
        return ""
    return f"MAX_NUM_BATCHED_TOKENS={tokens} with vision on"


def vision_chunk_proved(sight: Sight) -> bool:
    tokens = sight.settings.serve.max_num_batched_tokens
    return tokens is not None and tokens < ONE_IMAGE


def exl3_streams(sight: Sight) -> str | None:
    tuning = sight.settings.tuning
    if sight.settings.serve.quantization != "exl3" or (tuning.no_shared_experts_stream and tuning.serial_streams):
        return ""
    return "EXL3 with more than one stream"


def exl3_streams_proved(sight: Sight) -> bool:
    return sight.settings.serve.max_num_seqs != 1


def filled(fix: str, sight: Sight) -> str:
    """A fix with this node's own names in it."""
    host = sight.facts.host
    names = {
        "user": host.user or "$USER",
        "interface": _interface(sight),
        "path": next((one.path for one in host.caches), ""),
        "file": next((file for file, _ in (*host.devices, *host.nccl_files)), ""),
    }
    for name, value in names.items():
        fix = fix.replace("{" + name + "}", value)
    return fix


def _interface(sight: Sight) -> str:
    carrying = (one.interface for one in sight.facts.addresses if one.address == sight.node.address)
    return sight.node.interface or next(carrying, "IFACE")
