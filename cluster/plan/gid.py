"""Which GID index a rank must use: chosen by what an entry holds, never by its place; a pinned one is verified."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cluster.model.fabric import GidEntry, RdmaPort, RoCE
from cluster.model.facts import Address


class Flaw(StrEnum):
    """Why an index cannot be used on a port."""

    EMPTY = "empty"
    NOT_V2 = "not_roce_v2"
    NOT_FABRIC_IP = "not_fabric_ip"
    WRONG_INTERFACE = "wrong_interface"


@dataclass(frozen=True, slots=True)
class Member:
    """One port that a rank will use: the indices that would work, and the one NCCL takes when it is not told."""

    port: RdmaPort
    usable: tuple[int, ...]
    own: int | None

    @property
    def interface(self) -> str:
        """The interface behind it: that of the usable entry, else the device's own."""
        named = [one.interface for one in self.port.gids if one.index in self.usable]
        return next(iter((*named, *self.port.interfaces)), "")


@dataclass(frozen=True, slots=True)
class Choice:
    """What one rank is given.

    index   the value that is right for every port of the rank, None when there is none
    passed  the value of NCCL_IB_GID_INDEX; None leaves it to NCCL, whose own choice is right and follows the table
    flaws   per port that cannot work so: the device and why
    """

    index: int | None
    passed: int | None
    flaws: tuple[tuple[str, Flaw], ...] = ()
    disagree: bool = False

    @property
    def is_sound(self) -> bool:
        return not self.flaws and not self.disagree


def member(port: RdmaPort, addresses: Iterable[Address], fabric: str, interface: str) -> Member:
    """`fabric` is the rank's address and `interface` the one that carries it."""
    return Member(port, usable(port, addresses, fabric, interface), nccl_choice(port))


def usable(port: RdmaPort, addresses: Iterable[Address], fabric: str, interface: str) -> tuple[int, ...]:
    """RoCE v2 entries that carry an IPv4 address which their interface has now; the fabric address alone if it is here.

    The whole table is read: removed addresses leave holes, and new ones fill the first hole.
    """
    carried = {(one.interface, one.address) for one in addresses}
    fitting = [one for one in port.gids if one.kind is RoCE.V2 and (one.interface, str(one.ipv4)) in carried]
    exact = [one for one in fitting if one.interface == interface and str(one.ipv4) == fabric]
    return tuple(sorted(one.index for one in exact or fitting))


def nccl_choice(port: RdmaPort) -> int | None:
    """What NCCL 2.21 and later takes without NCCL_IB_GID_INDEX; None on an empty table.

    It starts at 0, moves to an IPv4 entry if it has none yet, and from there only to a v2 one (ncclIbGetGidIndex).
    """
    by_index = {one.index: one for one in port.gids}
    if not by_index:
        return None
    best = by_index.get(0)
    for one in sorted(port.gids, key=lambda each: each.index):
        if one.index == 0 or one.ipv4 is None:
            continue
        is_first = best is None or best.ipv4 is None
        if is_first or (best and one.kind is not best.kind and one.kind is RoCE.V2):
            best = one
    return best.index if best else 0


def flaw_of(index: int, one: Member) -> Flaw | None:
    """What is wrong with this index on this port; None when it will do."""
    if index in one.usable:
        return None
    entry = entry_of(one.port, index)
    if entry is None:
        return Flaw.EMPTY
    if entry.ipv4 is None or not one.usable:
        return Flaw.NOT_FABRIC_IP
    twin = next(each for each in one.port.gids if each.index == one.usable[0])
    if entry.interface != twin.interface:
        return Flaw.WRONG_INTERFACE
    return Flaw.NOT_V2 if entry.kind is not RoCE.V2 and entry.gid == twin.gid else Flaw.NOT_FABRIC_IP


def entry_of(port: RdmaPort, index: int) -> GidEntry | None:
    return next((one for one in port.gids if one.index == index), None)


def choose(members: Sequence[Member], pin: int | None, *, is_free: bool = True) -> Choice:
    """The rank's index. NCCL has one value for all ports of a process, so the ports must agree on it.

    Not pinned, it is left to NCCL wherever that takes a right entry on every port by itself: then nothing goes stale
    when the table is renumbered between this look and NCCL's. Otherwise the first index that all ports share is given.
    `is_free` is false where a file on the node would choose in NCCL's place.
    """
    common = sorted(set.intersection(*(set(one.usable) for one in members))) if members else []
    agreed = common[0] if common else None
    if pin is not None:
        flaws = tuple((one.port.device, flaw) for one in members if (flaw := flaw_of(pin, one)))
        return Choice(agreed if flaws else pin, pin, flaws)
    lacking = tuple((one.port.device, Flaw.NOT_FABRIC_IP) for one in members if not one.usable)
    if lacking:
        return Choice(None, None, lacking)
    if is_free and all(one.own in one.usable for one in members):
        return Choice(agreed, None)
    return Choice(agreed, agreed, disagree=agreed is None)


def table(node: str, ports: Iterable[RdmaPort], members: Sequence[Member]) -> tuple[str, ...]:
    """The GID tables as lines for a person; what fits is marked."""
    fitting = {(one.port.device, one.port.port): one.usable for one in members}
    return tuple(
        f"{node}  {port.device}:{port.port}  {one.index:>3}  {one.ipv4 or one.gid}"
        f"  {one.kind or 'unknown type'}  {one.interface or 'no interface'}"
        + ("  <- fits" if one.index in fitting.get((port.device, port.port), ()) else "")
        for port in ports
        for one in port.gids
    )
