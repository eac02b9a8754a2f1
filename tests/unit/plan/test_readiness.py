"""The readiness rule, one rule at a time, with made-up looks a second apart."""

from collections.abc import Callable

import pytest

from cluster.plan.boot import (
    Alive,
    Answered,
    Boot,
    CannotTell,
    Completion,
    Died,
    Exited,
    Gone,
    HeadSight,
    HttpError,
    Hung,
    Limits,
    Loading,
    LogLine,
    Member,
    Observation,
    OutOfTime,
    Process,
    RankSight,
    Serving,
    Silence,
    TimedOut,
    Unknown,
    Verdict,
)
from cluster.plan.readiness import advance, describe
from cluster.probe.ras import RasReport, RasVerdict
from cluster.probe.vllm_metrics import Counters

MEMBERS = (Member(0, "spark-a", "10.0.0.1"), Member(1, "spark-b", "10.0.0.2"))
SSH255 = Unknown("ssh: connection timed out")
REFUSED = HeadSight(Silence.REFUSED)
TOKEN = HeadSight(200, Answered())
UP = HeadSight(200)
KILLED_0 = "ERROR 11-30 15:40:37 [m.py:315] Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting"
LOST_PEER = "node0:1:2 [0] misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer b<1>"
SHM = "(EngineCore pid=8) INFO 11-30 15:36:45 [shm_broadcast.py:871] No available shared memory broadcast block found"
WAITS = "world_size=2 rank={rank} local_rank=0 distributed_init_method=tcp://10.0.0.1:29501 backend=nccl"


class Play:
    """Looks at seconds 1, 2, 3 ... with these answers; `said` holds each new verdict with its second."""

    def __init__(
        self,
        last: int,
        *,
        lines: dict[int, list[tuple[float, str]]] | None = None,
        process: Callable[[int, int], Process] = lambda rank, now: Alive(),
        head: Callable[[int], HeadSight] = lambda now: REFUSED,
        ras: Callable[[int, int], RasReport | None] = lambda rank, now: None,
        limits: Limits | None = None,
        members: tuple[Member, ...] = MEMBERS,
    ) -> None:
        self.boot = Boot.begin(members, 0.0)
        self.said: list[tuple[int, type[Verdict]]] = []
        self.notes: list[tuple[int, str]] = []
        for now in range(1, last + 1):
            sights = tuple(
                RankSight(m.rank, process(m.rank, now), self._due(lines, m.rank, now), ras(m.rank, now))
                for m in members
            )
            self.boot = advance(self.boot, Observation(now, sights, head(now)), limits or Limits())
            if not self.said or self.said[-1][1] is not type(self.boot.verdict):
                self.said.append((now, type(self.boot.verdict)))
            self.notes += [(now, note) for note in self.boot.notes]

    @staticmethod
    def _due(lines: dict[int, list[tuple[float, str]]] | None, rank: int, now: int) -> tuple[LogLine, ...]:
        return tuple(LogLine(at, text) for at, text in (lines or {}).get(rank, []) if now - 1 < at <= now)


# ---- serving


def test_health_alone_is_not_serving():
    assert Play(60, head=lambda now: UP).said == [(1, Loading)]


def test_a_token_with_all_ranks_alive_is_serving():
    play = Play(9, head=lambda now: TOKEN if now >= 5 else UP)
    assert play.said == [(1, Loading), (5, Serving)]
    assert play.boot.verdict == Serving(5, "a one-token completion was answered")


def test_moving_generation_tokens_are_proof_too():
    def head(now: int) -> HeadSight:
        return HeadSight(200, None, Counters(10, now, 1, 0))

    assert Play(3, head=head).said == [(1, Loading), (2, Serving)]


def test_a_token_does_not_count_while_a_rank_is_unknown():
    def process(rank: int, now: int) -> Process:
        return SSH255 if rank == 1 and now < 5 else Alive()

    assert Play(6, process=process, head=lambda now: TOKEN).said == [(1, Loading), (5, Serving)]


def test_a_token_before_a_rank_was_unknown_must_be_made_again():
    def process(rank: int, now: int) -> Process:
        return SSH255 if rank == 1 and now < 5 else Alive()

    assert Play(9, process=process, head=lambda now: TOKEN if now == 2 else UP).said == [(1, Loading)]


def test_a_refused_completion_is_told_once_and_is_not_serving():
    play = Play(20, head=lambda now: HeadSight(200, HttpError(401, "Unauthorized")))
    assert play.said == [(1, Loading)]
    assert play.notes == [(1, "a completion is refused with status 401: Unauthorized")]


# ---- death


@pytest.mark.parametrize("code", [0, 1, 143])
def test_any_exit_is_death_even_code_0(code):
    def process(rank: int, now: int) -> Process:
        return Exited(code) if rank == 1 and now >= 10 else Alive()

    play = Play(15, process=process, head=lambda now: TOKEN)
    assert isinstance(play.boot.verdict, Died)
    assert (play.boot.verdict.rank, play.boot.verdict.exit) == (1, code)


def test_the_killed_rank_is_named_and_not_the_one_that_complains():
    def process(rank: int, now: int) -> Process:
        return Exited(-9) if rank == 1 and now >= 12 else Alive()

    play = Play(20, process=process, lines={0: [(10, LOST_PEER)]})
    assert play.said == [(1, Loading), (12, Died)]
    assert play.boot.verdict == Died(
        1,
        "it was killed by SIGKILL",
        (
            "rank 1: process ended: killed by SIGKILL",
            "rank 0: misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer b<1>",
        ),
        -9,
    )


def test_a_complaint_waits_three_seconds_for_the_other_ranks_words():
    play = Play(20, lines={0: [(10, LOST_PEER)]})
    assert play.said == [(1, Loading), (13, Died)]
    assert play.boot.verdict == Died(
        1,
        "it went away: NCCL lost the connection to it",
        ("rank 0: misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer b<1>",),
    )


def test_a_rank_that_names_its_own_trouble_is_believed_at_once():
    play = Play(20, lines={0: [(10.5, KILLED_0)], 1: [(10.2, LOST_PEER)]})
    assert play.said == [(1, Loading), (11, Died)]
    assert describe(play.boot.verdict, MEMBERS) == (
        "rank 0 (spark-a) failed first: its worker process VllmWorker-0 died: killed by SIGKILL"
    )


def test_ranks_that_blame_each_other_have_lost_the_link():
    play = Play(20, lines={0: [(10, LOST_PEER)], 1: [(10, LOST_PEER)]})
    assert isinstance(play.boot.verdict, Died)
    assert "lost each other" in play.boot.verdict.cause


def test_a_symptom_carries_the_exception_beside_it():
    lines = [(10.0, "ERROR 11-30 15:40:37 [m.py:1] WorkerProc hit an exception."), (10.1, "ValueError: seventeen")]
    play = Play(20, lines={1: lines})
    assert play.boot.verdict == Died(
        1,
        "its worker process hit an exception: ValueError: seventeen",
        ("rank 1: WorkerProc hit an exception.", "rank 1: ValueError: seventeen"),
    )


def test_an_exception_without_a_symptom_is_no_death():
    assert Play(20, lines={1: [(10, "ValueError: caught by somebody")]}).said == [(1, Loading)]


def test_with_four_ranks_the_address_in_the_line_names_the_peer():
    members = tuple(Member(n, f"spark-{n}", f"10.0.0.{n + 1}") for n in range(4))
    line = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:29835. This is"
    play = Play(20, members=members, lines={0: [(10, line)]})
    assert isinstance(play.boot.verdict, Died)
    assert play.boot.verdict.rank == 2


def test_health_503_is_a_dead_engine():
    play = Play(20, head=lambda now: TOKEN if now < 10 else HeadSight(503))
    assert play.said == [(1, Serving), (13, Died)]
    assert play.boot.verdict == Died(0, "its engine died", ("rank 0: /health answers 503",))


def test_a_verdict_of_death_stays():
    play = Play(30, lines={0: [(10, KILLED_0)]}, head=lambda now: TOKEN)
    assert play.said == [(1, Serving), (10, Died)]


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ((Gone(), Gone(), Gone()), Died),
        ((Gone(), SSH255, Gone()), Loading),
        ((Gone(), Alive(), Gone(), Gone()), Loading),
        ((SSH255,) * 9, Loading),
        ((SSH255,) * 10, CannotTell),
        ((SSH255,) * 500, CannotTell),
    ],
)
def test_gone_must_be_answered_three_times_and_silence_is_never_death(answers, verdict):
    """VLL-01."""

    def process(rank: int, now: int) -> Process:
        return answers[now - 1] if rank == 1 else Alive()

    assert type(Play(len(answers), process=process).boot.verdict) is verdict


def test_a_lost_node_is_told_once_and_taken_back():
    def process(rank: int, now: int) -> Process:
        return SSH255 if rank == 1 and now < 15 else Alive()

    play = Play(20, process=process)
    assert play.said == [(1, Loading), (10, CannotTell), (15, Loading)]
    said = "spark-b does not answer (ssh: connection timed out); rank 1 counts as unknown, not as dead"
    assert play.notes == [(2, said)]


# ---- hangs before the first token


def test_periodic_notices_do_not_feed_the_clock():
    """VLL-02."""
    shards = "Loading safetensors checkpoint shards: 100% Completed | 39/39"
    lines = [(300.0, shards)] + [(at, SHM) for at in (361.0, 421.0, 481.0, 541.0, 601.0, 661.0, 721.0)]
    play = Play(725, lines={0: lines, 1: [(299.0, "rank 1 in world size 2 is assigned as DP rank 0")]})
    assert play.said == [(1, Loading), (720, Hung)]
    assert isinstance(play.boot.verdict, Hung)
    assert play.boot.verdict.since == 300


def test_a_text_already_seen_does_not_feed_the_clock_and_a_changed_percentage_does():
    same = [(float(at), "waiting for the tuner") for at in range(10, 500, 10)]
    assert (430, Hung) in Play(440, lines={0: same}).said
    bar = [(float(at), f"tuning kernels: {at // 10}%") for at in range(10, 900, 10)]
    assert Play(900, lines={0: bar}).said == [(1, Loading)]


def test_one_rank_that_uses_no_cpu_is_hung_while_the_other_goes_on():
    def process(rank: int, now: int) -> Process:
        return Alive(cpu_seconds=float(now if rank == 0 else min(now, 30)))

    bar = [(float(at), f"loading {at}%") for at in range(1, 500)]
    play = Play(500, process=process, lines={0: bar, 1: [(30.0, "Starting to load model x")]})
    assert play.said == [(1, Loading), (450, Hung)]
    assert isinstance(play.boot.verdict, Hung)
    assert play.boot.verdict.ranks == (1,)


def test_one_silent_rank_that_works_is_not_hung():
    def process(rank: int, now: int) -> Process:
        return Alive(cpu_seconds=float(now))

    bar = [(float(at), f"loading {at}%") for at in range(1, 900)]
    assert Play(900, process=process, lines={0: bar, 1: [(30.0, "Starting to load model x")]}).said == [(1, Loading)]


def test_a_gpu_that_draws_power_is_waited_for_until_the_wall():
    play = Play(610, process=lambda rank, now: Alive(gpu_watts=47.0), limits=Limits(wall=600))
    assert play.said == [(1, Loading), (600, OutOfTime)]
    assert play.notes == [(420, "no new log line for 420 s, but a GPU draws power: still waiting")]


def test_the_wall_limit_ends_a_boot_that_still_moves():
    bar = [(float(at), f"loading {at}%") for at in range(1, 1600)]
    assert Play(1600, lines={0: bar}).said == [(1, Loading), (1500, OutOfTime)]


def test_waiting_for_a_peer_is_said_after_half_a_minute_and_once():
    play = Play(100, lines={0: [(10.0, WAITS.format(rank=0))]})
    said = "rank 0 (spark-a) waits for rank 1 (spark-b), which has not come to the rendezvous tcp://10.0.0.1:29501"
    assert play.notes == [
        (40, f"{said} (since 30 s)"),
    ]


def test_ranks_at_different_rendezvous_are_hung_at_once():
    play = Play(
        30, lines={0: [(10.0, WAITS.format(rank=0))], 1: [(20.0, WAITS.format(rank=1).replace("29501", "29502"))]}
    )
    assert play.said == [(1, Loading), (20, Hung)]


# ---- hangs after the first token


def busy(stops: int, goes_on: int = 10**9, running: float = 2.0) -> Callable[[int], HeadSight]:
    def head(now: int) -> HeadSight:
        made = min(now, stops) + max(0, now - goes_on)
        return HeadSight(200, Answered() if now == 1 else None, Counters(10, 900 + made, running, 0))

    return head


def test_running_requests_without_tokens_are_a_hang():
    play = Play(100, head=busy(20))
    assert play.said == [(1, Serving), (80, Hung)]
    assert play.boot.verdict == Hung((0, 1), 20, "2 requests are running and no token was made for 80 s")


def test_a_hang_is_taken_back_when_tokens_move_again():
    assert Play(200, head=busy(20, 150)).said == [(1, Serving), (80, Hung), (151, Serving)]


@pytest.mark.parametrize(
    ("watts", "running", "verdict"), [(22.4, 2.0, Hung), (47.0, 2.0, Serving), (22.4, 0.0, Serving)]
)
def test_power_tells_a_long_prefill_from_a_hang(watts, running, verdict):
    """VLL-03."""
    play = Play(200, process=lambda rank, now: Alive(gpu_watts=watts), head=busy(20, running=running))
    assert type(play.boot.verdict) is verdict


def test_a_completion_that_times_out_is_a_hang_unless_tokens_moved_meanwhile():
    def head(now: int) -> HeadSight:
        return TOKEN if now == 1 else HeadSight(200, TimedOut(10.0) if now == 30 else None)

    assert Play(40, head=head).said == [(1, Serving), (30, Hung)]

    def queued(now: int) -> HeadSight:
        return HeadSight(200, head(now).completion, Counters(10, now, 4, 9))

    assert Play(40, head=queued).said == [(1, Serving)]


def test_ras_that_misses_a_rank_for_five_seconds_is_a_hang_of_that_rank():
    def ras(rank: int, now: int) -> RasReport | None:
        if rank == 0 and now >= 20:
            return RasReport(RasVerdict.INCOMPLETE, missing=(1,))
        return RasReport(RasVerdict.OK)

    play = Play(30, ras=ras, head=lambda now: TOKEN if now == 1 else UP)
    assert play.said == [(1, Serving), (25, Hung)]
    assert play.boot.verdict == Hung((1,), 20, "rank 1 does not answer NCCL's RAS")


def test_ras_that_misses_a_rank_for_a_moment_is_nothing():
    def ras(rank: int, now: int) -> RasReport | None:
        return RasReport(RasVerdict.INCOMPLETE if now in (20, 21) else RasVerdict.OK)

    assert Play(40, ras=ras, head=lambda now: TOKEN if now == 1 else UP).said == [(1, Serving)]


def test_a_node_out_of_sight_does_not_hide_a_hang():
    def process(rank: int, now: int) -> Process:
        return SSH255 if rank == 1 and now > 5 else Alive()

    assert Play(100, process=process, head=busy(20)).said == [(1, Serving), (15, CannotTell), (80, Hung)]


def test_memory_of_texts_is_bounded():
    lines = [
        (1 + i / 2000, f"{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)} says") for i in range(2000)
    ]
    assert len(Play(3, lines={0: lines}).boot.ranks[0].seen) == 512


def test_ras_error_names_the_missing_rank_as_the_cause():
    report = RasReport(RasVerdict.ERROR, (1,), ("Rank 0 reported Remote process error",))
    play = Play(20, ras=lambda rank, now: report if (rank, now) == (0, 10) else None)
    assert play.said == [(1, Loading), (13, Died)]
    assert play.boot.verdict == Died(
        1, "it went away: NCCL's RAS says so", ("rank 0: RAS: Rank 0 reported Remote process error",)
    )


# ---- what must not be mistaken


def test_a_certain_word_beats_an_earlier_vague_one():
    play = Play(20, lines={0: [(10.2, "x.cc:1 NCCL WARN something odd")], 1: [(10.5, KILLED_0.replace("-0", "-1"))]})
    assert isinstance(play.boot.verdict, Died)
    assert play.boot.verdict.rank == 1


def test_of_two_broken_ranks_the_one_a_third_accuses_is_named():
    members = tuple(Member(n, f"spark-{n}", f"10.0.0.{n + 1}") for n in range(3))
    broken = "ERROR 11-30 15:40:37 [m.py:1] WorkerProc hit an exception."
    accuses = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:29835. This is"
    play = Play(20, members=members, lines={0: [(10.9, accuses)], 1: [(10.2, broken)], 2: [(10.5, broken)]})
    assert isinstance(play.boot.verdict, Died)
    assert play.boot.verdict.rank == 2


@pytest.mark.parametrize(
    "last_words", [WAITS.format(rank=0), "GPU KV cache size: 262,144 tokens"], ids=["waits for a slow peer", "is done"]
)
def test_a_rank_that_has_nothing_to_do_is_not_hung_while_the_other_works(last_words):
    def process(rank: int, now: int) -> Process:
        return Alive(cpu_seconds=float(now if rank == 1 else min(now, 30)))

    bar = [(float(at), f"loading {at}%") for at in range(1, 900)]
    play = Play(900, process=process, lines={0: [(30.0, last_words)], 1: bar})
    assert play.said == [(1, Loading)]


def test_ranks_that_joined_may_have_named_the_place_differently():
    lines = {
        0: [(10.0, WAITS.format(rank=0)), (21.0, "rank 0 in world size 2 is assigned as DP rank 0")],
        1: [(20.5, WAITS.format(rank=1).replace("10.0.0.1", "spark-a"))],
    }
    assert (21, Hung) not in Play(40, lines=lines).said


def test_exceptions_caught_long_ago_are_not_the_cause():
    old = [(10.0 + i / 100, f"KeyError: {i}") for i in range(40)]
    new = [(100.0, "ERROR 11-30 15:40:37 [m.py:1] EngineCore failed to start."), (100.1, "ValueError: the cause")]
    verdict = Play(110, lines={0: old + new}).boot.verdict
    assert isinstance(verdict, Died)
    assert verdict.cause == "its engine failed to start: ValueError: the cause"


def test_a_request_that_comes_after_a_long_idle_time_has_its_full_time():
    def head(now: int) -> HeadSight:
        return HeadSight(200, Answered() if now == 1 else None, Counters(10, 10, 0 if now <= 100 else 2, 0))

    assert Play(170, head=head).said == [(1, Serving), (160, Hung)]


def test_a_second_time_out_counts_like_the_first():
    def head(now: int) -> HeadSight:
        said: dict[int, Completion] = {1: Answered(), 30: TimedOut(10.0), 40: Answered(), 90: TimedOut(10.0)}
        return HeadSight(200, said.get(now))

    assert Play(95, head=head).said == [(1, Serving), (30, Hung), (40, Serving), (90, Hung)]


def test_one_error_500_during_the_boot_is_no_death_and_three_are():
    def head(now: int) -> HeadSight:
        return HeadSight(200, HttpError(500)) if now in (5, 6) else TOKEN if now == 20 else UP

    assert Play(20, head=head).said == [(1, Loading), (20, Serving)]
    assert Play(20, head=lambda now: HeadSight(200, HttpError(500))).said == [(1, Loading), (6, Died)]
