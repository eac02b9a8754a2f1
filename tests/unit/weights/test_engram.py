"""The published figures of the model's tables, and ownership for other numbers of ranks."""

import pytest

from cluster.errors import Refused, Unreadable
from cluster.weights.engram import (
    Engram,
    Source,
    Table,
    embed_only,
    engram_of,
    is_prime,
    needed_shards,
    owned_rows,
    source,
    tables,
)
from cluster.weights.safetensors import Header, Tensor

PUBLISHED = Engram(
    layers=(1, 14),
    rows=(384_006_168, 384_016_682),
    vocabulary=16_000_000,
    compressed=99_092,
    heads=8,
    longest=4,
    width=256,
    pad=2,
)
CONFIG = {
    "text_config": {
        "engram_layer_ids": [1, 14],
        "engram_num_embeddings": [384_006_168, 384_016_682],
        "engram_vocab_size": 16_000_000,
        "engram_compressed_vocab_size": 99_092,
        "engram_n_heads": 8,
        "engram_max_ngram_size": 4,
        "engram_head_dim": 256,
        "engram_pad_token_id": 2,
    }
}
# What each prime has above 16,000,000.
LAYER_1 = (
    *(57, 79, 81, 97, 121, 129, 133, 183),
    *(189, 207, 211, 253, 277, 289, 307, 321),
    *(339, 381, 393, 399, 403, 409, 447, 463),
)
LAYER_14 = (
    *(477, 487, 499, 507, 511, 573, 609, 627),
    *(667, 669, 693, 697, 711, 729, 759, 769),
    *(781, 799, 813, 819, 841, 877, 879, 889),
)


def test_the_primes_are_the_published_ones():
    assert [tuple(size - 16_000_000 for size in table.sizes) for table in tables(PUBLISHED)] == [LAYER_1, LAYER_14]


def test_the_buckets_of_a_layer_are_all_of_its_rows():
    assert [sum(table.sizes) for table in tables(PUBLISHED)] == [384_006_168, 384_016_682]


def test_each_column_begins_where_the_one_before_ends():
    assert Table(1, 12, (3, 4, 5)).offsets == (0, 3, 7)


def test_two_ranks_own_the_published_ranges():
    first, second = tables(PUBLISHED)
    assert [[owned_rows(table, rank, 2) for rank in (0, 1)] for table in (first, second)] == [
        [range(192_001_740), range(192_001_740, 384_006_168)],
        [range(192_007_016), range(192_007_016, 384_016_682)],
    ]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6, 8, 12, 24])
def test_ranks_own_everything_once(ranks):
    for table in tables(PUBLISHED):
        ranges = [owned_rows(table, rank, ranks) for rank in range(ranks)]
        assert [part.start for part in ranges] == [0, *(part.stop for part in ranges[:-1])]
        assert ranges[-1].stop == table.rows


@pytest.mark.parametrize("ranks", [7, 9, 10, 11, 13, 25])
def test_no_rank_may_be_left_without_rows(ranks):
    with pytest.raises(Refused, match="a rank would own none"):
        owned_rows(tables(PUBLISHED)[0], 0, ranks)


def test_primes_below_a_thousand_are_those_of_a_sieve():
    sieve = [number for number in range(2, 1000) if all(number % part for part in range(2, int(number**0.5) + 1))]
    assert [number for number in range(-3, 1000) if is_prime(number)] == sieve


@pytest.mark.parametrize(
    "composite", [2_047, 1_373_653, 25_326_001, 3_215_031_751, 4_759_123_139, 16_000_057 * 257, 65_537**2 - 2]
)
def test_numbers_that_fool_fewer_witnesses_are_not_prime(composite):
    # The first four are strong pseudoprimes to base 2, to 2 and 3, to 2, 3 and 5, and to 2, 3, 5 and 7.
    assert not is_prime(composite)


def test_numbers_beyond_the_proof_are_not_judged():
    with pytest.raises(ValueError, match="too large"):
        is_prime(4_759_123_141)


def test_the_config_of_the_model_says_the_same():
    assert engram_of(CONFIG, "config.json") == PUBLISHED
    assert engram_of(CONFIG["text_config"], "config.json") == PUBLISHED


def test_a_row_has_its_weight_and_its_scales():
    assert (PUBLISHED.columns, PUBLISHED.row_bytes) == (24, 264)


def test_most_models_have_no_engram():
    assert engram_of({"hidden_size": 4096}, "config.json") is None


@pytest.mark.parametrize("change", [{"engram_n_heads": "8"}, {"engram_num_embeddings": 5}, {"engram_layer_ids": [1]}])
def test_a_config_that_cannot_be_meant_is_refused(change):
    with pytest.raises(Unreadable):
        engram_of(CONFIG["text_config"] | change, "config.json")


def shard_of(table: Table, *, rows=None, scale="F8_E8M0") -> Header:
    rows = table.rows if rows is None else rows
    end = 1000 + rows * 256
    name = f"layers.{table.layer}.engram.embed"
    return Header(
        (
            Tensor(f"{name}.weight", "F8_E4M3", (rows, 256), 1000, end),
            Tensor(f"{name}.scale", scale, (rows, 8), end, end + rows * 8),
        ),
        end + rows * 8,
    )


def test_the_tensors_of_a_layer_have_the_published_sizes():
    tensors = [tensor for table in tables(PUBLISHED) for tensor in shard_of(table).tensors]
    assert [tensor.end - tensor.start for tensor in tensors] == [
        98_305_579_008,
        3_072_049_344,
        98_308_270_592,
        3_072_133_456,
    ]


def test_the_shard_says_where_the_rows_begin():
    table = tables(PUBLISHED)[0]
    assert source(shard_of(table), PUBLISHED, table, "47") == Source(1000, 1000 + 98_305_579_008)


@pytest.mark.parametrize("change", [{"rows": 7}, {"scale": "U8"}])
def test_a_shard_of_another_model_is_refused(change):
    table = tables(PUBLISHED)[0]
    with pytest.raises(Refused, match="does not hold the engram table of layer 1"):
        source(shard_of(table, **change), PUBLISHED, table, "47")


def test_a_shard_without_the_table_is_refused():
    with pytest.raises(Refused) as refused:
        source(Header((), 8), PUBLISHED, tables(PUBLISHED)[0], "46")
    assert refused.value.evidence[0] == ("layers.1.engram.embed.weight: absent, must be F8_E4M3 [384006168, 256]")


INDEX = {
    "embed.weight": "model-00001-of-00048.safetensors",
    "layers.1.engram.embed.scale": "model-00047-of-00048.safetensors",
    "layers.1.engram.embed.weight": "model-00047-of-00048.safetensors",
    "layers.1.engram.wkv.weight": "model-00047-of-00048.safetensors",
    "layers.14.engram.embed.scale": "model-00048-of-00048.safetensors",
    "layers.14.engram.embed.weight": "model-00048-of-00048.safetensors",
}


def test_the_index_names_the_shards_that_are_needed():
    assert needed_shards(INDEX, (1, 14)) == {
        1: "model-00047-of-00048.safetensors",
        14: "model-00048-of-00048.safetensors",
    }


def test_a_table_outside_the_index_is_refused():
    with pytest.raises(Refused, match="layer 15"):
        needed_shards(INDEX, (1, 15))


def test_a_directory_with_nothing_but_tables_has_an_index_of_nothing_else():
    assert sorted(embed_only(INDEX)) == [
        "layers.1.engram.embed.scale",
        "layers.1.engram.embed.weight",
        "layers.14.engram.embed.scale",
        "layers.14.engram.embed.weight",
    ]
