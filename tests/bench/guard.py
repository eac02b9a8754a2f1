"""The memory guard: false ends of an innocent server, how fast a real leak is met, and what a look costs."""

import statistics
import time

from cluster.agent.guard_eyes import ALERT, CALM, Eyes
from cluster.agent.guard_rule import GIB
from tests.bench.measure import Result, say
from tests.fakes.memory import innocent, leaking, play, rules

COURSES = 100
MODES = ("leave", "freeze", "stop")
LOOKS = 50


def run() -> Result:
    false_ends = sum(_is_ended(seed, mode) for mode in MODES for seed in range(COURSES))
    say(f"{len(MODES) * COURSES} courses in which others grow: {false_ends} servers ended")
    reactions, left = zip(*(_reaction(seed) for seed in range(COURSES)), strict=True)
    say(f"{COURSES} leaks: met {statistics.median(reactions):.2f} s after the floor, {min(left):.2f} GiB left at worst")
    cost = _cost()
    say(f"a look at this machine takes {cost * 1000:.1f} ms")
    return Result(
        ratios={"false_ends": float(false_ends), "calm_core_share": cost / CALM},
        figures={
            "courses": len(MODES) * COURSES,
            "reaction_median_s": statistics.median(reactions),
            "reaction_worst_s": max(reactions),
            "least_left_gib": min(left),
            "look_ms": cost * 1000,
        },
    )


def _is_ended(seed: int, mode: str) -> bool:
    course = innocent(seed)
    return any(action.kind == "stop" for _, _, action in play(course, rules(foreign=mode), 300, CALM, ALERT))


def _reaction(seed: int) -> tuple[float, float]:
    """Seconds from the last crossing of the floor to the end of our ranks, and what was left then, in GiB."""
    course, _ = leaking(seed)
    given = rules()
    *_, (at, sample, _) = play(course, given, 1500, CALM, ALERT)
    crossed = at
    while course.sample(crossed, {}).available < given.floor:
        crossed -= 0.05
    return at - crossed, sample.available / GIB


def _cost() -> float:
    eyes, spent = Eyes([], "/proc/meminfo"), []
    for _ in range(LOOKS):
        began = time.monotonic()
        eyes.look(began, is_alert=False)
        spent.append(time.monotonic() - began)
    return statistics.median(spent)
