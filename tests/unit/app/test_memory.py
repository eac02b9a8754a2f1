"""Memory before a boot and after it: refused early, measured while it loads, used by the next."""

import json
from decimal import Decimal

import pytest

from cluster.app.memory import fit
from cluster.app.start import start
from cluster.errors import Refused
from cluster.model.events import Finding, Severity, Told
from cluster.model.fit import Fit
from cluster.model.kit import Guard, PageCache, Weights
from cluster.model.serve import Serve
from cluster.model.tuning import Tuning
from cluster.model.units import Bytes
from tests.build import GIB, pair
from tests.fakes.cluster import FakeCluster

SERVE = Serve(model="/models/demo", served_model_name="demo", kv_cache_memory_bytes=Bytes(GIB))
LEDGER = "/home/op/.local/state/sparkctl/ledger.json"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(pair(serve=SERVE))


def begin(cluster: FakeCluster) -> None:
    start(cluster.settings, cluster.open, cluster.emit, pace=cluster.pace)


def margin(cluster: FakeCluster, gib: int) -> None:
    object.__setattr__(cluster.settings, "guard", Guard(boot_margin_gib=Decimal(gib)))


def test_a_node_without_the_margin_is_refused_and_nothing_is_changed(cluster):
    margin(cluster, 12)
    cluster["spark-b"].available = 10 * GIB
    with pytest.raises(Refused) as caught:
        cluster.start()
    assert caught.value.evidence == (
        "spark-b: 10.0 GiB available, 15.0 GiB needed (3.0 weights + 12.0 margin); held by jupyter (3.0 GiB)",
    )
    assert caught.value.fix == ("end jupyter (pid 55) on spark-b, or set DSV41_BOOT_MARGIN_GIB lower if you know why")
    assert (cluster.acts, cluster["spark-a"].files, cluster["spark-b"].files) == ([], {}, {})


def test_a_boot_that_serves_is_entered_in_the_ledger(cluster):
    cluster.clock.at(3, lambda: setattr(cluster["spark-a"], "available", 93 * GIB))
    cluster.clock.at(5, lambda: setattr(cluster["spark-a"], "available", 94 * GIB))
    cluster.start()
    entries = json.loads(cluster["spark-a"].files[LEDGER])["entries"]
    assert [
        (one["node"], one["before"] // GIB, one["lowest"] // GIB, one["serving"] // GIB, one["tokens"])
        for one in entries
    ] == [
        ("spark-a", 100, 93, 94, 1000),
        ("spark-b", 100, 100, 100, 1000),
    ]


def test_what_a_boot_took_is_shown_beside_the_prediction_of_the_next(cluster):
    cluster.clock.at(3, lambda: setattr(cluster["spark-a"], "available", 93 * GIB))
    cluster.start()
    head, worker = fit(cluster.settings, cluster.open, cluster.emit).nodes
    assert (head.measured, head.needed, worker.measured) == (7 * GIB, 7 * GIB, 0)
    assert head.boot != ""


def test_another_context_is_another_boot(cluster):
    cluster.start()
    other = FakeCluster(pair(serve=Serve(model="/models/demo", max_model_len=4096)), hosts={})
    other["spark-a"].files.update(cluster["spark-a"].files)
    assert [node.measured for node in fit(other.settings, other.open, other.emit).nodes] == [None, None]


def test_a_ledger_that_cannot_be_read_is_told_and_written_anew(cluster):
    cluster["spark-a"].files[LEDGER] = b"{"
    begin(cluster)
    told = [one for one in cluster.of(Told) if "memory ledger" in one.text]
    assert [one.severity for one in told] == [Severity.WARNING] * 2
    assert len(json.loads(cluster["spark-a"].files[LEDGER])["entries"]) == 2


def test_a_start_makes_room_where_available_memory_is_not_free():
    cluster = FakeCluster(pair(serve=SERVE, tuning=Tuning(drop_page_cache=True)))
    cluster["spark-b"].free = 2 * GIB
    begin(cluster)
    after = sorted(cluster.acts[3:])  # the nodes act side by side
    assert cluster.acts[:3] == ["drop page cache on spark-b", "launch rank 1 on spark-b", "launch rank 0 on spark-a"]
    assert after == ["drop page cache on spark-a", "drop page cache on spark-b"]


def test_what_evicting_costs_is_told():
    cluster = FakeCluster(pair(serve=SERVE, weights=Weights(page_cache=PageCache.EVICT_ALL)))
    begin(cluster)
    assert sorted(cluster.acts[:2]) == ["drop page cache on spark-a", "drop page cache on spark-b"]
    all_told = [one for one in cluster.events if isinstance(one, Told)]
    told = [one.text for one in all_told if one.node == "spark-a" and "evicted" in one.text]
    assert [one.partition(";")[0] for one in told] == [
        "evicted everybody's pages",
        "evicted the pages of 1 files of weights",
    ]


def test_pages_are_kept_unless_something_says_otherwise():
    cluster = FakeCluster(pair(serve=SERVE))
    cluster["spark-b"].free = 2 * GIB
    begin(cluster)
    assert cluster.acts == ["launch rank 1 on spark-b", "launch rank 0 on spark-a"]


def test_fit_changes_nothing_and_starts_nothing(cluster):
    report = fit(cluster.settings, cluster.open, cluster.emit)
    assert (report.fit, report.model, [node.node for node in report.nodes]) == (
        Fit.FITS,
        "demo",
        ["spark-a", "spark-b"],
    )
    assert (cluster.acts, cluster["spark-a"].files) == ([], {})


def test_fit_without_a_model_says_so(cluster):
    cluster["spark-a"].model = 0
    with pytest.raises(Refused) as caught:
        fit(cluster.settings, cluster.open, cluster.emit)
    assert (caught.value.what, caught.value.where) == ("there is no model to count", "spark-a:/models/demo")


def test_a_model_of_another_format_is_started_without_a_memory_plan(cluster):
    cluster["spark-a"].model = 0
    begin(cluster)
    assert [one.severity for one in cluster.of(Finding) if one.id.startswith("MEM.")] == [Severity.NOT_CHECKED]
    assert LEDGER not in cluster["spark-a"].files
