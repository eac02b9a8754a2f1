"""Whom to blame for a node's shortage of memory, and what to do about it: values in, values out.

The books: a fall of MemAvailable is the growth of anonymous memory, by session of processes, and of what each has on
the GPU, of shared memory, of the kernel's slab, and a rest, which is the GPU's driver. Our ranks may take what was
planned for them. They are to blame when the node would be short without any growth of others, or when they are
further over their plan than others have grown; else it is others. For others' growth our ranks are never ended.
Pressure (PSI) comes too late to decide anything.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

MIB, GIB = 1 << 20, 1 << 30
WINDOW = 4.0  # seconds over which a pace is measured
DWELL, DWELL_LAST = 1.0, 0.2  # seconds below a level before anything is ended: a peak that is over is no emergency
EARLY = 8.0  # seconds to the last level: growth of others is met before the floor
LEAST = 256 * MIB  # growth that can be to blame
AGAIN = 30.0  # seconds until the same is told, or dropped, again
KILL_AFTER = 5.0  # seconds to end when asked
PROTECTED = (
    "systemd", "init", "sshd", "dockerd", "containerd", "dbus-daemon", "NetworkManager", "Xorg", "gnome-shell",
    "sparkctl",
)  # fmt: skip


class Tree(NamedTuple):
    """The processes of one session that are not ours; `size` is anonymous memory and what they have on the GPU."""

    key: int
    name: str
    pid: int
    size: int


class Sample(NamedTuple):
    """One look. `ours` is what Tree.size is, over all our ranks here; `shared` leaves out our own shared memory."""

    at: float
    available: int
    free: int
    shared: int
    slab: int
    ours: int
    trees: Tuple[Tree, ...]


class Rules(NamedTuple):
    """Levels in bytes of MemAvailable, and what may be done."""

    warn: int
    floor: int
    last: int
    acts: bool
    foreign: str
    allowance: Optional[int]
    drops: bool


class Books(NamedTuple):
    """Where memory went between two samples; `rest` is what nobody is known to hold: the GPU's driver, for us."""

    seconds: float
    fall: int
    ours: int
    others: int
    shared: int
    slab: int
    rest: int
    grown: Tuple[Tree, ...]


class Action(NamedTuple):
    """kind: drop, warn, freeze, end, kill (these three for others), stop (for our ranks, on every node)."""

    kind: str
    why: str
    pid: int = 0
    key: int = 0


class Past(NamedTuple):
    """What the rule remembers. `begin` is the look before anything of ours ran."""

    begin: Optional[Sample] = None
    recent: Tuple[Sample, ...] = ()
    low_since: Optional[float] = None
    last_since: Optional[float] = None
    told: Tuple[float, str] = (-1e9, "")
    dropped: float = -1e9
    asked: Tuple[Tuple[int, float], ...] = ()
    stopped: bool = False


def books(old: Sample, new: Sample) -> Books:
    before = {tree.key: tree.size for tree in old.trees}
    grown = [tree._replace(size=tree.size - before.get(tree.key, 0)) for tree in new.trees]
    others = sum(tree.size for tree in new.trees) - sum(tree.size for tree in old.trees)
    fall, ours = old.available - new.available, new.ours - old.ours
    shared, slab = new.shared - old.shared, new.slab - old.slab
    ranked = tuple(sorted((tree for tree in grown if tree.size > 0), key=lambda tree: -tree.size)[:5])
    return Books(new.at - old.at, fall, ours, others, shared, slab, fall - ours - others - shared - slab, ranked)


def to_blame(rules: Rules, available: int, since: Books) -> str:
    """`ours`, `others`, or "" while nobody is: see the books above. The kernel's slab counts as others', unnamed."""
    others = max(0, since.others + since.shared + since.slab)
    known = others + max(0, since.ours)
    if known > max(0, since.fall):  # pages that forked processes still share were counted for each of them
        others = others * max(0, since.fall) // known
    over = since.ours + max(0, since.rest) - rules.allowance if rules.allowance is not None else 0
    if over > max(others, LEAST):
        return "ours"
    if available + others < rules.floor:
        return "ours"
    return "others" if others >= LEAST or available < rules.floor else ""


def decide(past: Past, now: Sample, rules: Rules) -> Tuple[Past, List[Action]]:
    """What to do after this look, and what to remember."""
    begin = past.begin or now
    recent = (*(one for one in past.recent if one.at >= now.at - WINDOW), now)
    since = books(begin, now)
    past = past._replace(
        begin=begin,
        recent=recent,
        low_since=(past.low_since if past.low_since is not None else now.at) if now.available < rules.floor else None,
        last_since=(past.last_since if past.last_since is not None else now.at) if now.available < rules.last else None,
    )
    actions: List[Action] = []
    if rules.drops and now.free < rules.warn and now.available - now.free > GIB and now.at - past.dropped >= AGAIN:
        past = past._replace(dropped=now.at)
        actions.append(Action("drop", "%s free, %s available" % (gib(now.free), gib(now.available))))
    soon = time_left(recent, rules) < EARLY and now.available < 4 * rules.warn
    if now.available >= rules.warn and not soon:
        return past, actions
    guilty = to_blame(rules, now.available, since)
    if not guilty or (now.available >= rules.warn and guilty != "others"):
        return past, actions  # a peak within the plan; or ours, which grow fast while they load
    past, told = tell(past, now, rules, since, guilty)
    actions += told
    if not rules.acts or past.stopped:
        return past, actions
    is_low = past.low_since is not None and now.at - past.low_since >= DWELL
    is_last = past.last_since is not None and now.at - past.last_since >= DWELL_LAST
    if guilty == "ours" and (is_low or is_last):
        past = past._replace(stopped=True)
        actions.append(Action("stop", sentence(now, since, guilty)))
    elif guilty == "others" and rules.foreign != "leave" and (is_low or is_last or soon):
        past, more = against(past, now, rules, since)
        actions += more
    return past, actions


def time_left(recent: Tuple[Sample, ...], rules: Rules) -> float:
    """Seconds to the last level at the pace of the window; endless when memory does not fall, or hardly."""
    old, new = recent[0], recent[-1]
    fall = old.available - new.available
    if new.at - old.at < 1.0 or fall < LEAST // 2:
        return float("inf")
    return max(0, new.available - rules.last) / (fall / (new.at - old.at))


def tell(past: Past, now: Sample, rules: Rules, since: Books, guilty: str) -> Tuple[Past, List[Action]]:
    level = "low" if now.available < rules.floor else "warn"
    who = level + guilty + (since.grown[0].name if guilty == "others" and since.grown else "")
    if who == past.told[1] and now.at - past.told[0] < AGAIN:
        return past, []
    return past._replace(told=(now.at, who)), [Action("warn", sentence(now, since, guilty))]


def against(past: Past, now: Sample, rules: Rules, since: Books) -> Tuple[Past, List[Action]]:
    """Others in the order of their growth, each asked once and killed once; nobody whom the node needs."""
    asked = dict(past.asked)
    for tree in since.grown:
        if tree.size < LEAST or tree.name.startswith(PROTECTED):
            continue
        if tree.key not in asked:
            kind = "freeze" if rules.foreign == "freeze" else "end"
            action = Action(kind, sentence(now, since, "others"), tree.pid, tree.key)
            return past._replace(asked=(*past.asked, (tree.key, now.at))), [action]
        if rules.foreign == "stop" and now.at - asked[tree.key] >= KILL_AFTER:
            action = Action("kill", "%s did not end when asked" % tree.name, tree.pid, tree.key)
            rest = tuple(one for one in past.asked if one[0] != tree.key)
            return past._replace(asked=(*rest, (tree.key, now.at + 3600.0))), [action]
        if asked[tree.key] > now.at - KILL_AFTER:
            return past, []  # it needs a moment
    return past, []


def sentence(now: Sample, since: Books, guilty: str) -> str:
    """Who took what, in one line: it goes to the log and to `status`."""
    named = ", ".join(
        "%s (pid %d) %s" % (tree.name, tree.pid, gib(tree.size)) for tree in since.grown[:3] if tree.size >= LEAST // 4
    )
    ours = since.ours + max(0, since.rest)
    blamed = "our ranks are" if guilty == "ours" else "others are"
    return "%s available, %s to blame; so far our ranks took %s, others %s%s, shared memory %s, the kernel %s" % (
        gib(now.available), blamed, gib(ours), gib(since.others), " (%s)" % named if named else "", gib(since.shared),
        gib(since.slab),
    )  # fmt: skip


def gib(size: int) -> str:
    return "%.2f GiB" % (size / GIB)
