"""The file-backed tables against vLLM's own: the same hashes, owners, rows and values, for several numbers of ranks."""

import logging
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
np = pytest.importorskip("numpy", reason="numpy is not installed here")

from spark_overlay import engram_backend, engram_layout  # noqa: E402  # only where torch is
from spark_overlay.anchors import Anchor, Unsupported, check_anchors, check_version  # noqa: E402
from spark_overlay.row_store import Code, Options, RowStoreError  # noqa: E402
from spark_overlay.settings import EngramSettings  # noqa: E402

from tests.overlay.tables import packed, write_shard  # noqa: E402
from tests.unit.weights.test_engram import CONFIG  # noqa: E402

PUBLISHED = SimpleNamespace(**CONFIG["text_config"])
SMALL = SimpleNamespace(
    engram_layer_ids=[1, 14],
    engram_num_embeddings=[],
    engram_vocab_size=120,
    engram_compressed_vocab_size=300,
    engram_n_heads=8,
    engram_max_ngram_size=4,
    engram_head_dim=256,
    engram_pad_token_id=2,
)
HASHES = engram_layout.layer_hashes(SMALL)
SMALL.engram_num_embeddings = [int(hashed.sizes.sum()) for hashed in HASHES]
RANKS = (1, 2, 4, 5)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    made = [
        write_shard(folder / f"model-{hashed.layer}.safetensors", hashed.layer, rows, seed=hashed.layer)
        for hashed, rows in zip(HASHES, SMALL.engram_num_embeddings, strict=True)
    ]
    index = {
        f"layers.{shard.layer}.engram.embed.{part}": shard.path.name for shard in made for part in ("weight", "scale")
    }
    (folder / "model.safetensors.index.json").write_text(f'{{"weight_map": {index}}}'.replace("'", '"'))
    return made


@pytest.fixture
def as_rank(vllm_engram, monkeypatch):
    """The module as a process of this rank sees it, without a GPU or a group."""

    def enter(rank: int, ranks: int) -> None:
        config = SimpleNamespace(
            model_config=SimpleNamespace(hf_text_config=SMALL),
            scheduler_config=SimpleNamespace(max_num_batched_tokens=64),
        )
        for name, value in (
            ("get_tensor_model_parallel_world_size", lambda: ranks),
            ("get_tensor_model_parallel_rank", lambda: rank),
            ("get_engram_dp_size", lambda: 1),
            ("get_current_vllm_config", lambda: config),
        ):
            monkeypatch.setattr(vllm_engram, name, value)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=2))
        monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)

    return enter


def settings(packed_in=None, source=None):
    return EngramSettings(packed_in, source, Options(), report_every=0.0)


def sizes(hashed):
    return tuple(hashed.sizes.tolist())


def of_file(vllm_engram, where, layer):
    kind = engram_backend.file_backed(vllm_engram, where)
    return kind(SMALL.engram_num_embeddings[layer], 256, sizes(HASHES[layer]), cpu_offload=True)


def of_memory(vllm_engram, shard, layer):
    """vLLM's own table, loaded by its own loader."""
    own = vllm_engram.ParallelEngramEmbedding(SMALL.engram_num_embeddings[layer], 256, sizes(HASHES[layer]))
    weight = torch.frombuffer(bytearray(shard.weight), dtype=torch.uint8).view(torch.float8_e4m3fn).view(-1, 256)
    scale = torch.frombuffer(bytearray(shard.scale), dtype=torch.uint8).view(torch.float8_e8m0fnu).view(-1, 8)
    own.weight.weight_loader(own.weight, weight)
    own.weight_scale_inv.weight_loader(own.weight_scale_inv, scale)
    return own


def some_hashes(layer: int, tokens: int = 40):
    """As the model has them: both layers side by side, one of them taken out; some tokens are dead."""
    ids = np.random.default_rng(8).integers(0, 300, tokens)
    rows = np.stack([engram_layout.hash_rows(hashed, ids, 2) for hashed in HASHES], axis=1)
    rows[[3, 17]] = engram_layout.DEAD
    return torch.from_numpy(rows)[:, layer]


def looked_up(table, hashes):
    out = torch.full((len(hashes), table.part_n_hash_cols, 256), 9.0, dtype=torch.bfloat16)
    table.lookup(hashes, out, background=True)
    return out


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("layer", [0, 1])
def test_ranks_own_and_look_up_what_vllm_does(ranks, layer, vllm_engram, as_rank, shards, library, tmp_path):
    hashes = some_hashes(layer)
    for rank in range(ranks):
        as_rank(rank, ranks)
        own = of_memory(vllm_engram, shards[layer], layer)
        rows = range(own.vocab_start_idx, own.vocab_end_idx)
        name = f"engram-l{HASHES[layer].layer}-r{rank}of{ranks}.bin"
        (tmp_path / name).write_bytes(packed("dense" if rank % 2 else "paged", shards[layer], rows))
        ours = of_file(vllm_engram, settings(packed_in=tmp_path), layer)
        for attribute in ("part_n_hash_cols", "head_start", "vocab_start_idx", "vocab_end_idx", "n_hash_cols", "dim"):
            assert getattr(ours, attribute) == getattr(own, attribute)
        assert torch.equal(looked_up(ours, hashes).view(torch.int16), looked_up(own, hashes).view(torch.int16))


@pytest.mark.parametrize("ranks", RANKS)
def test_ranks_together_have_what_one_has(ranks, vllm_engram, as_rank, shards, library):
    hashes = some_hashes(1)
    parts = []
    for rank in range(ranks):
        as_rank(rank, ranks)
        parts.append(looked_up(of_file(vllm_engram, settings(source=shards[1].path.parent), 1), hashes))
    as_rank(0, 1)
    alone = of_memory(vllm_engram, shards[1], 1).forward(hashes)
    assert torch.equal(torch.cat(parts, dim=1)[:, :24].view(torch.int16), alone.view(torch.int16))


def test_ranks_join_their_columns_as_vllm_does(vllm_engram, as_rank, shards, library, monkeypatch):
    hashes = some_hashes(0)
    tables = []
    for rank in (0, 1):
        as_rank(rank, 2)
        tables.append(of_file(vllm_engram, settings(source=shards[0].path.parent), 0))
    gather = lambda mine, dim: torch.cat([mine, looked_up(tables[1], hashes)], dim=dim)  # noqa: E731
    monkeypatch.setattr(vllm_engram, "tensor_model_parallel_all_gather", gather)
    as_rank(0, 1)
    alone = of_memory(vllm_engram, shards[0], 0).forward(hashes)
    assert torch.equal(tables[0].forward(hashes).view(torch.int16), alone.view(torch.int16))


def test_the_loader_reads_nothing_for_the_tables(vllm_engram, as_rank, shards, library):
    as_rank(0, 2)
    table = of_file(vllm_engram, settings(source=shards[0].path.parent), 0)
    for param in (table.weight, table.weight_scale_inv):
        param.weight_loader(param, torch.ones(5, 256))
        assert param.numel() == 0
    assert [name for name, _ in table.named_parameters()] == ["weight", "weight_scale_inv"]


def test_one_line_says_that_the_tables_are_active(vllm_engram, as_rank, shards, library, caplog):
    as_rank(1, 2)
    with caplog.at_level(logging.INFO):
        logging.getLogger("vllm").propagate = True
        of_file(vllm_engram, settings(source=shards[0].path.parent), 0)
    lines = [record.getMessage() for record in caplog.records if "file-backed" in record.getMessage()]
    rows = f"rows=[{sum(sizes(HASHES[0])[:12])},{SMALL.engram_num_embeddings[0]})"
    assert [line.split(" file=")[0] for line in lines] == [
        f"spark_overlay: file-backed Engram active layer=1 rank=1/2 {rows}"
    ]


def test_a_packed_file_of_another_rank_ends_the_start(vllm_engram, as_rank, shards, library, tmp_path):
    as_rank(1, 2)
    wrong = packed("dense", shards[0], range(sum(sizes(HASHES[0])[:12])))
    (tmp_path / "engram-l1-r1of2.bin").write_bytes(wrong)
    with pytest.raises(RowStoreError) as refused:
        of_file(vllm_engram, settings(packed_in=tmp_path, source=shards[0].path.parent), 0)
    assert refused.value.code is Code.WRONG_ROWS


def test_no_file_at_all_ends_the_start(vllm_engram, as_rank, library, tmp_path):
    as_rank(0, 2)
    with pytest.raises(FileNotFoundError, match=r"engram-l1-r0of2\.bin"):
        of_file(vllm_engram, settings(packed_in=tmp_path), 0)


def test_a_layout_that_the_config_does_not_have_ends_the_start(vllm_engram, as_rank, shards, library):
    as_rank(0, 2)
    kind = engram_backend.file_backed(vllm_engram, settings(source=shards[0].path.parent))
    with pytest.raises(RuntimeError, match="no Engram layer"):
        kind(SMALL.engram_num_embeddings[0], 256, tuple(reversed(sizes(HASHES[0]))))


def test_more_ranks_than_columns_end_the_start(vllm_engram, as_rank, shards, library):
    as_rank(0, 7)
    with pytest.raises(RuntimeError, match="cannot share"):
        of_file(vllm_engram, settings(source=shards[0].path.parent), 0)


def test_a_row_beyond_the_table_is_an_error_with_its_row(vllm_engram, as_rank, shards, library):
    as_rank(0, 1)
    table = of_file(vllm_engram, settings(source=shards[0].path.parent), 0)
    hashes = some_hashes(0)
    hashes[5, 5] = SMALL.engram_num_embeddings[0]
    with pytest.raises(RowStoreError) as failed:
        looked_up(table, hashes)
    assert (failed.value.code, failed.value.row) == (Code.OUT_OF_TABLE, SMALL.engram_num_embeddings[0])


@pytest.mark.parametrize("config", [PUBLISHED, SMALL], ids=["published", "small"])
def test_the_layout_is_that_of_vllm(config, vllm_engram):
    theirs = vllm_engram.EngramLayout(config)
    ours = engram_layout.layer_hashes(config)
    flat = [[size for order in layer for size in order] for layer in theirs.primes]
    assert [hashed.sizes.tolist() for hashed in ours] == flat
    assert [hashed.offsets.tolist() for hashed in ours] == theirs.offsets.tolist()
    mixed = vllm_engram.compute_hash_multipliers((1, 14), 4, config.engram_compressed_vocab_size)
    assert [hashed.multipliers.tolist() for hashed in ours] == mixed.tolist()


def vllm_hashes(vllm_engram, token_map, tokens, dead, lookback, start):
    """vLLM's own kernel on one request, whose chunk begins at position `start`."""
    layout = vllm_engram.EngramLayout(SMALL)
    state = vllm_engram.NgramHashState.__new__(vllm_engram.NgramHashState)
    torch.nn.Module.__init__(state)
    state.use_slot_cache, state._cache, state.block_size, state.pad_id = False, None, 16, 2
    state.token_map = torch.from_numpy(token_map.astype(np.int32))
    state.primes, state.offsets = torch.tensor(layout.primes), layout.offsets
    state.multipliers = vllm_engram.compute_hash_multipliers((1, 14), 4, 300)
    window = torch.tensor([lookback], dtype=torch.int32)
    return state.forward(
        torch.from_numpy(tokens.astype(np.int32)),
        torch.arange(start, start + len(tokens)),
        torch.tensor([0, len(tokens)], dtype=torch.int32),
        torch.from_numpy(dead),
        window,
        torch.zeros_like(window, dtype=torch.bool),
        None,
        None,
    )


def test_a_prompt_is_hashed_as_vllm_does(vllm_engram):
    chance = np.random.default_rng(4)
    token_map = chance.integers(0, 300, 1_000)
    tokens = chance.integers(0, 1_000, 70)
    dead = np.zeros(70, bool)
    dead[[9, 10, 40]] = True
    compressed = np.where(dead, engram_layout.DEAD, token_map[tokens])
    want = np.stack([engram_layout.hash_rows(hashed, compressed, 2) for hashed in HASHES], axis=1)
    seen = vllm_hashes(vllm_engram, token_map, tokens, dead, [-1, -1, -1], 0)
    assert seen.tolist() == want.tolist()


def test_a_later_chunk_is_hashed_as_vllm_does(vllm_engram):
    chance = np.random.default_rng(5)
    token_map = chance.integers(0, 300, 1_000)
    tokens = chance.integers(0, 1_000, 70)
    want = np.stack([engram_layout.hash_rows(hashed, token_map[tokens], 2) for hashed in HASHES], axis=1)
    newest_first = [int(token) for token in tokens[49:46:-1]]
    seen = vllm_hashes(vllm_engram, token_map, tokens[50:], np.zeros(20, bool), newest_first, 50)
    assert seen.tolist() == want[50:].tolist()


def test_what_the_overlay_relies_on_stands_in_vllm(vllm_engram):
    check_anchors(vllm_engram, engram_backend.ANCHORS)


def test_a_line_that_drifted_is_fatal(vllm_engram):
    drifted = Anchor("Engram._create_embedding", "return TheirNewEmbedding(", "the class is taken from the module")
    gone = Anchor("Engram.no_longer_there", "x", "something else")
    with pytest.raises(Unsupported) as refused:
        check_anchors(vllm_engram, (*engram_backend.ANCHORS, drifted, gone))
    assert str(refused.value).endswith(
        "Engram._create_embedding: the class is taken from the module; Engram.no_longer_there: something else"
    )


def test_the_class_takes_the_place_of_the_other_once(vllm_engram, monkeypatch, tmp_path):
    own = vllm_engram.ParallelEngramEmbedding
    monkeypatch.setattr(vllm_engram, "ParallelEngramEmbedding", own)
    first = engram_backend.install(vllm_engram, settings(packed_in=tmp_path))
    second = engram_backend.install(vllm_engram, settings(packed_in=tmp_path))
    assert (first is second, vllm_engram.ParallelEngramEmbedding, issubclass(first, own)) == (True, first, True)


@pytest.mark.parametrize("version", ["0.31.1", "0.34.0", "0.3.2", "1.0.0"])
def test_other_versions_are_refused_by_name(version):
    with pytest.raises(Unsupported, match=version):
        check_version(version)


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0", "0.33.1rc1"])
def test_supported_versions_pass(version):
    check_version(version)
