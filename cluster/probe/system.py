"""Addresses, listening ports, memory and RDMA devices of a node."""

import json
import re

from cluster.errors import Unreadable
from cluster.model.facts import Address, Hca, Listener, Memory
from cluster.model.units import Bytes
from cluster.probe.base import Ask, Probe


def parse_addresses(text: str) -> tuple[Address, ...]:
    """`ip -j addr`. The LOOPBACK flag decides, not the name or 127/8: an alias on lo has neither."""
    try:
        links = json.loads(text)
    except ValueError as error:
        raise Unreadable("`ip -j addr` did not answer JSON", evidence=text.splitlines()[:3]) from error
    return tuple(
        Address(
            interface=link["ifname"],
            address=info["local"],
            prefix=info.get("prefixlen", 32),
            is_loopback="LOOPBACK" in link.get("flags", ()),
            mtu=link.get("mtu", 0),
            is_up="LOWER_UP" in link.get("flags", ()),
            by_dhcp=bool(info.get("dynamic", False)),
        )
        for link in links
        for info in link.get("addr_info", ())
        if info.get("family") == "inet"
    )


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """`ss -Htlnp`: state, queues, local address:port, peer, users. A scope such as `%lo` is dropped."""
    return tuple(_listener(line) for line in text.splitlines() if line.strip())


def _listener(line: str) -> Listener:
    words = line.split()
    found = re.fullmatch(r"\[?([^\]%]*)(?:%\S+?)?\]?:(\d+)", words[3]) if len(words) > 4 else None
    if not found:
        raise Unreadable("cannot read a line of `ss -Htlnp`", evidence=[line])
    address = "*" if found[1] in ("0.0.0.0", "::", "*", "") else found[1].removeprefix("::ffff:")
    holder = re.search(r'\("([^"]*)",pid=(\d+)', line)
    return Listener(address, int(found[2]), f"{holder[1]} (pid {holder[2]})" if holder else "")


def parse_memory(text: str) -> Memory:
    """`/proc/meminfo`; its kB are KiB."""
    seen = dict(re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE))
    try:
        total, free, available = (Bytes(int(seen[key]) * 1024) for key in ("MemTotal", "MemFree", "MemAvailable"))
    except KeyError as error:
        raise Unreadable(f"/proc/meminfo has no {error.args[0]}", evidence=text.splitlines()[:3]) from error
    return Memory(total, free, available)


def parse_hcas(text: str) -> tuple[Hca, ...]:
    """Lines `DEVICE/ports/N/FILE:VALUE`, as grep prints them over /sys/class/infiniband."""
    ports: dict[tuple[str, int], dict[str, str]] = {}
    for line in text.splitlines():
        found = re.match(r"([^/]+)/ports/(\d+)/(?:gid_attrs/)?(state|rate|ndevs/0):(.*)", line)
        if found:
            ports.setdefault((found[1], int(found[2])), {})[found[3]] = found[4].strip()
    return tuple(
        Hca(device, port, seen.get("ndevs/0", ""), seen.get("state", "").partition(": ")[2], seen.get("rate", ""))
        for (device, port), seen in sorted(ports.items())
    )


ADDRESSES: Probe[tuple[Address, ...]] = Probe("addresses", Ask(("ip", "-j", "addr")), parse_addresses, ())
LISTENERS: Probe[tuple[Listener, ...]] = Probe("listeners", Ask(("ss", "-Htlnp")), parse_listeners, ())
MEMORY = Probe("memory", Ask(file="/proc/meminfo"), parse_memory, Memory(Bytes(0), Bytes(0), Bytes(0)))
HCA_FILES = "*/ports/*/state */ports/*/rate */ports/*/gid_attrs/ndevs/0"
HCAS: Probe[tuple[Hca, ...]] = Probe(
    "hcas",
    Ask(("sh", "-c", f"cd /sys/class/infiniband 2>/dev/null && grep -s . {HCA_FILES} || true")),
    parse_hcas,
    (),
)
