"""How this node's end of the fabric is: the interface that carries an address, its carrier and speed, RDMA ports.

Answer for one address: {"interface": name | null,"carrier": bool,"mbps": n | null,"mtu": n | null,"received": bytes,
"sent": bytes,"rdma": [{"device","port","state","gbps": n | null,"interfaces": [name],"received","sent"}]}; null when no
address is asked for. Bytes count both what went through the kernel and what RDMA ports moved past it.
"""

from __future__ import annotations

import array
import fcntl
import glob
import os
import socket
import struct
from typing import List, Optional

from cluster.agent.own import Json, read

SIOCGIFCONF = 0x8912
NETWORK, RDMA = "/sys/class/net", "/sys/class/infiniband"
REQUEST = 40  # bytes of a struct ifreq where pointers have 8
MOST = 256


def sight_of_fabric(address: Optional[str]) -> Optional[Json]:
    if not address:
        return None
    name = interface_of(address)
    ports = rdma_ports()
    mine = [port for port in ports if name in port["interfaces"]]
    folder = os.path.join(NETWORK, name or "-")
    by_kernel = {"received": "rx_bytes", "sent": "tx_bytes"}
    moved = {way: positive(read("%s/statistics/%s" % (folder, file))) or 0 for way, file in by_kernel.items()}
    return {
        "interface": name, "carrier": read(folder + "/carrier").strip() == "1",
        "mbps": positive(read(folder + "/speed")), "mtu": positive(read(folder + "/mtu")), "rdma": ports,
        "received": moved["received"] + sum(port["received"] for port in mine),
        "sent": moved["sent"] + sum(port["sent"] for port in mine),
    }  # fmt: skip


def interface_of(address: str) -> Optional[str]:
    """The interface that has it, also as a further address and while the interface is down."""
    wanted = socket.inet_aton(address)
    room = array.array("B", bytes(REQUEST * MOST))
    place, _ = room.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        answer = fcntl.ioctl(asking, SIOCGIFCONF, struct.pack("iL", len(room), place))
    size = struct.unpack("iL", answer)[0]
    table = room.tobytes()[:size]
    for start in range(0, size, REQUEST):
        if table[start + 20 : start + 24] == wanted:
            return table[start : start + 16].split(b"\0")[0].decode().partition(":")[0]
    return None


def rdma_ports() -> List[Json]:
    found = []
    for folder in sorted(glob.glob(RDMA + "/*/ports/*")):
        device = folder.split("/")[-3]
        rate = read(folder + "/rate").split()
        names = [os.path.basename(one) for one in glob.glob("%s/%s/device/net/*" % (RDMA, device))]
        parent = read("%s/%s/parent" % (RDMA, device)).strip()  # soft RoCE has one
        found.append({
            "device": device, "port": int(os.path.basename(folder)),
            "state": read(folder + "/state").strip().partition(": ")[2], "gbps": float(rate[0]) if rate else None,
            "interfaces": names + ([parent] if parent else []),
            "received": 4 * (positive(read(folder + "/counters/port_rcv_data")) or 0),  # counted in words of 4 bytes
            "sent": 4 * (positive(read(folder + "/counters/port_xmit_data")) or 0),
        })  # fmt: skip
    return found


def positive(text: str) -> Optional[int]:
    """A number, unless it is none or says that there is none (-1)."""
    text = text.strip()
    return int(text) if text.isdigit() and int(text) > 0 else None
