"""Who is to blame, and what is done: single stories, and a hundred at random in which our ranks are innocent."""

import random

import pytest

from cluster.agent.guard_rule import GIB, Past, Sample, Tree, books, decide, to_blame
from tests.fakes.memory import PEAK, Course, innocent, leaking, play, ramp, rules, server


def course(seed: int = 1, **changes) -> Course:
    ours, driver = server(60.0, PEAK, random.Random(seed))
    return Course(**{"ours": ours, "driver": driver, **changes})


def kinds(given: Course, seconds: float = 400.0, **changes) -> list[str]:
    return [action.kind for _, _, action in play(given, rules(**changes), seconds)]


def test_a_healthy_server_is_left_alone_at_its_narrow_margin():
    assert "stop" not in kinds(course())


def test_a_fall_is_the_sum_of_what_grew_and_a_rest():
    old = Sample(0, 100, 90, 10, 5, 20, (Tree(1, "a", 7, 30), Tree(2, "b", 8, 5)))
    new = Sample(4, 40, 30, 14, 6, 35, (Tree(1, "a", 7, 50), Tree(3, "c", 9, 2)))
    seen = books(old, new)
    assert (seen.seconds, seen.fall, seen.ours, seen.others, seen.shared, seen.slab, seen.rest) == (
        4,
        60,
        15,
        17,
        4,
        1,
        23,
    )
    assert seen.grown == (Tree(1, "a", 7, 20), Tree(3, "c", 9, 2))


def test_a_stranger_that_takes_the_margin_is_named_and_the_server_lives():
    told = list(play(course(others={"ffmpeg": ramp(150, 0.17, 7.0)}), rules(), 400))
    assert {action.kind for _, _, action in told} <= {"warn", "drop"}
    last = [action.why for _, _, action in told if action.kind == "warn"][-1]
    assert "others are to blame" in last
    assert "ffmpeg (pid 100) 7.00 GiB" in last


@pytest.mark.parametrize(("foreign", "kind"), [("freeze", "freeze"), ("stop", "end")])
def test_a_stranger_that_may_be_touched_is_met_before_the_floor(foreign, kind):
    told = list(play(course(others={"ffmpeg": ramp(150, 0.17, 7.0)}), rules(foreign=foreign), 400))
    at, sample, action = next(one for one in told if one[2].kind == kind)
    assert (action.pid, at < 180) == (100, True)
    assert sample.available > GIB
    assert "stop" not in [action.kind for _, _, action in told]


def test_a_stranger_that_does_not_end_when_asked_is_killed():
    given = course(others={"ffmpeg": ramp(150, 0.1, 7.0)})
    past, at, done = Past(), 0.0, []
    while at < 300:  # it ignores every wish
        past, actions = decide(past, given.sample(at, {}), rules(foreign="stop"))
        done += [(at, action.kind) for action in actions if action.kind in ("end", "kill")]
        at += 0.5
    assert [kind for _, kind in done] == ["end", "kill"]
    assert done[1][0] - done[0][0] >= 5


@pytest.mark.parametrize("name", ["sshd", "systemd-journal", "dockerd", "containerd-shim", "sparkctl"])
def test_what_a_node_lives_by_is_never_touched(name):
    seen = kinds(course(others={name: ramp(150, 0.5, 7.0)}), foreign="stop")
    assert set(seen) <= {"warn", "drop"}


@pytest.mark.parametrize("share", [0.0, 0.85, 1.0])
def test_a_leak_of_ours_ends_our_ranks_at_the_floor(share):
    _, driver = server(60.0, PEAK, random.Random(1))
    leak = ramp(150, 0.2, 9.0)
    given = Course(
        ours=lambda at: (driver(at) / 0.85) * 0.15 + leak(at) * (1 - share),
        driver=lambda at: driver(at) + leak(at) * share,
        others={"jupyter": ramp(100, 0.01, 0.3)},
    )
    told = list(play(given, rules(), 400))
    _, sample, action = told[-1]
    assert action.kind == "stop"
    assert "our ranks are to blame" in action.why
    assert sample.available > GIB


def test_a_slow_leak_is_met_too():
    ours, driver = server(60.0, PEAK, random.Random(3))
    given = Course(ours=lambda at: ours(at) + ramp(400, 0.01, 9.0)(at), driver=driver)
    told = list(play(given, rules(), 1500))
    assert told[-1][2].kind == "stop"


def test_page_cache_alone_is_dropped_and_nobody_is_ended():
    seen = kinds(course(cache=ramp(10, 1.0, 100.0)), 120)
    assert seen.count("drop") >= 2
    assert set(seen) == {"drop"}


def test_cache_is_kept_where_it_must_be():
    assert kinds(course(cache=ramp(10, 1.0, 100.0)), 120, drops=False) == []


def test_a_watching_guard_only_tells():
    ours, driver = server(60.0, PEAK, random.Random(1))
    given = Course(ours=lambda at: ours(at) + ramp(150, 0.2, 9.0)(at), driver=driver, others={"x": ramp(0, 0.1, 0.5)})
    assert set(kinds(given, acts=False, drops=False)) == {"warn"}


def test_a_short_dip_ends_nothing():
    given = Course(
        ours=lambda at: 16.7 * min(1, at / 60) + (2.3 if 200 < at < 200.6 else 0),
        driver=lambda at: 95.3 * min(1, at / 60),
    )
    assert "stop" not in kinds(given)


def test_ranks_that_exceed_their_plan_are_to_blame_though_a_stranger_grew_a_little():
    seen = books(Sample(0, 115 * GIB, 0, 0, 0, 0, ()), Sample(9, 2 * GIB, 0, 0, 0, 112 * GIB, (Tree(1, "a", 2, GIB),)))
    assert to_blame(rules(allowance=108 * GIB), 2 * GIB, seen) == "ours"
    assert to_blame(rules(allowance=112 * GIB), 2 * GIB, seen) == "others"


def test_pages_that_forked_processes_share_convict_nobody_of_what_was_not_taken():
    forked = (Tree(1, "gunicorn", 2, 8 * GIB),)  # eight processes, one GiB between them
    seen = books(Sample(0, 100 * GIB, 0, 0, 0, 0, ()), Sample(9, GIB // 2, 0, 0, 0, 98 * GIB, forked))
    assert seen.fall < seen.ours + seen.others
    assert to_blame(rules(), GIB // 2, seen) == "others"
    alone = books(Sample(0, 3 * GIB, 0, 0, 0, 0, ()), Sample(9, GIB // 2, 0, 0, 0, 40 * GIB, forked))
    assert to_blame(rules(), GIB // 2, alone) == "ours"


def test_before_anything_is_known_a_plan_that_was_too_small_is_ours():
    seen = books(Sample(0, 100 * GIB, 0, 0, 0, 0, ()), Sample(9, GIB, 0, 0, 0, 99 * GIB, ()))
    assert to_blame(rules(), GIB, seen) == "ours"


def test_the_same_is_not_told_twice_within_half_a_minute():
    given = course(others={"ffmpeg": ramp(150, 1.0, 2.0)})
    times = [at for at, _, action in play(given, rules(drops=False), 250) if action.kind == "warn"]
    assert 1 < len(times) < 12


def test_a_hundred_random_courses_end_no_innocent_server():
    modes = ("leave", "freeze", "stop")
    ended = [seed for seed in range(100) if "stop" in kinds(innocent(seed), 300, foreign=modes[seed % 3])]
    assert ended == []


def test_a_hundred_random_leaks_are_ended_before_the_node_is_empty():
    late = []
    for seed in range(100):
        course, rate = leaking(seed)
        *_, (_, sample, action) = play(course, rules(), 1500)
        if action.kind != "stop" or sample.available < GIB // 4:
            late.append((seed, rate, action.kind, sample.available / GIB))
    assert late == []
