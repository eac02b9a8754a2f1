"""Which stream brings a worker's dataset to the head's snapshot, or what stands in the way: decided on lists alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from cluster.model.units import Bytes
from cluster.probe.zfs import Dataset, Snapshot

PREFIX = "sparkctl-"
TAG = "sparkctl"


class Clash(Enum):
    """Why a stream cannot be received as things are."""

    FOREIGN = "the dataset was not made by an attach of this deployment"
    NO_COMMON = "the dataset has no snapshot in common with the head's"
    EXISTS = "the dataset is there and has no snapshot to go on from"
    DIVERGED = "the dataset has newer snapshots that the head does not have"
    AHEAD = "the dataset is ahead of what the head has now"
    MODIFIED = "the dataset was written to"
    PLAIN = "the head's dataset is encrypted, and the worker's is not"


@dataclass(frozen=True, slots=True)
class Nothing:
    """The worker has the snapshot, and nothing was written since."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on with a receive that was cut off; `snapshot` is empty when nobody can tell which it was."""

    token: str
    snapshot: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    """A stream from `base`, or a whole one without. The worker goes back to `back_to` first; that destroys `lost`."""

    base: Snapshot | None
    back_to: Snapshot | None = None
    lost: tuple[Snapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class GoBack:
    """The worker has it already, below newer ones: nothing is sent, `lost` is destroyed."""

    to: Snapshot
    lost: tuple[Snapshot, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """What somebody must choose about. `base` is what both have, `lost` what going back to it would destroy."""

    clash: Clash
    base: Snapshot | None = None
    lost: tuple[Snapshot, ...] = ()
    written: Bytes = Bytes(0)

    @property
    def can_go_back(self) -> bool:
        return self.base is not None


Decision = Nothing | Resume | Send | GoBack | Conflict


@dataclass(frozen=True, slots=True)
class Choice:
    """`abandon`: a receive that was cut off leads nowhere any more and is given up first."""

    decision: Decision
    abandon: bool = False


def decide(head: Dataset, wanted: Snapshot | None, there: Dataset | None, label: str, *, may_go_back: bool) -> Choice:
    """`wanted` is the head's snapshot of the content, None when it is still to be taken and so nobody has it."""
    if there is None:
        return Choice(Send(None))
    if there.owner != label:
        return Choice(Conflict(Clash.FOREIGN))
    abandon = False
    if there.token:
        if (goal := _goal(head, wanted, there)) is not None:
            return Choice(Resume(there.token, goal))
        abandon = True
        if not there.snapshots:
            return Choice(Send(None), abandon)  # a first receive that is given up takes its dataset with it
    return Choice(_compare(head, wanted, there, may_go_back), abandon)


def _goal(head: Dataset, wanted: Snapshot | None, there: Dataset) -> str | None:
    """The name of the snapshot that a cut receive was on the way to; None when it is gone, or behind us by now."""
    if not there.to_guid:
        return ""
    base = newest_common(head.snapshots, there.snapshots)
    for one in upto(head.snapshots, wanted):
        if one.guid == there.to_guid and (base is None or one.order > base.order):
            return one.name
    return None


def _compare(head: Dataset, wanted: Snapshot | None, there: Dataset, may_go_back: bool) -> Decision:
    base = newest_common(upto(head.snapshots, wanted), there.snapshots)
    if base is None:
        return Conflict(Clash.NO_COMMON if there.snapshots else Clash.EXISTS)
    if head.is_encrypted and not there.is_encrypted:
        return Conflict(Clash.PLAIN)
    newer = after(there.snapshots, base)
    if wanted is not None and base.guid == wanted.guid:
        if not any(one.written for one in newer) and (there.read_only or not there.written):
            return Nothing()  # a snapshot of what did not change is no harm
        conflict = _conflict(head, base, newer, there)
        return GoBack(base, newer) if may_go_back else conflict
    if not newer and there.written and there.read_only:
        return Send(base, back_to=base)  # nobody can have written: a mount alone does this (access times, deletes)
    if newer or there.written:
        return Send(base, base, newer) if may_go_back else _conflict(head, base, newer, there)
    return Send(base)


def _conflict(head: Dataset, base: Snapshot, newer: tuple[Snapshot, ...], there: Dataset) -> Conflict:
    if not newer:
        return Conflict(Clash.MODIFIED, base, (), there.written)
    known = {one.guid for one in head.snapshots}
    clash = Clash.AHEAD if all(one.guid in known for one in newer) else Clash.DIVERGED
    return Conflict(clash, base, newer, there.written)


def upto(snapshots: Sequence[Snapshot], wanted: Snapshot | None) -> tuple[Snapshot, ...]:
    return tuple(one for one in snapshots if wanted is None or one.order <= wanted.order)


def after(snapshots: Iterable[Snapshot], base: Snapshot) -> tuple[Snapshot, ...]:
    """Those newer than the base, which is named by its guid: the order on one pool says nothing of another."""
    mine = tuple(snapshots)
    order = next(one.order for one in mine if one.guid == base.guid)
    return tuple(one for one in mine if one.order > order)


def newest_common(head: Iterable[Snapshot], there: Iterable[Snapshot]) -> Snapshot | None:
    """By guid: names can be given again, clocks can be set back."""
    guids = {one.guid for one in there}
    return max((one for one in head if one.guid in guids), key=lambda one: one.order, default=None)


def need(head: Dataset, wanted: Snapshot | None, send: Send) -> Bytes:
    """Bytes that a worker's dataset grows by, from what was written; exact to a few percent."""
    if send.base is None:
        return head.referenced
    since = [one for one in upto(head.snapshots, wanted) if one.order > send.base.order]
    return Bytes(sum(one.written for one in since) + (head.written if wanted is None else 0))


def surplus(snapshots: Sequence[Snapshot], precious: frozenset[int], keep: int) -> tuple[Snapshot, ...]:
    """Ours alone, the oldest first, never one that is needed to go on from, and the newest `keep` in any case."""
    ours = [one for one in snapshots if one.name.startswith(PREFIX)]
    return tuple(one for one in ours[: max(0, len(ours) - keep)] if one.guid not in precious and set(one.tags) <= {TAG})


def name_of(listing: str) -> str:
    """One snapshot for one content."""
    return f"{PREFIX}{listing[:16]}"


def wanted_of(head: Dataset, listing: str) -> Snapshot | None:
    """The head's snapshot of what lies there now, or None. Nothing written since the newest of ours: it is that one."""
    if head.snapshots and not head.written and head.snapshots[-1].name.startswith(PREFIX):
        return head.snapshots[-1]
    return next((one for one in head.snapshots if one.name == name_of(listing)), None)
