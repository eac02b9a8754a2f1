"""The published multipliers, and that both sides of the project place the same rows."""

from types import SimpleNamespace

import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed here")

import spark_overlay.engram_layout as layout  # noqa: E402  # only where numpy is

from cluster.weights import engram  # noqa: E402
from tests.unit.weights.test_engram import CONFIG, PUBLISHED  # noqa: E402

TEXT = SimpleNamespace(**CONFIG["text_config"])


def test_the_multipliers_are_the_published_ones():
    assert [hashed.multipliers.tolist() for hashed in layout.layer_hashes(TEXT)] == [
        [76632096046245, 4839876093313, 35959672319349, 73987337458391],
        [67716810739261, 51510806800915, 30921347202721, 82619226485591],
    ]


def test_head_node_and_server_know_the_same_buckets():
    tables = engram.tables(PUBLISHED)
    hashes = layout.layer_hashes(TEXT)
    assert [tuple(hashed.sizes.tolist()) for hashed in hashes] == [table.sizes for table in tables]
    assert [tuple(hashed.offsets.tolist()) for hashed in hashes] == [table.offsets for table in tables]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8, 12, 24])
def test_head_node_and_server_agree_on_who_owns_what(ranks):
    for table, hashed in zip(engram.tables(PUBLISHED), layout.layer_hashes(TEXT), strict=True):
        for rank in range(ranks):
            assert layout.owned_rows(hashed.sizes, rank, ranks) == engram.owned_rows(table, rank, ranks)


def test_no_rank_may_be_left_without_columns():
    with pytest.raises(ValueError, match="cannot share"):
        layout.owned_columns(24, 0, 7)


def window_by_window(hashed, ids, pad):
    """The definition, position by position, in whole numbers."""
    rows = []
    for position in range(len(ids)):
        rolling, blocked, row = 0, False, []
        for shift in range(4):
            blocked = blocked or position < shift or ids[position - shift] == layout.DEAD
            rolling ^= (pad if blocked else int(ids[position - shift])) * int(hashed.multipliers[shift])
            if shift:
                columns = range((shift - 1) * 8, shift * 8)
                row += [rolling % int(hashed.sizes[column]) + int(hashed.offsets[column]) for column in columns]
        rows.append(row)
    return rows


def test_a_window_is_hashed_as_it_is_defined():
    ids = np.random.default_rng(3).integers(0, 99_092, 40)
    ids[[7, 8, 20]] = layout.DEAD
    for hashed in layout.layer_hashes(TEXT):
        assert layout.hash_rows(hashed, ids, 17).tolist() == window_by_window(hashed, ids, 17)


def test_rows_fit_the_type_they_travel_in():
    ids = np.full(50, 99_091)
    rows = [layout.hash_rows(hashed, ids, 0) for hashed in layout.layer_hashes(TEXT)]
    assert [
        bool((row >= 0).all() and (row < total).all()) for row, total in zip(rows, PUBLISHED.rows, strict=True)
    ] == [
        True,
        True,
    ]
