"""What a link, its MTU and a measured bandwidth are worth: the known healthy figures of a Spark, as rules."""

from cluster.model.fabric_test import Grade

PORT_GBPS = 200.0  # what a Spark's QSFP port negotiates with the other
FUNCTION_GBPS = 112.0  # one PCIe Gen5 x4 function carries no more, though it reports 200 as well
DEGRADED, SUSPICIOUS = 25.0, 80.0  # Gb/s of one function by ib_write_bw; healthy boxes measure 92 to 111
# TCP over one of them: 34 Gb/s in one stream, 93 in four
TCP_DEGRADED, TCP_SUSPICIOUS = 8.0, 20.0
LATENCY_US = 10.0  # above it something is wrong on a direct cable
_HEADERS = 96  # GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, CRC 4: what the kernel takes off (rdma/ib_addr.h)
_STEPS = (4096, 2048, 1024, 512, 256)


def roce_mtu(mtu: int) -> int:
    """The MTU that RoCE uses on an interface of this MTU: 1500 -> 1024, 9000 -> 4096; 0 when nothing fits."""
    return next((step for step in _STEPS if mtu - _HEADERS >= step), 0)


def df_payload(mtu: int) -> int:
    """The largest ping that fits one packet: 20 bytes of IPv4 and 8 of ICMP go off."""
    return max(mtu - 28, 0)


def grade_rdma(gbps: float, port: float | None = None) -> Grade:
    """Of one function by RDMA write; where the port is slower than a Spark's, its own rate is the measure."""
    if port is None or port >= PORT_GBPS:
        return _grade(gbps, DEGRADED, SUSPICIOUS)
    return _grade(gbps, port * 0.3, port * 0.6)


def grade_tcp(gbps: float, link_mbps: int | None) -> Grade:
    """Of one path by plain sockets. A link that does not say its speed is not judged by that of a Spark's."""
    if link_mbps is None:
        return Grade.OK
    if link_mbps >= PORT_GBPS * 1000:
        return _grade(gbps, TCP_DEGRADED, TCP_SUSPICIOUS)
    speed = link_mbps / 1000
    return _grade(gbps, min(speed * 0.3, TCP_DEGRADED), min(speed * 0.6, TCP_SUSPICIOUS))


def _grade(gbps: float, degraded: float, suspicious: float) -> Grade:
    if gbps < degraded:
        return Grade.DEGRADED
    return Grade.SUSPICIOUS if gbps < suspicious else Grade.OK
