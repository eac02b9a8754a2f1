"""What is said of a node's memory before a boot, with the values of the cases that were met."""

from dataclasses import replace
from decimal import Decimal

import pytest

from cluster.model.events import Finding, Severity
from cluster.model.fit import Fit
from cluster.model.kit import Guard
from cluster.model.memory import GIB, Holder, MemInfo, MemoryFacts, SharedMemory
from cluster.model.tuning import Tuning
from cluster.model.units import Bytes
from cluster.plan.memory import Need, NodePlan, Part
from cluster.plan.memory_checks import check_memory, judge, judge_free, judge_killers, judge_shm, wants_drop
from cluster.probe.memory import parse_meminfo
from tests.build import pair
from tests.unit.probe.test_memory import AFTER_DOWNLOAD

HOLDERS = (Holder("dsv41-exl3-worker", Bytes(41 * GIB), 9), Holder("jupyter", Bytes(int(3.1 * GIB)), 7))


def plan(available: float, free: float | None = None, margin: float | None = 12.0, wanted: float = 0.0) -> NodePlan:
    """A rank of 99.5 GiB and a pinned pool of 2.5 on a node of 121.69; all in GiB."""
    info = MemInfo(*(Bytes(int(size * GIB)) for size in (121.69, available if free is None else free, available)))
    parts = (Part("weights", Bytes(int(99.5 * GIB)), "load"), Part("KV pool", Bytes(int(2.5 * GIB)), "KV pool"))
    need = Need(1, parts, 774400, Bytes(102 * GIB), Bytes(int(wanted * GIB)))
    facts = MemoryFacts("spark-b", info, HOLDERS, has_gpu=True)
    return NodePlan(facts, (need,), None if margin is None else Bytes(int(margin * GIB)))


def finding(which: str, plan: NodePlan) -> Finding:
    return next(one for one in check_memory(pair(guard=Guard(boot_margin_gib=Decimal(12))), plan) if one.id == which)


def test_a_node_that_is_short_is_refused_with_who_holds_the_rest():
    assert finding("MEM.BOOT_MARGIN", plan(96.2)) == Finding(
        "MEM.BOOT_MARGIN",
        Severity.REFUSAL,
        "spark-b",
        "96.2 GiB available, 111.5 GiB needed (99.5 weights + 12.0 margin); "
        "held by dsv41-exl3-worker (41.0 GiB), jupyter (3.1 GiB)",
        "111.5 GiB available",
        "end dsv41-exl3-worker (pid 9) on spark-b, or set DSV41_BOOT_MARGIN_GIB lower if you know why",
    )


def test_a_node_with_enough_says_how_much():
    observed = "115.0 GiB available, 111.5 GiB needed (99.5 weights + 12.0 margin)"
    assert finding("MEM.BOOT_MARGIN", plan(115)) == Finding("MEM.BOOT_MARGIN", Severity.OK, "spark-b", observed)


@pytest.mark.parametrize(
    ("available", "margin", "expected"),
    [
        (115.0, 12.0, Fit.FITS),
        (111.4, 12.0, Fit.SHORT),
        (121.0, 30.0, Fit.NEVER),
        (103.0, None, Fit.FITS),
        (101.9, None, Fit.SHORT),
    ],
)
def test_whether_it_fits(available, margin, expected):
    assert judge(plan(available, margin=margin)) is expected


def test_a_prediction_alone_warns_and_refuses_nothing():
    tight = plan(103, margin=None)
    more = replace(tight.needs[0], parts=(*tight.needs[0].parts, Part("graphs", Bytes(2 * GIB), "graphs")))
    tight = replace(tight, needs=(more,))
    assert (judge(tight), finding("MEM.BOOT_MARGIN", tight).severity) == (Fit.TIGHT, Severity.WARNING)


def test_memory_that_is_available_and_not_free_asks_for_the_page_cache():
    """MEM-01."""
    verdict = judge_free(parse_meminfo(AFTER_DOWNLOAD), Bytes(int(111.5 * GIB)), Bytes(0))
    assert {
        "free_gib": round(verdict.free / GIB, 2),
        "available_gib": round(verdict.available / GIB, 2),
        "verdict": {Severity.WARNING: "warn"}[verdict.severity],
        "action": verdict.action,
    } == {"free_gib": 2.77, "available_gib": 112.96, "verdict": "warn", "action": "drop_page_cache"}


def test_the_share_that_vllm_wants_free_counts_too():
    seen = finding("MEM.FREE", plan(118, free=106, wanted=107.1))
    assert (seen.severity, seen.expected) == (Severity.WARNING, "111.5 GiB free")
    assert seen.fix == (
        "set DSV41_DROP_PAGE_CACHE=1, and start drops the model's files; "
        "or sudo sh -c 'sync; echo 1 > /proc/sys/vm/drop_caches'   (on spark-b)"
    )
    assert finding("MEM.FREE", plan(118, wanted=107.1)).severity is Severity.OK


@pytest.mark.parametrize(
    ("drops", "free", "has_gpu", "expected"),
    [(True, 2.8, True, True), (None, 2.8, True, False), (True, 118.0, True, False), (True, 2.8, False, False)],
)
def test_a_start_drops_the_models_pages_where_it_may_and_must(drops, free, has_gpu, expected):
    settings, short = pair(tuning=Tuning(drop_page_cache=drops)), plan(118, free=free)
    short = replace(short, facts=replace(short.facts, has_gpu=has_gpu))
    assert wants_drop(settings, short) is expected
    seen = next(one for one in check_memory(settings, short) if one.id == "MEM.FREE")
    assert (seen.severity is Severity.NOTE) is expected


def test_memory_that_is_not_even_available_is_told_once():
    assert finding("MEM.FREE", plan(90, free=2)).severity is Severity.OK


def test_ranks_go_first_and_services_with_a_floor_of_their_own_do_not_decide():
    """MEM-03."""
    judged = judge_killers(0, {"earlyoom": "active", "systemd-oomd": "inactive"}, 110 * GIB)
    words = {Severity.WARNING: "warn", Severity.REFUSAL: "fail"}
    assert {name: words[one] for name, one in judged.items()} == {
        "oom_score_adj": "fail",
        "earlyoom": "warn",
        "memory_limit": "warn",
    }
    assert judge_killers(1000, {}, None) == {"oom_score_adj": Severity.OK}


@pytest.mark.parametrize(
    ("killers", "severity"),
    [
        ((), Severity.NOT_CHECKED),
        ((("earlyoom", "inactive"),), Severity.OK),
        ((("earlyoom", "active"), ("systemd-oomd", "inactive")), Severity.WARNING),
    ],
)
def test_who_would_end_a_healthy_server_is_told(killers, severity):
    with_them = plan(115)
    seen = finding("MEM.KILLERS", replace(with_them, facts=replace(with_them.facts, killers=killers)))
    assert seen.severity is severity
    if severity is Severity.WARNING:
        assert seen.fix == "sudo systemctl disable --now earlyoom   (on spark-b)"


@pytest.mark.parametrize(
    ("private", "given", "host_free", "expected"),
    [
        (True, 67108864, None, Severity.REFUSAL),
        (False, 67108864, 652983439, Severity.REFUSAL),
        (False, 67108864, 65298343936, Severity.OK),
        (False, 67108864, None, Severity.REFUSAL),
    ],
)
def test_shared_memory_is_the_containers_own_or_the_hosts(private, given, host_free, expected):
    """VLL-05."""
    host = None if host_free is None else SharedMemory(Bytes(65298343936), Bytes(host_free))
    assert judge_shm(private, Bytes(given), host) is expected


def test_a_full_dev_shm_is_refused_where_the_model_is_large():
    full = plan(115)
    facts = replace(full.facts, shm=SharedMemory(Bytes(65298343936), Bytes(652983439)))
    seen = finding("MEM.SHM", replace(full, facts=facts))
    assert (seen.severity, seen.observed) == (Severity.REFUSAL, "/dev/shm has 622.7 MiB free of 60.8 GiB")
    assert finding("MEM.SHM", replace(full, facts=replace(facts, has_gpu=False))).severity is Severity.WARNING
    assert finding("MEM.SHM", full).severity is Severity.NOT_CHECKED


def test_files_that_cannot_be_counted_are_told():
    seen = finding("MEM.WEIGHTS", replace(plan(115), problems=("model-3.safetensors: cut off",)))
    assert seen.observed == "one file of the model cannot be counted: model-3.safetensors: cut off"
