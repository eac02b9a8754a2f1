"""What ranks are told of tables in files, what is checked before a boot, and the proof that a token needs."""

from dataclasses import replace
from decimal import Decimal

import pytest

from cluster.model.checks import Severity
from cluster.model.containers import Mount
from cluster.model.kit import Container, Engram, EngramBackend, Image
from cluster.model.settings import Launch, NodeSettings, RuntimeKind, Settings
from cluster.plan.boot import Alive, Answered, Boot, Died, HeadSight, Limits, LogLine, Member, Observation, RankSight
from cluster.plan.boot import Serving as ServingNow
from cluster.plan.boxes import planned_box
from cluster.plan.engram import check_overlay, check_tables, common_variables, needs_proof, rank_variables
from cluster.plan.loglines import Proof, classify
from cluster.plan.readiness import advance
from cluster.probe.tables import PackedSeen, TablesSeen
from tests.build import identity, pair
from tests.unit.plan.test_pack import NAMES, SETTINGS, folder, job, out, seen

BOTH = replace(
    SETTINGS,
    nodes=tuple(replace(node, engram="~/engram", packed="~/rows") for node in SETTINGS.nodes),
)
CONTAINER = replace(BOTH, launch=Launch(runtime=RuntimeKind.CONTAINER), image=Image(name="dsv41"))
ACTIVE = "(Worker pid=7) INFO 11-30 15:40:37 [plugin.py:38] spark_overlay 0.1.0 active in vLLM 0.33.0: engram=file x"


# ---- variables


def test_nothing_is_told_where_no_tables_lie_in_files():
    assert (common_variables(pair()), rank_variables(pair(), pair().head), needs_proof(pair())) == ({}, {}, False)


def test_the_overlay_is_told_where_each_node_has_its_rows():
    settings = replace(
        BOTH,
        engram=Engram(cache_gib=Decimal(2), resident_scales=True, io_threads=64, stats_seconds=0),
        launch=Launch(venv="/v", environment=(("VLLM_PLUGINS", "mine"),)),
    )
    assert common_variables(settings) == {
        "SPARK_OVERLAY_ENGRAM": "file",
        "VLLM_PLUGINS": "mine,spark_overlay",
        "SPARK_OVERLAY_ENGRAM_CACHE_BYTES": str(2**30),
        "SPARK_OVERLAY_ENGRAM_RESIDENT_SCALES": "1",
        "SPARK_OVERLAY_ENGRAM_DEPTH": "64",
        "SPARK_OVERLAY_ENGRAM_REPORT_SECONDS": "0",
    }
    assert rank_variables(settings, settings.nodes[1]) == {
        "SPARK_OVERLAY_ENGRAM_SOURCE": "~/engram",
        "SPARK_OVERLAY_ENGRAM_PACKED": "~/rows",
    }


def test_links_that_pack_made_come_before_the_folder_they_lead_to():
    settings = replace(BOTH, engram=Engram(source="/slim"))
    assert rank_variables(settings, settings.head)["SPARK_OVERLAY_ENGRAM_SOURCE"] == "/slim"


def test_a_container_has_them_where_they_are_mounted():
    told = {"SPARK_OVERLAY_ENGRAM_SOURCE": "/engram-src", "SPARK_OVERLAY_ENGRAM_PACKED": "/engram-packed"}
    assert rank_variables(CONTAINER, CONTAINER.head) == told
    mounts = planned_box(CONTAINER, CONTAINER.head).mounts
    assert {Mount("~/engram", "/engram-src"), Mount("~/rows", "/engram-packed")} <= set(mounts)
    named = replace(CONTAINER, container=Container(engram="/e", packed="/p"))
    assert set(rank_variables(named, named.head).values()) == {"/e", "/p"}


def test_a_server_with_code_of_its_own_is_told_by_the_kits_names():
    settings = replace(BOTH, engram=Engram(backend=EngramBackend.OWN))
    assert (common_variables(settings), needs_proof(settings)) == ({}, False)
    assert rank_variables(settings, settings.head) == {"DSV41_SOURCE": "~/engram", "DSV41_PACKED_DIR": "~/rows"}


# ---- checks


def test_a_venv_without_the_overlay_is_refused_on_each_node():
    has = identity(packages=(("spark-overlay", "0.1.0"), ("vllm", "0.33.0")))
    found = check_overlay(BOTH, {"spark-a": has, "spark-b": identity()})
    assert [(one.node, one.severity) for one in found] == [
        ("spark-a", Severity.OK),
        ("spark-b", Severity.REFUSAL),
    ]
    assert check_overlay(CONTAINER, {"spark-a": identity()}) == []
    assert check_overlay(pair(), {"spark-a": identity()}) == []


def told(settings: Settings, looked: TablesSeen) -> list[tuple[str, Severity]]:
    return [(one.observed, one.severity) for one in check_tables(settings, {"spark-a": looked})]


def packed(layer: int, **changes) -> PackedSeen:
    wanted = job(layer).wanted
    return replace(PackedSeen(f"engram-l{layer}-r0of2.bin", wanted.size, wanted.header(), proved=True), **changes)


def test_right_files_are_told_with_their_size():
    assert told(BOTH, seen(at=out(packed(1), packed(14)))) == [
        ("engram-l1-r0of2.bin, 47.2 GiB", Severity.OK),
        ("engram-l14-r0of2.bin, 47.2 GiB", Severity.OK),
        ("/rows is read past the page cache", Severity.OK),
    ]


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (packed(1, size=31_138_512_896), "is cut off: 31138512896 bytes, must be 50688463456"),
        (packed(1, first=job(14).wanted.header()), "belongs to another layer: 14, must be 1"),
        (
            packed(1, first=replace(job(1).wanted, rows=range(192_001_740, 384_006_168)).header()),
            "holds the rows of another rank or another number of ranks",
        ),
        (packed(1, first=b"\0" * 4096), "is no packed Engram file"),
        (packed(1, size=10, first=b"DSV1EN41.."), "is cut off: 10 bytes"),
    ],
)
def test_a_wrong_file_is_refused_by_its_name(file, words):
    """HF-05: half a file under its final name is never taken for a whole one."""
    (observed, severity), *_ = told(BOTH, seen(at=out(file, packed(14))))
    assert severity is Severity.REFUSAL
    assert observed.startswith(f"/rows/engram-l1-r0of2.bin {words}")


def test_a_file_that_was_written_to_after_its_checksums_is_refused():
    changed, right = told(BOTH, seen(at=out(packed(1, proved=False), packed(14))))[:2]
    said = "/rows/engram-l1-r0of2.bin was written to after its checksums were taken"
    assert (changed[0].startswith(said), changed[1], right[1]) == (True, Severity.REFUSAL, Severity.OK)


def test_a_file_without_checksums_is_a_warning():
    observed, severity = told(BOTH, seen(at=out(packed(1, proved=None), packed(14))))[0]
    assert (observed.startswith("engram-l1-r0of2.bin, 47.2 GiB: it has no checksums"), severity) == (
        True,
        Severity.WARNING,
    )


def test_what_is_not_packed_is_read_from_the_tables_with_a_warning():
    observed, severity = told(BOTH, seen(at=out(packed(1))))[1]
    assert (observed, severity) == (
        "engram-l14-r0of2.bin is not packed: layer 14 is read from /engram, two reads a row",
        Severity.WARNING,
    )


def test_without_rows_and_without_tables_a_start_is_refused():
    gone = folder(names=NAMES[2:], shards={})
    found = told(BOTH, seen(gone, at=out(PackedSeen("engram-l1-r0of2.bin", None, b"", part=2**30), packed(14))))
    said = "engram-l1-r0of2.bin is not packed (of an ended pack 1.0 GiB are on the disk), and the tables are not there"
    assert found[0] == (f"{said} either: ~/engram", Severity.REFUSAL)


def test_a_file_system_without_direct_reads_is_a_warning():
    """HF-05: tmpfs."""
    assert told(BOTH, seen(at=out(packed(1), packed(14), direct=False)))[2][1] is Severity.WARNING


def test_a_model_without_tables_is_not_judged():
    assert told(BOTH, seen(folder(engram=None)))[0][1] is Severity.NOT_CHECKED


def test_a_node_without_a_folder_for_rows_reads_the_tables():
    settings = pair(nodes=(NodeSettings(name="spark-a", engram="/engram"), SETTINGS.nodes[1]))
    assert [one[1] for one in told(settings, replace(seen(), out=None))] == [Severity.WARNING] * 2


# ---- the proof


def test_the_line_of_the_overlay_is_a_proof():
    assert classify(ACTIVE) == Proof(("engram=file", "x"))


def played(lines: dict[int, list[str]], proof: str) -> Boot:
    """Both ranks say their lines in the first second, then tokens come."""
    boot = Boot.begin((Member(0, "spark-a"), Member(1, "spark-b")), 0.0)
    for now in range(1, 9):
        ranks = tuple(
            RankSight(rank, Alive(), tuple(LogLine(1.0, text) for text in lines.get(rank, []) if now == 1))
            for rank in (0, 1)
        )
        head = HeadSight(200, Answered() if now > 3 else None)
        boot = advance(boot, Observation(float(now), ranks, head), Limits(proof=proof))
    return boot


def test_a_token_of_ranks_that_all_have_the_overlay_is_serving():
    assert isinstance(played({0: [ACTIVE], 1: [ACTIVE]}, "engram=file").verdict, ServingNow)
    assert isinstance(played({}, "").verdict, ServingNow)


def test_a_rank_without_the_overlay_is_named_and_never_serves():
    verdict = played({0: [ACTIVE], 1: [ACTIVE.replace("engram=file x", "nothing asked")]}, "engram=file").verdict
    assert isinstance(verdict, Died)
    assert (verdict.rank, verdict.cause) == (
        1,
        "it serves, but its log does not say that the overlay is active with engram=file",
    )
