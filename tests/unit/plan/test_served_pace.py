"""The pace of a server, from single answers."""

from dataclasses import replace

import pytest

from cluster.model.pace import Spread
from cluster.plan.served_pace import Pace, Sample, pace, percentile

ONE = Sample(began=0.0, ended=2.0, first=0.5, gaps=(0.1, 0.3), pieces=3, prompt_tokens=10, new_tokens=20)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ((4.0,), 0.5, 4.0),
        ((1.0, 2.0), 0.5, 1.5),
        ((3.0, 1.0, 2.0), 0.5, 2.0),
        ((1.0, 2.0, 3.0, 4.0, 5.0), 0.95, 4.8),
        ((1.0, 2.0, 3.0), 1.0, 3.0),
    ],
)
def test_a_percentile_lies_between_its_neighbours(values, share, expected):
    assert percentile(values, share) == pytest.approx(expected)


def test_one_question_at_a_time_is_too_fast_by_one_answer_when_the_first_is_not_counted():
    four = [replace(ONE, began=2.0 * n, ended=2.0 * n + 2.0) for n in range(4)]
    seen = pace(four)
    assert (seen.aggregate_tps, seen.llmkube_tps) == (80 / 8, 80 / 6)
    together = pace([ONE, replace(ONE, ended=2.5)])
    assert (together.aggregate_tps, together.llmkube_tps) == (40 / 2.5, 40 / 0.5)


def test_one_answer_has_a_pace_and_none_from_the_first_answer_on():
    expected = Pace(20, True, 2.0, 10.0, None, Spread(500.0, 500.0, 500.0, 500.0), Spread(200.0, 290.0, 298.0, 200.0))
    seen = pace([ONE])
    assert replace(seen, between_pieces=expected.between_pieces) == expected
    assert seen.between_pieces is not None
    assert (seen.between_pieces.p50, seen.between_pieces.p95) == pytest.approx((200.0, 290.0))


def test_pieces_stand_for_tokens_where_the_server_counts_none_and_it_is_told():
    seen = pace([replace(ONE, new_tokens=None), ONE])
    assert (seen.new_tokens, seen.counted) == (23, False)


def test_an_answer_with_an_error_counts_nowhere():
    broken = replace(ONE, ended=90.0, error="broken off")
    assert pace([ONE, broken]) == pace([ONE])
    assert pace([broken]) == Pace(0, True, 0.0, 0.0, None, None, None)
