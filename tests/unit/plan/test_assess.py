"""What `status` says of one set of observations."""

from dataclasses import replace

import pytest

from cluster.model.deployment import State
from cluster.plan.assess import Assessment, Motion, RankStanding, assess, motion
from cluster.plan.boot import (
    Alive,
    Answered,
    Exited,
    Gone,
    HeadSight,
    HttpError,
    Limits,
    LogLine,
    Member,
    Observation,
    Process,
    RankSight,
    Rebooted,
    Silence,
    TimedOut,
    Unknown,
)
from cluster.probe.ras import RasReport, RasVerdict
from cluster.probe.vllm_metrics import Counters

MEMBERS = (Member(0, "spark-a"), Member(1, "spark-b"))
HTTP_UP = "(APIServer pid=1) INFO:     Application startup complete."
MISMATCH = "(Worker_TP1 pid=3) ERROR 11-30 15:56:39 [m.py:1063] WorkerProc hit an exception."
LIVES = Alive()
REBOOTED = Rebooted(1.5, "2026-11-30T17:01:00Z")
WITH_ITS_NODE = "its node was rebooted at 2026-11-30T17:01:00Z, after the start, and the rank went with it"
FROZEN = Counters(10, 918273, 2, 0)


def seen(
    one: Process = LIVES,
    other: Process = LIVES,
    head: HeadSight | None = None,
    *,
    log0: str = "",
    log1: str = "",
    ras: RasReport | None = None,
) -> Observation:
    lines = [tuple(LogLine(1.0, text) for text in log.splitlines()) for log in (log0, log1)]
    ranks = (RankSight(0, one, lines[0], ras), RankSight(1, other, lines[1]))
    return Observation(2.0, ranks, head or HeadSight(Silence.REFUSED))


@pytest.mark.parametrize(
    ("observation", "state", "reason"),
    [
        (seen(Gone(), Gone()), State.ABSENT, None),
        (
            seen(Gone(2), Gone()),
            State.DEGRADED,
            "rank 0 (spark-a): its launcher was killed; processes of it live on: 2",
        ),
        (seen(Exited(1), Exited(-9)), State.ABSENT, "rank 1 (spark-b): it was killed by SIGKILL"),
        (seen(Alive(), Exited(0)), State.DEGRADED, "rank 1 (spark-b): it ended with exit code 0, and gave no reason"),
        (seen(Alive(), Gone()), State.DEGRADED, "rank 1 (spark-b): it is not running, and left no exit code"),
        (seen(Alive(), Unknown("no route")), State.CANNOT_TELL, "spark-b does not answer: no route"),
        (seen(Gone(), Unknown("no route")), State.CANNOT_TELL, "spark-b does not answer: no route"),
        (seen(Exited(0), Unknown("no route")), State.CANNOT_TELL, "spark-b does not answer: no route"),
        (
            seen(Gone(2), Unknown("no route")),
            State.DEGRADED,
            "rank 0 (spark-a): its launcher was killed; processes of it live on: 2",
        ),
        (seen(Gone(), REBOOTED), State.ABSENT, f"rank 1 (spark-b): {WITH_ITS_NODE}"),
        (seen(REBOOTED, Unknown("no route")), State.CANNOT_TELL, "spark-b does not answer: no route"),
        (seen(), State.LOADING, "starting"),
        (seen(head=HeadSight(200, Answered())), State.SERVING, "a one-token completion was answered"),
        (seen(head=HeadSight(200, TimedOut(10))), State.HUNG, "a one-token completion was not answered within 10 s"),
        (seen(head=HeadSight(200, HttpError(500))), State.DEGRADED, "a completion is answered with status 500"),
        (seen(head=HeadSight(503)), State.DEGRADED, "/health answers 503"),
        (
            seen(head=HeadSight(200)),
            State.CANNOT_TELL,
            "/health answers 200, which proves nothing, and no token was asked for",
        ),
        (seen(log0=HTTP_UP), State.DEGRADED, "the API was up and now: connection refused"),
        (
            seen(head=HeadSight(200, Answered()), log1=MISMATCH),
            State.DEGRADED,
            "rank 1 (spark-b): its worker process hit an exception",
        ),
        (
            seen(head=HeadSight(200, TimedOut(10)), ras=RasReport(RasVerdict.INCOMPLETE, (1,))),
            State.HUNG,
            "NCCL's RAS gets no answer from rank 1",
        ),
        (
            seen(head=HeadSight(200, Answered()), ras=RasReport(RasVerdict.INCOMPLETE, (1,))),
            State.DEGRADED,
            "NCCL's RAS gets no answer from rank 1",
        ),
    ],
)
def test_one_look_is_one_state(observation, state, reason):
    found = assess(MEMBERS, observation, Limits())
    assert (found.state, next(iter(found.reasons), None)) == (state, reason)


def test_each_rank_says_how_it_stands():
    found = assess(MEMBERS, seen(Alive(), Exited(-9), log0=HTTP_UP), Limits())
    assert found == Assessment(
        State.DEGRADED,
        ("rank 1 (spark-b): it was killed by SIGKILL", "rank 1: process ended: killed by SIGKILL"),
        (
            RankStanding(0, "spark-a", "alive", "HTTP up", ()),
            RankStanding(1, "spark-b", "ended: killed by SIGKILL", "starting", ("it was killed by SIGKILL",)),
        ),
    )


@pytest.mark.parametrize(
    ("before", "after", "watts", "state"),
    [
        (FROZEN, FROZEN, 22.4, State.HUNG),
        (FROZEN, FROZEN, 47.0, State.SERVING),
        (FROZEN, FROZEN, None, State.HUNG),
        (FROZEN, Counters(10, 918300, 2, 0), 22.4, State.SERVING),
    ],
)
def test_a_probe_in_a_queue_is_judged_by_tokens_and_power(before, after, watts, state):
    observation = seen(Alive(gpu_watts=watts), head=HeadSight(200, TimedOut(10), after))
    assert assess(MEMBERS, observation, Limits(), before, 60).state is state


def test_two_samples_close_together_prove_no_hang():
    observation = seen(head=HeadSight(200, None, FROZEN))
    assert assess(MEMBERS, observation, Limits(), FROZEN, 5).state is State.CANNOT_TELL
    assert assess(MEMBERS, observation, Limits(), FROZEN, 60).state is State.HUNG


@pytest.mark.parametrize(
    ("after", "gpu_busy", "said"),
    [
        (FROZEN, False, Motion.STILL),
        (FROZEN, True, Motion.BUSY),
        (Counters(10, 918273, 0, 0), False, Motion.IDLE),
        (Counters(11, 918273, 2, 0), False, Motion.MOVING),
        (Counters(10, 918273, 2, 0, steps=1), False, Motion.MOVING),  # a long prefill in chunks
    ],
)
def test_two_samples_say_whether_tokens_move(after, gpu_busy, said):
    assert motion(FROZEN, after, gpu_busy=gpu_busy) is said


def test_a_rank_that_was_only_removed_accuses_nobody() -> None:
    told = "(APIServer pid=1) INFO 11-30 18:02:45 [launcher.py:1] [shutdown] API server: shutdown triggered"
    said = "ValueError: no such quantization: exl9"
    seen_later = replace(seen(Exited(0, asked=True), Exited(1), log0=told, log1=said), now=60.0)
    found = assess(MEMBERS, seen_later, Limits())
    assert (found.state, found.reasons) == (
        State.ABSENT,
        (
            "rank 1 (spark-b): it ended with exit code 1: ValueError: no such quantization: exl9",
            f"rank 1: {said}",
            "rank 1: process ended: exit code 1",
        ),
    )


@pytest.mark.parametrize(
    ("other", "state", "reason"),
    [
        (Exited(0, asked=True), State.ABSENT, "it was stopped as asked"),
        (LIVES, State.DEGRADED, "rank 0 (spark-a) was stopped as asked, others were not"),
        (Unknown("no route"), State.CANNOT_TELL, "spark-b does not answer: no route"),
    ],
)
def test_a_rank_that_was_stopped_as_asked_says_nothing_of_the_others(other: Process, state: State, reason: str) -> None:
    found = assess(MEMBERS, seen(Exited(0, asked=True), other), Limits())
    assert (found.state, found.reasons) == (state, (reason,))


def test_what_a_killed_server_s_children_say_afterwards_is_not_the_reason() -> None:
    said = "(EngineCore pid=2) INFO 11-30 18:02:45 [core.py:1] [shutdown] Executor: waiting for worker exit count=1"
    found = assess(MEMBERS, seen(Exited(-9, at=0.5), log0=said), Limits())
    assert (found.state, found.reasons[0]) == (State.DEGRADED, "rank 0 (spark-a): it was killed by SIGKILL")


def test_a_power_cut_is_the_cause_though_the_other_rank_complains_first() -> None:
    lost = "RuntimeError: NCCL error: remote process exited or there was a network error"
    found = assess(MEMBERS, seen(Exited(1), REBOOTED, log0=lost), Limits())
    assert (found.state, found.reasons[0], found.reasons[-1]) == (
        State.ABSENT,
        f"rank 1 (spark-b): {WITH_ITS_NODE}",
        "`sparkctl start` starts all ranks anew",
    )
    assert found.ranks[1].process == "gone: its node was rebooted at 2026-11-30T17:01:00Z"
