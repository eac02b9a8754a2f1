"""Answers of nodes, as the rules read them."""

from dataclasses import replace

import pytest

from cluster.app.ranks import head_question, head_sight, sight
from cluster.model.facts import Memory
from cluster.model.settings import Watch
from cluster.model.units import Bytes
from cluster.plan.boot import Exited, Gone, Rebooted, Silence
from cluster.probe.ranks import ExitSeen, HeadSeen, LogSeen, NodeLook, RankLife, RankLook
from tests.build import pair


@pytest.mark.parametrize(("path", "health"), [("/health", 503), ("/ready", Silence.UNANSWERED)])
def test_503_is_a_dead_engine_or_a_model_that_loads(path, health):
    settings = pair(watch=replace(Watch(), ready_path=path))
    seen = HeadSeen(at=1.0, health=503, counters=None, later=None, completion=None, asking_since=None)
    assert head_sight(seen, settings).health == health
    assert head_question(settings).ready == path


BOOT, OTHER = "20261130T173000Z-3f9a", "another boot"
ENDED = ExitSeen(0, None, "2026-11-30T17:10:00.000Z", requested=True, left_behind=0, killed=0, error="")
AT_1711 = 1796058660.0


def rank_in(boot: str, state: RankLife, ended: ExitSeen | None = None, *, asked: bool = False) -> RankLook:
    log = LogSeen((), None, Bytes(0), lost=False)
    began = "2026-11-30T17:00:00.000Z"
    return RankLook(BOOT, 1, "/x", state, 100, 101, "", began, boot, None, asked, ended, (), log)


@pytest.mark.parametrize(
    ("rank", "process"),
    [
        (rank_in(OTHER, RankLife.VANISHED), Rebooted(960.0, "2026-11-30T17:11:00Z")),
        (rank_in(OTHER, RankLife.EXITED, ENDED), Rebooted(900.0, "2026-11-30T17:11:00Z")),
        (rank_in("now", RankLife.VANISHED), Gone()),
        (rank_in(OTHER, RankLife.EXITED, ENDED, asked=True), Exited(0, asked=True, at=900.0)),
        (rank_in(OTHER, RankLife.EXITED, replace(ENDED, code=1, requested=False)), Exited(1, at=900.0)),
        (rank_in("now", RankLife.EXITED, ENDED), Exited(0, asked=True, at=900.0)),
        (rank_in("", RankLife.PREPARED), Gone()),
    ],
)
def test_a_rank_that_went_with_its_node_is_told_from_one_that_ended(rank, process):
    memory = Memory(Bytes(1), Bytes(1), Bytes(1))
    seen = NodeLook(AT_1711 + 40, "spark-b", "now", AT_1711, memory, (rank,), None, None, None)
    assert sight(rank, seen, 1000.0).process == process
