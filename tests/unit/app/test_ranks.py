"""Answers of a readiness path, as the rules read them."""

from dataclasses import replace

import pytest

from cluster.app.ranks import head_question, head_sight
from cluster.model.settings import Watch
from cluster.plan.boot import Silence
from cluster.probe.ranks import HeadSeen
from tests.build import pair


@pytest.mark.parametrize(("path", "health"), [("/health", 503), ("/ready", Silence.UNANSWERED)])
def test_503_is_a_dead_engine_or_a_model_that_loads(path, health):
    settings = pair(watch=replace(Watch(), ready_path=path))
    seen = HeadSeen(at=1.0, health=503, counters=None, later=None, completion=None, asking_since=None)
    assert head_sight(seen, settings).health == health
    assert head_question(settings).ready == path
