"""The fabric of all ranks, judged together: which ports each will use, with which GID, and whether both ends match."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network

from cluster.model.events import Finding, Severity
from cluster.model.fabric import RdmaPort
from cluster.model.facts import NodeFacts
from cluster.model.nodes import HEAD_ENV, WORKER_ENV
from cluster.model.rules import is_local
from cluster.model.settings import NodeSettings, Settings, is_alone, node_key
from cluster.plan.gid import Choice, Flaw, Member, choose, entry_of, member, table
from cluster.plan.hca import select
from cluster.plan.launch import Wiring
from cluster.plan.link import subnets, wire
from cluster.plan.rails import check_rails

ERRNO_61 = "NCCL would fail about a minute into the boot: ibv_modify_qp, errno 61"
_WHY = {
    Flaw.EMPTY: "is empty",
    Flaw.NOT_V2: "is RoCE v1",
    Flaw.NOT_FABRIC_IP: "is not the fabric address",
    Flaw.WRONG_INTERFACE: "belongs to another interface",
}


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank's way into the fabric: `key` is its section of the settings, `found` that we found the ports."""

    node: NodeSettings
    key: str
    facts: NodeFacts
    wired: Wiring
    members: tuple[Member, ...] = ()
    found: bool = False

    def variable(self, field: str) -> str:
        """What the user sets it by: HEAD_GID, WORKER_CX7_IB, or the key of a further node."""
        env = {"head": HEAD_ENV, "worker": WORKER_ENV}.get(self.key, {})
        return env.get(field, f"{self.key}.{field}")


def wire_ranks(settings: Settings, facts: Mapping[str, NodeFacts]) -> tuple[tuple[Wiring, ...], tuple[Finding, ...]]:
    """The wiring of every rank, rank 0 first, and all there is to say about the fabric."""
    ranks, findings = join(settings, facts)
    return tuple(one.wired for one in ranks), findings


def join(settings: Settings, facts: Mapping[str, NodeFacts]) -> tuple[list[Rank], tuple[Finding, ...]]:
    """Every rank with the ports it will use and their GID index."""
    local = all(is_local(node) for node in settings.nodes)
    wired = [wire(node, facts[node.name], local or is_alone(settings)) for node in settings.nodes]
    findings = [one for _, found in wired for one in found]
    ranks = [
        Rank(node, node_key(number), facts[node.name], one)
        for number, (node, (one, _)) in enumerate(zip(settings.nodes, wired, strict=True))
    ]
    one = "there is one rank" if is_alone(settings) else "all ranks are on this machine" if local else ""
    without = one or _without_rdma(settings)
    if without:
        return ranks, (*findings, _not_checked("FABRIC.HCA", without))
    findings += [subnets(rank.facts, rank.wired) for rank in ranks]
    ranks, told = _with_members(ranks)
    findings += told
    findings += check_rails([(rank.node.name, rank.facts, rank.wired, rank.members) for rank in ranks])
    ranks, told = _with_gids(ranks)
    return ranks, (*findings, *told)


def _without_rdma(settings: Settings) -> str:
    off = dict(settings.launch.environment).get("NCCL_IB_DISABLE", "0") not in ("", "0")
    return "NCCL_IB_DISABLE is set: collectives go over plain sockets" if off else ""


def _with_members(ranks: Sequence[Rank]) -> tuple[list[Rank], list[Finding]]:
    """Every rank with the RDMA ports it will use; ports that were only found must have a partner on every rank."""
    if not any(rank.facts.fabric.ports or rank.node.hca for rank in ranks):
        return list(ranks), [_not_checked("FABRIC.HCA", "no node has an RDMA device", rank.node.name) for rank in ranks]
    chosen = [_named(rank) if rank.node.hca else _found(rank) for rank in ranks]
    ranks, told = [rank for rank, _ in chosen], [one for _, findings in chosen for one in findings]
    if all(rank.members for rank in ranks):
        ranks, more = _paired(ranks)
        told += more
    lacking = [rank.node.name for rank in ranks if not rank.members]
    having = [rank.node.name for rank in ranks if rank.members]
    if lacking and having and not any(one.severity is Severity.REFUSAL for one in told):
        observed = f"{', '.join(having)} would use RDMA, {', '.join(lacking)} plain sockets"
        told.append(Finding("FABRIC.RAILS", Severity.REFUSAL, "", observed, "the same transport on all ranks", _SAME))
    return [_with_list(rank) for rank in ranks], told


_SAME = "see the FABRIC.HCA lines; to go without RDMA set NCCL_IB_DISABLE=1 in launch.environment"


def _named(rank: Rank) -> tuple[Rank, list[Finding]]:
    """The ports that the settings name, read as NCCL reads them."""
    name, ports = rank.node.name, rank.facts.fabric.ports
    selection = select(rank.node.hca, ports)
    members = tuple(_member(rank, port) for port in selection.ports)
    rank = replace(rank, members=members)
    fix = f"set {rank.variable('hca')}={','.join(one.device for one in ports if one.is_active) or 'nothing'}"
    if selection.problem:
        hard = selection.reason in ("blank_in_list", "no_active_port")
        severity = Severity.REFUSAL if hard else Severity.WARNING
        return rank, [Finding("FABRIC.HCA", severity, name, selection.problem, "names of active ports", fix)]
    bare = [one for one in members if not one.usable]
    if bare and rank.node.gid is None:
        where = ", ".join(f"no IPv4 address on {one.interface} ({one.port.device})" for one in bare)
        fix = f"give it an address of its own subnet, or leave it out of {rank.variable('hca')}"
        return rank, [Finding("FABRIC.HCA", Severity.REFUSAL, name, where, "an IPv4 address on every port named", fix)]
    return rank, [Finding("FABRIC.HCA", Severity.OK, name, ", ".join(_told(one) for one in members))]


def _found(rank: Rank) -> tuple[Rank, list[Finding]]:
    """The ports behind the fabric address and its twin: the other half of the same cable."""
    name, fabric = rank.node.name, rank.facts.fabric
    active = [port for port in fabric.ports if port.is_active]
    first = [port for port in active if _is_behind(port, rank.wired.interface)]
    if not first:
        if not active:
            states = ", ".join(f"{one.device} is {one.state}" for one in fabric.ports) or "no RDMA device"
            return rank, [_not_checked("FABRIC.HCA", states, name)]
        others = ", ".join(one.device for one in active)
        observed = f"no active RDMA port is behind {rank.wired.interface}; NCCL would take {others} by itself"
        fix = f"set the fabric address to one of {others}, or name the ports in {rank.variable('hca')}"
        return rank, [Finding("FABRIC.HCA", Severity.WARNING, name, observed, "the fabric address on RDMA", fix)]
    twins = [port for port in active if port not in first and _is_twin(rank, port)]
    members = tuple(_member(rank, port) for port in (*first, *twins))
    kept = tuple(one for one in members if one.usable or one.port in first)
    bare = [one for one in members if one not in kept]
    rank = replace(rank, members=kept, found=True)
    told = [Finding("FABRIC.HCA", Severity.OK, name, f"found {', '.join(_told(one) for one in kept)}")]
    if bare:
        where = ", ".join(f"{one.port.device} has no IPv4 address on {one.interface}" for one in bare)
        fix = f"give {bare[0].interface} an address of another subnet, on every node"
        told.append(Finding("FABRIC.RAILS", Severity.WARNING, name, f"single rail: {where}", "both halves", fix))
    return rank, told


def _is_behind(port: RdmaPort, interface: str) -> bool:
    return interface in port.interfaces or any(one.interface == interface for one in port.gids)


def _is_twin(rank: Rank, port: RdmaPort) -> bool:
    """Whether it shares the physical port; PCI addresses cannot tell, for one cable lights two functions."""
    mine = rank.facts.fabric.link(rank.wired.interface)
    sockets = {link.socket for name in port.interfaces if (link := rank.facts.fabric.link(name))}
    return bool(mine and mine.socket and mine.socket in sockets)


def _paired(ranks: Sequence[Rank]) -> tuple[list[Rank], list[Finding]]:
    """Ports without a partner in the same subnet on every other rank: found ones are left out, named ones are told."""
    shared = set.intersection(*({net for one in rank.members for net in networks(rank.facts, one)} for rank in ranks))
    kept = [
        replace(rank, members=tuple(one for one in rank.members if not rank.found or _is_shared(rank, one, shared)))
        for rank in ranks
    ]
    return kept, [
        Finding(
            "FABRIC.RAILS",
            Severity.WARNING,
            rank.node.name,
            f"{'single rail: ' if rank.found else ''}{one.port.device} has no partner in its subnet on the other node",
            "both halves of the cable in two subnets, the same on all nodes",
            f"give {one.interface} and its partner addresses of one subnet",
        )
        for rank in ranks
        for one in rank.members
        if not _is_shared(rank, one, shared)
    ]


def _is_shared(rank: Rank, one: Member, shared: set[IPv4Network]) -> bool:
    """The port of the fabric address itself stays: whether it reaches anybody is another check's."""
    return rank.wired.interface == one.interface or any(net in shared for net in networks(rank.facts, one))


def networks(facts: NodeFacts, one: Member) -> set[IPv4Network]:
    """Subnets of the addresses that the port's usable entries carry."""
    carried = {str(entry.ipv4) for index in one.usable if (entry := entry_of(one.port, index))}
    return {
        IPv4Network(f"{each.address}/{each.prefix}", strict=False)
        for each in facts.addresses
        if each.address in carried
    }


def _with_list(rank: Rank) -> Rank:
    """Ports we found are named exactly, so that NCCL opens no other."""
    if not rank.found or not rank.members:
        return rank
    names = ",".join(one.port.device for one in rank.members)
    return replace(rank, wired=replace(rank.wired, hca=f"={names}"))


def _member(rank: Rank, port: RdmaPort) -> Member:
    return member(port, rank.facts.addresses, rank.node.address, rank.wired.interface)


def _told(one: Member) -> str:
    rate = f", {one.port.gbps:g} Gb/s" if one.port.gbps else ""
    return f"{one.port.device} ({one.interface}{rate})"


def _with_gids(ranks: Sequence[Rank]) -> tuple[list[Rank], list[Finding]]:
    """The GID index of every rank, or a refusal with the tables of all nodes and what to set."""
    choices = [_choice(rank) for rank in ranks]
    tables = tuple(
        line for rank in ranks for line in table(rank.node.name, [one.port for one in rank.members], rank.members)
    )
    suggested = " ".join(
        f"{rank.variable('gid')}={choice.index}"
        for rank, choice in zip(ranks, choices, strict=True)
        if choice.index is not None and rank.members
    )
    told = [
        _gid_finding(rank, choice, suggested, tables)
        for rank, choice in zip(ranks, choices, strict=True)
        if rank.members
    ]
    wired = [
        replace(rank, wired=replace(rank.wired, gid=choice.passed)) for rank, choice in zip(ranks, choices, strict=True)
    ]
    return wired, told


def _choice(rank: Rank) -> Choice:
    """A file of NCCL's on the node would speak where we are silent."""
    if not rank.members:
        return Choice(None, rank.node.gid)
    is_free = not any("NCCL_IB_GID_INDEX" in line for _, line in rank.facts.host.nccl_files)
    return choose(rank.members, rank.node.gid, is_free=is_free)


def _gid_finding(rank: Rank, choice: Choice, suggested: str, tables: tuple[str, ...]) -> Finding:
    name, say = rank.node.name, _refusal(rank, suggested, tables)
    if choice.disagree:
        each = ", ".join(f"{one.port.device} {','.join(map(str, one.usable))}" for one in rank.members)
        return say(f"no index is right on all ports ({each}), and NCCL has one for all", narrow=True)
    if choice.flaws and rank.node.gid is not None:
        each = ", ".join(f"{_entry(rank, device)} {_WHY[flaw]}" for device, flaw in choice.flaws)
        return say(f"GID index {rank.node.gid} of {each}; {ERRNO_61}")
    if choice.flaws:
        each = ", ".join(device for device, _ in choice.flaws)
        return say(f"{each} has no RoCE v2 entry with {rank.node.address}; {ERRNO_61}")
    devices = ", ".join(one.port.device for one in rank.members)
    if choice.passed is not None:
        how = "as set" if rank.node.gid is not None else "found now"
        return Finding("FABRIC.GID", Severity.OK, name, f"index {choice.passed} on {devices}, {how}")
    own = ", ".join(f"{one.own} on {one.port.device}" for one in rank.members)
    return Finding("FABRIC.GID", Severity.OK, name, f"index {own}: NCCL's own choice, and right")


def _refusal(rank: Rank, suggested: str, tables: tuple[str, ...]) -> Callable[..., Finding]:
    def say(observed: str, *, narrow: bool = False) -> Finding:
        fix = f"set {suggested}" if suggested else f"ip -br addr show dev {rank.wired.interface}"
        if narrow:
            fix = f"name one port in {rank.variable('hca')}, or remove the addresses that are not the fabric's"
        expected = f"RoCE v2 with {rank.node.address} on {rank.wired.interface}"
        return Finding("FABRIC.GID", Severity.REFUSAL, rank.node.name, observed, expected, fix, tables)

    return say


def _entry(rank: Rank, device: str) -> str:
    found = next((one for one in rank.members if one.port.device == device), None)
    entry = entry_of(found.port, rank.node.gid) if found and rank.node.gid is not None else None
    return f"{device} ({entry.ipv4 or entry.gid}, {entry.kind or 'unknown type'})" if entry else device


def _not_checked(check: str, observed: str, node: str = "") -> Finding:
    return Finding(check, Severity.NOT_CHECKED, node, observed)
