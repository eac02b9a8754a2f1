"""How NCCL really connected the ranks, heard from its own lines in a rank's log, and where that is not as planned.

NCCL says this at NCCL_DEBUG=INFO only. When RDMA does not come up it takes plain sockets without a warning, and
everything works, several times slower.
"""

import re
from dataclasses import replace

from cluster.model.fabric import Transport
from cluster.plan.hca import parse_selector

INFO = "NCCL INFO "
RDMA = "IB"
_NETWORK = re.compile(r"^Using network (?P<kind>\S+)")
_VIA = re.compile(r" via NET/(?P<kind>[^/\s]+)/\S+")
_DEVICES = re.compile(r"^NET/(?:IB|Socket) ?: Using (?P<list>\[0\]\S+(?: \[\d+\]\S+)*)")
_DEVICE = re.compile(r"\[\d+\](?P<name>[^:\s]+):(?P<rest>\S+)")
_DIRECT = re.compile(r"GPU Direct RDMA (?:\(\S+\) )?(?P<word>Enabled|Disabled)", re.IGNORECASE)
_RING = re.compile(r"^Connected all (?:rings|trees).* GDR (?P<on>[01])")
_GID = re.compile(r"^NET/IB ?: .* GID (?P<index>\d+) \(")


def heard(so_far: Transport, message: str) -> Transport:
    """What is known after one more line, given without its head."""
    said = message.removeprefix(INFO)
    if said == message:
        return so_far
    if found := _VIA.search(said):
        direct = True if "/GDRDMA" in found[0] else so_far.gpu_direct
        return replace(so_far, kind=_kind(found["kind"]), gpu_direct=direct)
    if found := _NETWORK.match(said):
        return replace(so_far, kind=so_far.kind or _kind(found["kind"]))
    if found := _DEVICES.match(said):
        return replace(so_far, devices=tuple(map(_device, _DEVICE.finditer(found["list"]))))
    if found := _DIRECT.search(said):
        return replace(so_far, gpu_direct=bool(so_far.gpu_direct) or found["word"].lower() == "enabled")
    if found := _RING.match(said):
        return replace(so_far, gpu_direct=bool(so_far.gpu_direct) or found["on"] == "1")
    if found := _GID.match(said):
        return replace(so_far, gids=tuple(sorted({*so_far.gids, int(found["index"])})))
    return so_far


def described(transport: Transport | None) -> str:
    """`RDMA over rocep1s0f1:1, GID 3, no GPU direct`; empty while NCCL has said nothing."""
    if transport is None or not transport.kind:
        return ""
    devices = ", ".join(transport.devices)
    if transport.kind != RDMA:
        return f"sockets on {devices}" if transport.kind == "Socket" and devices else _name(transport.kind)
    parts = [f"RDMA over {devices}" if devices else "RDMA", *(f"GID {index}" for index in transport.gids)]
    if transport.gpu_direct is not None:
        parts.append("GPU direct" if transport.gpu_direct else "no GPU direct")
    return ", ".join(parts)


def differences(transport: Transport | None, hca: str, gid: int | None, interface: str) -> tuple[str, ...]:
    """What is not as planned: `hca`, `gid` and `interface` are those the rank was started with ("" and None: none)."""
    if transport is None or not transport.kind:
        return ()
    if transport.kind == RDMA:
        return (*_other_devices(transport, hca), *_other_gid(transport, gid))
    if hca:
        where = f" on {', '.join(transport.devices)}" if transport.devices else ""
        return (f"NCCL fell back to {_name(transport.kind)}{where}, though RDMA over {hca} was planned: far slower",)
    strange = [one for one in transport.devices if interface and not parse_selector(interface).takes(one, 0)]
    return (f"NCCL's sockets are on {', '.join(strange)}, not on {interface}",) if strange else ()


def _other_devices(transport: Transport, hca: str) -> tuple[str, ...]:
    if not hca or not transport.devices:
        return ()
    wanted = parse_selector(hca)
    used = [(name, int(port or 1)) for name, _, port in (one.partition(":") for one in transport.devices)]
    strange = [f"{name}:{port}" for name, port in used if not wanted.takes(name, port)]
    absent = [
        name if port is None else f"{name}:{port}"
        for name, port in wanted.names
        if not wanted.excludes and not any(wanted.name_fits((name, port), *one) for one in used)
    ]
    told = [f"NCCL uses {', '.join(strange)}, which {hca} does not name"] if strange else []
    return (*told, *([f"NCCL leaves out {', '.join(absent)}"] if absent else []))


def _other_gid(transport: Transport, gid: int | None) -> tuple[str, ...]:
    others = [index for index in transport.gids if gid is not None and index != gid]
    return (f"NCCL connected with GID {', '.join(map(str, others))}, and {gid} was planned",) if others else ()


def _kind(word: str) -> str:
    """A plugin with RDMA inside calls itself `IBext_v10`."""
    return RDMA if word.startswith("IB") else word


def _name(kind: str) -> str:
    return "sockets" if kind == "Socket" else f"the network plugin {kind}"


def _device(found: re.Match[str]) -> str:
    """`mlx5_0:1/RoCE` is a port of a device, `eth0:10.0.0.1<0>` an interface with its address."""
    port = found["rest"].partition("/")[0]
    return f"{found['name']}:{port}" if port.isdigit() else found["name"]
