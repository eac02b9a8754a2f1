"""A node's memory as a course of seconds: a server, strangers, the page cache, all of them numbers."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from cluster.agent.guard_rule import GIB, Action, Past, Rules, Sample, Tree, decide

Curve = Callable[[float], float]
TOTAL = 121.69


@dataclass
class Course:
    """Sizes in GiB by time in seconds. `driver` is what our ranks take in no process's books."""

    before: float = 115.5
    ours: Curve = lambda at: 0.0
    driver: Curve = lambda at: 0.0
    others: dict[str, Curve] = field(default_factory=dict)
    shared: Curve = lambda at: 0.0
    slab: Curve = lambda at: 0.3
    cache: Curve = lambda at: 2.0

    def sample(self, at: float, frozen: dict[int, float]) -> Sample:
        """`frozen` are those that were stopped, and when; those that ended are at infinity before it."""
        sizes = {name: self._size(name, number, at, frozen) for number, name in enumerate(self.others)}
        grown = sum(sizes.values()) - sum(curve(0) for curve in self.others.values()) + self.slab(at) - self.slab(0)
        taken = self.ours(at) + self.driver(at) + grown + self.shared(at)
        available = max(0.0, self.before - taken)
        trees = tuple(Tree(n, name, 100 + n, int(sizes[name] * GIB)) for n, name in enumerate(self.others))
        return Sample(
            at=at,
            available=int(available * GIB),
            free=int(max(0.2, available - self.cache(at)) * GIB),
            shared=int(self.shared(at) * GIB),
            slab=int(self.slab(at) * GIB),
            ours=int(self.ours(at) * GIB),
            trees=tuple(one for one in trees if one.size > 0),
        )

    def _size(self, name: str, number: int, at: float, frozen: dict[int, float]) -> float:
        until = frozen.get(number, math.inf)
        return 0.0 if until < 0 else self.others[name](min(at, until))


def rules(**changes) -> Rules:
    given = {
        "warn": 3 * GIB, "floor": GIB * 3 // 2, "last": GIB, "acts": True, "foreign": "leave", "allowance": None,
        "drops": True,
    }  # fmt: skip
    return Rules(**{**given, **changes})


def play(
    course: Course, given: Rules, seconds: float, calm: float = 1.0, alert: float = 0.2
) -> Iterator[tuple[float, Sample, Action]]:
    """What the guard does, look by look; what it freezes or ends stands still or is gone. Ends with a stop of ours.

    The guard itself looks twice as often.
    """
    past, at = Past(), 0.0
    frozen: dict[int, float] = {}
    while at < seconds:
        sample = course.sample(at, frozen)
        past, actions = decide(past, sample, given)
        for action in actions:
            yield at, sample, action
            if action.kind == "freeze":
                frozen[action.key] = at
            elif action.kind in ("end", "kill"):
                frozen[action.key] = -1.0
            elif action.kind == "stop":
                return
        at += alert if sample.available < given.warn else calm


def server(load: float, peak: float, seed: Random, driver_share: float = 0.85) -> tuple[Curve, Curve]:
    """Loads within `load` seconds to `peak` GiB, then breathes: prefills that come and go within its plan."""
    prefills = [(seed.uniform(load + 5, load + 200), seed.uniform(0.2, 2.0), seed.uniform(1, 40)) for _ in range(6)]

    def whole(at: float) -> float:
        base = peak * min(1.0, at / load)
        growing = (size * min(1.0, (at - begin) / 2.0) for begin, size, last in prefills if begin <= at < begin + last)
        return base + max([0.0, *growing])

    return (lambda at: whole(at) * (1 - driver_share)), (lambda at: whole(at) * driver_share)


def ramp(begin: float, rate: float, most: float, start: float = 0.0) -> Curve:
    """Grows by `rate` GiB a second from `begin` on, up to `most`."""
    return lambda at: start + min(most, max(0.0, (at - begin) * rate))


PEAK = 111.3  # of 115.5 that are available before: 4.2 stay


def innocent(seed: int) -> Course:
    """Strangers of every kind, slow and fast, that come and go; ours stays within its plan."""
    chance = Random(seed)
    ours, driver = server(chance.uniform(30, 90), chance.uniform(109.5, PEAK), chance, chance.uniform(0, 1))
    others = {}
    for name in ("ffmpeg", "python3", "cc1plus", "rsync")[: chance.randint(0, 4)]:
        begin, rate = chance.uniform(0, 300), math.exp(chance.uniform(math.log(0.005), math.log(2.0)))
        others[name] = ramp(begin, rate, chance.uniform(0.3, 6.0), chance.choice((0.0, 0.5)))
    if chance.random() < 0.3:
        gone = chance.uniform(100, 300)
        others["browser"] = lambda at: 2.0 if at < gone else 0.0
    shared = ramp(chance.uniform(100, 300), 0.5, chance.choice((0.0, 0.0, 3.0)))
    return Course(ours=ours, driver=driver, others=others, shared=shared, cache=ramp(0, 2.0, chance.uniform(0, 90)))


def leaking(seed: int) -> tuple[Course, float]:
    """The same, and our ranks leak: a course, and the GiB a second that go."""
    chance, course = Random(seed), innocent(seed)
    begin, rate = chance.uniform(110, 200), math.exp(chance.uniform(math.log(0.02), math.log(1.0)))
    leak, driver = ramp(begin, rate, 20.0), course.driver
    course.others = {name: curve for name, curve in course.others.items() if name == "browser"}
    course.shared = ramp(0, 0, 0)
    course.driver = lambda at: driver(at) + leak(at)
    return course, rate
