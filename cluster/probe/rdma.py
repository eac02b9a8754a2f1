"""RDMA ports with their GID tables, and the interfaces behind them, read from sysfs in one command."""

import re
from ipaddress import IPv6Address

from cluster.errors import Unreadable
from cluster.model.fabric import NO_FABRIC, Fabric, GidEntry, NetLink, RdmaPort, RoCE
from cluster.probe.base import Ask, Probe

# Reading the type of an empty slot fails with EINVAL, the speed of an interface that is down too: grep tells those on
# stderr and goes on. Empty GIDs are left out on the node, for a table has 255 slots; `slots` keeps their number.
_SCRIPT = r"""
cd /sys/class/infiniband 2>/dev/null && {
for d in *; do
  [ -e "$d/ports" ] || continue
  [ -e "$d/device" ] && echo "rdma/$d/pci:$(basename "$(readlink -f "$d/device")")"
  for n in "$d"/device/net/*; do [ -e "$n" ] && echo "rdma/$d/net:${n##*/}"; done
  for p in "$d"/ports/*; do set -- "$p"/gids/*; echo "rdma/$p/slots:$#"; done
done
grep -H . */ports/*/state */ports/*/rate */ports/*/link_layer */fw_ver */parent \
  */device/current_link_width */device/max_link_width */ports/*/gid_attrs/types/* */ports/*/gid_attrs/ndevs/* \
  2>/dev/null | sed 's,^,rdma/,'
grep -H TOTAL_ERR */device/aer_dev_fatal */device/aer_dev_nonfatal 2>/dev/null | sed 's,^,rdma/,'
grep -H . */ports/*/gids/* 2>/dev/null | grep -v ':0000:0000:0000:0000:0000:0000:0000:0000$' | sed 's,^,rdma/,'
}
cd /sys/class/net 2>/dev/null && grep -H . */mtu */speed */phys_switch_id */phys_port_name 2>/dev/null | sed 's,^,net/,'
exit 0
"""

_Seen = dict[str, list[str]]


def parse_fabric(text: str) -> Fabric:
    """Lines `rdma/DEVICE/PATH:VALUE` and `net/INTERFACE/FILE:VALUE`, in any order."""
    devices: dict[str, _Seen] = {}
    links: dict[str, _Seen] = {}
    for line in text.splitlines():
        found = re.fullmatch(r"(rdma|net)/([^/]+)/([^:]+):(.*)", line)
        if not found:
            raise Unreadable("cannot read a line of the RDMA devices", evidence=[line])
        kind, name, path, value = found.groups()
        tree = devices if kind == "rdma" else links
        tree.setdefault(name, {}).setdefault(path, []).append(value.strip())
    ports = (_port(device, number, seen) for device, seen in devices.items() for number in _numbers(seen))
    return Fabric(
        tuple(sorted(ports, key=lambda one: (one.device, one.port))),
        tuple(_link(name, seen) for name, seen in sorted(links.items())),
    )


def _numbers(seen: _Seen) -> list[int]:
    return sorted({int(path.split("/")[1]) for path in seen if re.match(r"ports/\d+/", path)})


def _port(device: str, number: int, seen: _Seen) -> RdmaPort:
    def of_port(path: str) -> str:
        return _one(seen, f"ports/{number}/{path}")

    rate = re.match(r"([\d.]+) Gb/sec", of_port("rate"))
    return RdmaPort(
        device=device,
        port=number,
        state=of_port("state").partition(": ")[2],
        gbps=float(rate[1]) if rate else None,
        interfaces=tuple(sorted((*seen.get("net", ()), *seen.get("parent", ())))),  # soft RoCE has a parent
        gids=_gids(number, seen),
        slots=_number(of_port("slots")) or 0,
        link_layer=of_port("link_layer") or "Ethernet",
        pci=_one(seen, "pci"),
        pcie_width=_number(_one(seen, "device/current_link_width")),
        pcie_width_max=_number(_one(seen, "device/max_link_width")),
        firmware=_one(seen, "fw_ver"),
        fatal=_errors(seen, "device/aer_dev_fatal"),
        nonfatal=_errors(seen, "device/aer_dev_nonfatal"),
    )


def _gids(number: int, seen: _Seen) -> tuple[GidEntry, ...]:
    """In the order of their numbers: the text order is 0, 1, 10, 100, 2. A slot without a type is no entry."""
    start = f"ports/{number}/gids/"
    indices = sorted(int(path.removeprefix(start)) for path in seen if path.startswith(start))
    return tuple(entry for index in indices if int((entry := _gid(number, index, seen)).gid))


def _gid(number: int, index: int, seen: _Seen) -> GidEntry:
    text = _one(seen, f"ports/{number}/gids/{index}")
    try:
        gid = IPv6Address(text)
    except ValueError as error:
        raise Unreadable(f"GID {index} is no address", evidence=[text]) from error
    kind = _one(seen, f"ports/{number}/gid_attrs/types/{index}")
    known = RoCE(kind) if kind in (RoCE.V1, RoCE.V2) else RoCE.UNKNOWN
    return GidEntry(index, gid, known, _one(seen, f"ports/{number}/gid_attrs/ndevs/{index}"))


def _link(name: str, seen: _Seen) -> NetLink:
    """`phys_switch_id` and `phys_port_name` tell the two halves of one cable from two cables; PCI addresses do not."""
    speed = _number(_one(seen, "speed"))
    switch, port = _one(seen, "phys_switch_id"), _one(seen, "phys_port_name")
    return NetLink(
        name,
        _number(_one(seen, "mtu")) or 0,
        speed if speed and speed > 0 else None,  # -1: no carrier
        f"{switch}/{port}" if switch and port else "",
    )


def _one(seen: _Seen, path: str) -> str:
    return next(iter(seen.get(path, ())), "")


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _errors(seen: _Seen, path: str) -> int:
    return sum(int(line.split()[-1]) for line in seen.get(path, ()) if line.split()[-1:] and line.split()[-1].isdigit())


FABRIC = Probe("RDMA devices", Ask(("sh", "-c", _SCRIPT)), parse_fabric, NO_FABRIC)
