"""What each node has to pack, from which folder, and what is wrong with a folder or a file."""

from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from cluster.errors import Refused, SettingsError
from cluster.model.kit import Engram as EngramSettings
from cluster.model.settings import NodeSettings, Serve
from cluster.plan.pack import (
    FolderVerdict,
    PackJob,
    Whole,
    candidates,
    check_room,
    choose_source,
    fault_of,
    judge_folder,
    node_pack,
    packed_folder,
)
from cluster.probe.tables import FolderSeen, OutSeen, PackedSeen, ShardSeen, TablesSeen
from cluster.weights.engram import Engram, Source, tables
from cluster.weights.packed import Fault, Packed, packed
from tests.build import pair

FLASH = Engram((1, 14), (384_006_168, 384_016_682), 16_000_000, 99_092, 8, 4, 256, 2)
SHARDS = {1: "model-00047-of-00048.safetensors", 14: "model-00048-of-00048.safetensors"}
INDEX = {f"layers.{layer}.engram.embed.{part}": SHARDS[layer] for layer in (1, 14) for part in ("weight", "scale")}
NAMES = (*SHARDS.values(), "config.json", "model.safetensors.index.json")
SETTINGS = pair(
    nodes=(
        NodeSettings(name="spark-a", control="local", address="10.40.0.1", engram="/engram", packed="/rows"),
        NodeSettings(name="spark-b", control="op@spark-b", address="10.40.0.2", packed="/rows"),
    )
)


def shard(layer: int, rows: int) -> ShardSeen:
    """As the header of the published shard describes itself."""
    weight, scale = rows * 256, rows * 8
    name = f"layers.{layer}.engram.embed"
    text = (
        f'{{"{name}.weight":{{"dtype":"F8_E4M3","shape":[{rows},256],"data_offsets":[0,{weight}]}},'
        f'"{name}.scale":{{"dtype":"F8_E8M0","shape":[{rows},8],"data_offsets":[{weight},{weight + scale}]}}}}'
    )
    first = len(text).to_bytes(8, "little") + text.encode()
    return ShardSeen(len(first) + weight + scale, first)


def folder(path: str = "/engram", **changes) -> FolderSeen:
    shards = {SHARDS[layer]: shard(layer, rows) for layer, rows in zip(FLASH.layers, FLASH.rows, strict=True)}
    whole = FolderSeen(PurePosixPath(path), True, False, 5, NAMES, FLASH, INDEX, False, shards)
    return replace(whole, **changes)


def out(*files: PackedSeen, free: int = 200 * 2**30, **changes) -> OutSeen:
    return replace(OutSeen(PurePosixPath("/rows"), True, 7, free, True, True, files), **changes)


def seen(*folders: FolderSeen, at: OutSeen | None = None, machine: str = "one") -> TablesSeen:
    return TablesSeen(machine, folders or (folder(),), at or out())


# ---- folders (HF-04)


def test_a_folder_without_config_fails_by_name():
    """HF-04: {"verdict": "fail", "missing": ["config.json"], "required_shards": [47, 48]}."""
    names = tuple(name for name in NAMES if name != "config.json")
    verdict = judge_folder(folder(names=names, engram=None))
    assert verdict == FolderVerdict(Whole.FAIL, ("config.json",), tuple(SHARDS.values()))


def test_a_full_index_is_to_be_rewritten():
    """HF-04: "full_index": "rewrite"."""
    assert judge_folder(folder(full=True)).verdict is Whole.REWRITE
    assert judge_folder(folder()).verdict is Whole.OK
    assert judge_folder(FolderSeen(PurePosixPath("/nowhere"))).verdict is Whole.FAIL


def test_a_folder_on_the_own_disk_is_faster_than_one_on_the_network():
    mounted, own = folder("/mnt/engram", network=True), folder("/data/engram")
    assert choose_source("spark-b", (mounted, own)) == own
    assert choose_source("spark-b", (mounted,)) == mounted


def test_every_folder_that_will_not_do_is_named_with_the_reason():
    with pytest.raises(Refused) as raised:
        choose_source(
            "spark-b",
            (
                FolderSeen(PurePosixPath("/a")),
                folder("/b", weight_map=None),
                folder("/c", weight_map={}),
                folder("/d", engram=None),
                folder("/e", names=NAMES[1:]),
            ),
        )
    assert raised.value.evidence == (
        "/a: does not exist",
        "/b: has no model.safetensors.index.json",
        "/c: its model.safetensors.index.json names no Engram tables",
        "/d: its config.json describes no Engram tables",
        "/e: lacks model-00047-of-00048.safetensors",
    )


def test_the_likeliest_folder_comes_first():
    settings = replace(SETTINGS, engram=EngramSettings(source="/slim"))
    assert candidates(settings, settings.nodes[0]) == ("/engram", "/models/demo", "/slim")
    assert candidates(SETTINGS, SETTINGS.nodes[1]) == ("/models/demo",)


# ---- files


def test_each_rank_packs_its_own_columns_of_both_layers():
    sizes = [[job.wanted.size for job in node_pack(SETTINGS, rank, seen(), ()).jobs] for rank in (0, 1)]
    assert sizes == [[50_688_463_456, 50_689_856_320], [50_689_173_088, 50_690_555_920]]
    first = node_pack(SETTINGS, 1, seen(), (14,)).jobs
    assert [(str(job.shard), str(job.out)) for job in first] == [
        ("/engram/model-00048-of-00048.safetensors", "/rows/engram-l14-r1of2.bin")
    ]


def test_stages_of_a_pipeline_have_the_same_columns():
    settings = pair(nodes=SETTINGS.nodes * 2, serve=Serve(model="/m", tensor_parallel=2, pipeline_parallel=2))
    assert [str(node_pack(settings, rank, seen(), (1,)).jobs[0].out.name) for rank in range(4)] == [
        "engram-l1-r0of2.bin",
        "engram-l1-r1of2.bin",
    ] * 2


def test_links_are_made_only_where_they_are_wanted():
    settings = replace(SETTINGS, engram=EngramSettings(source="/slim"))
    slim = node_pack(settings, 0, seen(folder(full=True)), ()).slim
    assert slim is not None
    assert (slim.source, slim.out, slim.shards, slim.index) == (
        PurePosixPath("/engram"),
        "/slim",
        tuple(SHARDS.values()),
        INDEX,
    )
    assert node_pack(SETTINGS, 0, seen(), ()).slim is None


def test_a_layer_without_a_table_is_refused():
    with pytest.raises(SettingsError, match="layer 2 has no Engram table; these have: 1, 14"):
        node_pack(SETTINGS, 0, seen(), (2,))


def test_a_shard_of_another_size_is_refused():
    cut = {SHARDS[1]: replace(folder().shards[SHARDS[1]], size=1_000), SHARDS[14]: folder().shards[SHARDS[14]]}
    with pytest.raises(Refused, match="cut off"):
        node_pack(SETTINGS, 0, seen(folder(shards=cut)), ())


def test_nothing_says_where_to_pack_to():
    with pytest.raises(SettingsError) as raised:
        packed_folder(SETTINGS, NodeSettings(name="spark-b"))
    assert raised.value.fix == "set WORKER_PACKED_DIR, or give --out DIR"
    assert packed_folder(SETTINGS, SETTINGS.nodes[0]) == "/rows"
    assert packed_folder(SETTINGS, SETTINGS.nodes[0], "/other") == "/other"


def job(layer: int) -> PackJob:
    table = tables(FLASH)[FLASH.layers.index(layer)]
    wanted: Packed = packed(FLASH, table, 0, 2)
    return PackJob(0, wanted, PurePosixPath("/s"), Source(8, 9), PurePosixPath(f"/rows/engram-l{layer}-r0of2.bin"))


def test_a_half_written_pack_is_told_from_a_whole_one():
    """HF-05: {"l1": "incomplete", "l14": "ok"}. What it calls whole here has the size that the table demands."""
    first, second = job(1), job(14)
    half = PackedSeen("engram-l1-r0of2.bin", 31_138_512_896, first.wanted.header())
    whole = PackedSeen("engram-l14-r0of2.bin", 50_689_856_320, second.wanted.header())
    fault = fault_of(first, half, "spark-a")
    assert fault is not None
    assert fault.fault is Fault.TRUNCATED
    assert fault_of(second, whole, "spark-a") is None
    other = fault_of(first, replace(whole, name=half.name), "spark-a")
    assert other is not None
    assert other.fault is Fault.WRONG_LAYER


# ---- room


def test_room_is_added_up_over_nodes_that_share_a_disk():
    pairs = {node.name: seen(at=out(free=110 * 2**30)) for node in SETTINGS.nodes}
    packs = [node_pack(SETTINGS, rank, pairs[node.name], ()) for rank, node in enumerate(SETTINGS.nodes)]
    with pytest.raises(Refused, match=r"110.0 GiB are free, 189.8 GiB are needed"):
        check_room(packs, pairs, 2**30)
    apart = {"spark-a": pairs["spark-a"], "spark-b": replace(pairs["spark-b"], machine="two")}
    check_room(packs, apart, 2**30)


def test_what_is_there_already_needs_no_room():
    first, second = job(1), job(14)
    there = PackedSeen("engram-l1-r0of2.bin", first.wanted.size, first.wanted.header())
    part = PackedSeen("engram-l14-r0of2.bin", None, b"", part=second.wanted.size - 2**30)
    looked = {"spark-a": seen(at=out(there, part, free=2 * 2**30))}
    check_room([node_pack(SETTINGS, 0, looked["spark-a"], ())], looked, 2**30)
    looked = {"spark-a": seen(at=out(there, free=2 * 2**30))}
    todo = [node_pack(SETTINGS, 0, looked["spark-a"], ())]
    with pytest.raises(Refused, match=r"47.2 GiB of rows"):
        check_room(todo, looked, 2**30)


def test_a_folder_that_cannot_be_written_is_refused():
    looked = {"spark-a": seen(at=out(writable=False))}
    with pytest.raises(Refused, match="cannot write there"):
        check_room([node_pack(SETTINGS, 0, looked["spark-a"], ())], looked, 0)
