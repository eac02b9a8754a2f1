"""What a boot will take, phase by phase: figures of real pairs, and what must never go down."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.model.kit import Guard
from cluster.model.ledger import Measured, Shape
from cluster.model.memory import GIB, Holder, MemInfo, MemoryFacts, ModelShape
from cluster.model.serve import Serve, Speculation
from cluster.model.settings import Settings
from cluster.model.tuning import Nccl
from cluster.model.units import Bytes
from cluster.plan.memory import (
    Phase,
    capacity,
    held_by,
    pack_fits,
    plan_nodes,
    predict,
    token_bytes,
)
from tests.build import pair
from tests.checkpoints import flash_2x, llama

TOTAL = Bytes(int(121.69 * GIB))
BIG = Serve(
    model="/m",
    max_model_len=600000,
    max_num_seqs=2,
    kv_cache_memory_bytes=Bytes(2684354560),
    speculation=Speculation.DSPARK,
    language_model_only=False,
)
SMALL_BUFFERS = Nccl(buffsize=2**20, max_nchannels=8, proto="^LL128")


def big(**changes) -> Settings:
    return pair(serve=BIG, nccl=SMALL_BUFFERS, **changes)


def facts(node: str, available: float, free: float | None = None, **changes) -> MemoryFacts:
    """Sizes in GiB."""
    info = MemInfo(TOTAL, Bytes(int((available if free is None else free) * GIB)), Bytes(int(available * GIB)))
    return MemoryFacts(node, info, **{"has_gpu": True, **changes})


def measured(taken: int, **changes) -> Measured:
    shape = Shape(1, 2, 1, None, None, None, None, "", "none", False)
    entry = Measured("b1", "demo", "spark-a", 0, shape, 0, before=100 * GIB, lowest=100 * GIB - taken, serving=0)
    return replace(entry, **changes)


def test_a_rank_of_the_two_spark_recipe_ends_where_its_pair_was_seen_to_end():
    head, worker = predict(big(), flash_2x(), has_gpu=True, total=TOTAL)
    # 121.69 GiB less about 6 of the system; the pair idles at 3.7 to 4.7 GiB and fell to 2.1 at 601k tokens
    left = [(115.7 * GIB - head.taken(phase)) / GIB for phase in ("graphs", "longest prompt")]
    assert (3.5 < left[0] < 6.5, 1.5 < left[1] < 4.5) == (True, True)
    assert worker.peak < head.peak


def test_the_pinned_pool_has_room_for_the_tokens_that_were_seen():
    assert predict(big(), flash_2x(), True, TOTAL)[0].tokens == 2684354560 // 3466 == 774481


def test_small_buffers_of_nccl_save_four_and_a_half_gib():
    few, many = (predict(settings, flash_2x(), True, TOTAL)[0].size("NCCL") for settings in (big(), pair(serve=BIG)))
    assert (round(few / GIB, 2), round(many / GIB, 2)) == (0.15, 4.7)


def test_what_is_given_back_counts_no_longer():
    need = predict(big(), flash_2x(), True, TOTAL)[0]
    load, pool, graphs, prompt = need.phases
    assert pool == Phase("KV pool", Bytes(load.taken - need.size("loader's buffers") + need.size("KV pool")))
    assert (graphs.taken - pool.taken, prompt.taken - graphs.taken) == (
        need.size("graphs"),
        need.size("longest prompt"),
    )


def test_without_a_gpu_a_rank_is_its_weights_its_pool_and_its_processes():
    settings = pair(serve=Serve(model="/m", kv_cache_memory_bytes=Bytes(64 * 2**20)))
    need = predict(settings, llama(), has_gpu=False, total=TOTAL)[0]
    assert [part.name for part in need.parts] == ["weights", "server processes", "KV pool", "longest prompt"]
    assert (need.size("KV pool"), need.size("longest prompt"), need.wanted_free) == (64 * 2**20, 0, 0)


def test_a_pool_that_is_not_pinned_is_the_rest_of_the_share():
    need = predict(pair(), llama(), True, TOTAL)[0]
    # staging is part of what is taken when the share is filled
    assert abs(sum(part.size for part in need.parts if part.name != "longest prompt") - 0.92 * TOTAL) < 1024**2
    assert need.floor == need.size("weights")


@pytest.mark.parametrize(
    ("shape", "ranks", "expected"),
    [
        (llama(), 1, 2 * 4 * 4 * 64 * 2),
        (llama(), 2, 2 * 4 * 2 * 64 * 2),
        (llama(kv_heads=1), 2, 2 * 4 * 1 * 64 * 2),
        (replace(llama(), latent=576), 2, 4 * 576 * 2),
        (flash_2x(), 2, 3466),
        (ModelShape(()), 2, 128 * 1024),
    ],
)
def test_a_token_takes_this_much(shape, ranks, expected):
    assert token_bytes(shape, ranks) == expected


@given(
    st.integers(1, 1048576), st.integers(0, 10**6), st.integers(1, 64), st.integers(0, 64), st.sampled_from([1, 2, 4]),
    st.booleans(), st.one_of(st.none(), st.integers(2**20, 2**36)),
)  # fmt: skip
def test_more_context_more_sequences_or_fewer_ranks_never_take_less(context, more, seqs, others, ranks, has_gpu, pool):
    def peak(length: int, at_once: int, tensor_parallel: int) -> int:
        serve = Serve(
            model="/m",
            max_model_len=min(length, 1048576),
            max_num_seqs=at_once,
            tensor_parallel=tensor_parallel,
            kv_cache_memory_bytes=None if pool is None else Bytes(pool),
        )
        return max(need.peak for need in predict(pair(serve=serve), llama(), has_gpu, TOTAL))

    base = peak(context, seqs, ranks)
    assert peak(context + more, seqs, ranks) >= base
    assert peak(context, seqs + others, ranks) >= base
    assert peak(context, seqs, ranks * 2) <= base


def test_capacity_is_what_is_available_and_huge_pages_where_there_are_any():
    info = MemInfo(TOTAL, Bytes(0), Bytes(5 * GIB), swap_free=Bytes(16 * GIB), huge_size=Bytes(2**21), huge_free=3)
    assert (capacity(info), capacity(replace(info, huge_total=4))) == (5 * GIB, 3 * 2**21)


def test_a_margin_counts_beside_the_weights():
    settings = big(guard=Guard(boot_margin_gib=Decimal(12)))
    plans = plan_nodes(settings, (flash_2x(),) * 2, (facts("a", 115), facts("b", 96.2)), (None, None))
    assert [round(plan.needed / GIB, 1) for plan in plans] == [round(plans[0].weights / GIB + 12, 1)] * 2
    assert abs(plans[0].needed / GIB - 111.5) < 1


def test_two_ranks_on_one_machine_need_twice_as_much():
    shapes = (llama(),) * 2
    apart = plan_nodes(pair(), shapes, (facts("a", 9, machine="m1"), facts("b", 9, machine="m2")), (None, None))
    together = plan_nodes(pair(), shapes, (facts("a", 9, machine="m1"), facts("b", 9, machine="m1")), (None, None))
    assert [plan.weights for plan in together] == [plan.weights * 2 for plan in apart]
    unknown = plan_nodes(pair(), shapes, (facts("a", 9), facts("b", 9)), (None, None))
    assert [plan.weights for plan in unknown] == [plan.weights for plan in apart]


def test_what_the_last_boot_took_is_what_the_next_one_needs():
    (plan, _) = plan_nodes(big(), (flash_2x(),) * 2, (facts("a", 115), facts("b", 115)), (measured(110 * GIB), None))
    assert plan.needed == 110 * GIB


@pytest.mark.parametrize(
    ("resident", "available", "expected"),
    [(111.16, 118.0, "fits"), (111.16, 116.0, "short"), (0.0, 110.0, "fits"), (118.56, 121.0, "never")],
)
def test_a_pack_fits_with_six_gib_of_headroom(resident, available, expected):
    assert pack_fits(Bytes(int(resident * GIB)), Bytes(int(available * GIB)), TOTAL) == expected


def test_holders_are_named_with_all_that_they_hold():
    holders = (
        Holder("dsv41-exl3-worker", Bytes(GIB), 9, Bytes(40 * GIB)),
        Holder("jupyter", Bytes(int(3.1 * GIB)), 7),
        Holder("sshd", Bytes(2**20), 8),
    )
    assert held_by(facts("b", 96.2, holders=holders)) == "dsv41-exl3-worker (41.0 GiB), jupyter (3.1 GiB)"
