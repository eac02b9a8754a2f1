"""Which ways between the nodes there are to measure, which are missing, and what a measurement is worth."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import permutations

from cluster.model.fabric_test import Coverage, Grade, How, Measured, Way
from cluster.model.facts import Address
from cluster.plan.fabric_checks import Rank
from cluster.plan.gid import entry_of
from cluster.plan.rates import LATENCY_US, grade_rdma, grade_tcp

ALL_AT_ONCE = 0.8  # of the best single way: what a direction must carry when all ways run


@dataclass(frozen=True, slots=True)
class End:
    """One end of a rail; `gid` is the index its RDMA device is to use."""

    node: str
    interface: str
    address: str
    network: IPv4Network
    device: str = ""
    gid: int | None = None
    gbps: float | None = None


def ends(rank: Rank) -> tuple[End, ...]:
    """Every address a rank can be measured on: of its RDMA ports, or the fabric address alone."""
    by_text = {one.address: one for one in rank.facts.addresses}
    found = []
    for one in rank.members:
        for entry in (entry_of(one.port, index) for index in one.usable):
            address = by_text.get(str(entry.ipv4)) if entry else None
            if entry and address:
                net, port = network(address), one.port
                found.append(
                    End(rank.node.name, entry.interface, address.address, net, port.device, entry.index, port.gbps)
                )
    own = by_text.get(rank.wired.address)
    if not any(one.address == rank.wired.address for one in found) and own is not None:
        link = rank.facts.fabric.link(own.interface)
        gbps = link.mbps / 1000 if link and link.mbps else None
        found.insert(0, End(rank.node.name, own.interface, own.address, network(own), gbps=gbps))
    return tuple({one.address: one for one in found}.values())


def network(one: Address) -> IPv4Network:
    return IPv4Network(f"{one.address}/{one.prefix}", strict=False)


def pairs(ranks: Sequence[Rank]) -> tuple[tuple[End, End], ...]:
    """Both directions of every rail between every two nodes."""
    return tuple(_pairs([ends(rank) for rank in ranks]))


def _pairs(every: Sequence[Sequence[End]]) -> Iterator[tuple[End, End]]:
    for mine, others in permutations(every, 2):
        for one in mine:
            yield from ((one, other) for other in others if other.network == one.network)


def way(source: End, target: End) -> Way:
    return Way(
        source.node,
        target.node,
        source.interface,
        target.interface,
        source.address,
        target.address,
        source.device,
        target.device,
    )


def name(one: Way) -> str:
    return f"{one.source} {one.source_interface} -> {one.target} {one.target_interface}"


def missing(ranks: Sequence[Rank]) -> tuple[Coverage, ...]:
    """Ways that should be there: an end without a partner in its subnet, a node that no other shares a subnet with."""
    every = [ends(rank) for rank in ranks]
    found = []
    for rank, mine in zip(ranks, every, strict=True):
        others = [one for each in every if each is not mine for one in each]
        if not mine:
            found.append(Coverage(rank.node.name, False, f"{rank.wired.address} is on no interface"))
        for one in mine:
            if not any(other.network == one.network for other in others):
                why = f"no other node has an address in {one.network}"
                found.append(Coverage(f"{one.node} {one.interface}", False, why))
    return tuple(found)


def coverage(measured: Sequence[Measured], lacking: Sequence[Coverage]) -> tuple[Coverage, ...]:
    """A way is covered when it was measured alone; one that failed is not."""
    alone = tuple(
        Coverage(name(one.way), one.gbps is not None, "" if one.gbps is not None else one.detail)
        for one in measured
        if not one.together
    )
    return (*alone, *lacking)


def judge(source: End, how: How, gbps: float | None, latency_us: float | None, error: str) -> tuple[Grade, str]:
    """Of a way that was measured alone."""
    if gbps is None:
        return Grade.FAILED, error or "nothing arrived"
    if how is How.SOCKETS:
        return grade_tcp(gbps, int(source.gbps * 1000) if source.gbps else None), error
    grade = grade_rdma(gbps, source.gbps)
    if grade is Grade.DEGRADED:
        return grade, "switch both boxes off, unplug them for a minute, start them again"
    if latency_us is not None and latency_us > LATENCY_US:
        return Grade.SUSPICIOUS, f"more than {LATENCY_US:g} us on a direct cable"
    return grade, error


def totals(measured: Sequence[Measured]) -> dict[tuple[str, str], float]:
    """What each direction carried with all ways at once."""
    found: dict[tuple[str, str], float] = {}
    for one in measured:
        if one.together and one.gbps is not None:
            key = (one.way.source, one.way.target)
            found[key] = found.get(key, 0.0) + one.gbps
    return found


def judge_together(alone: Sequence[Measured], total: Mapping[tuple[str, str], float], one: Measured) -> Grade:
    """All RDMA ways at once must carry about as much as the best one alone; sockets then wait for processors."""
    if one.gbps is None:
        return Grade.FAILED
    if one.how is How.SOCKETS:
        return Grade.OK
    key = (one.way.source, one.way.target)
    best = max((each.gbps or 0.0 for each in alone if (each.way.source, each.way.target) == key), default=0.0)
    return Grade.OK if total.get(key, 0.0) >= best * ALL_AT_ONCE else Grade.SUSPICIOUS
