"""What a fetch has to bring, and what is against it before the first byte."""

import json

import pytest

from cluster.errors import Refused, SettingsError, Unreadable
from cluster.model.kit import Weights
from cluster.model.nodes import NodeSettings
from cluster.model.serve import Serve
from cluster.model.settings import Launch, Settings, Watch
from cluster.model.weights import FileState, WeightFile
from cluster.plan.fetch import (
    Source,
    check_room,
    check_shards,
    chosen,
    gaps,
    part_name,
    sources,
    to_bring,
    wants_index,
)
from cluster.plan.verify import MODEL, TABLES
from cluster.probe.manifest import Room
from cluster.weights.manifest import CONFIG, INDEX, Entry, FileFact, Manifest

MODEL_SOURCE = Source(MODEL, "org/m", "main", "/m")
SMALL, LARGE = Entry("config.json", 2, sha1="b"), Entry("model.safetensors", 100, sha256="a")
MANIFEST = Manifest("org/m", "0123abc", (SMALL, LARGE))


def settings(head: NodeSettings, weights: Weights) -> Settings:
    return Settings("x", "", (head,), Serve(), Launch(), Watch(), weights=weights)


ROOM = Room("/m", present=True, free=1000, inodes=1000, writable=True)


def test_the_largest_file_is_brought_first():
    missing = gaps(MANIFEST, {})
    assert [one.state for one in missing] == [FileState.MISSING, FileState.MISSING]
    assert to_bring(MANIFEST, missing) == (LARGE, SMALL)


def test_what_is_right_or_was_not_read_is_not_brought():
    facts = {"config.json": FileFact("config.json", 2, b"{}")}
    assert gaps(MANIFEST, facts) == (
        WeightFile("model.safetensors", FileState.MISSING, None, "missing", "is not there"),
    )


def test_what_is_begun_needs_only_the_rest_of_its_room():
    begun = {"model.safetensors": FileFact("model.safetensors", None, part=90)}
    tight = Room("/m", present=True, free=20, inodes=None, writable=True)
    check_room((LARGE,), begun, tight, reserve=10)
    with pytest.raises(Refused) as refused:
        check_room((LARGE,), {}, tight, reserve=10)
    assert refused.value.what == "100 B are to come, 20 B are free"


@pytest.mark.parametrize(
    "room",
    [
        Room("/m", present=True, free=1000, inodes=64, writable=True),
        Room("/m", present=True, free=1000, inodes=1000, writable=False),
    ],
    ids=["no inodes", "not writable"],
)
def test_a_folder_that_cannot_take_the_files_is_refused(room):
    with pytest.raises(Refused):
        check_room((LARGE,), {}, room, reserve=0)
    check_room((), {}, room, reserve=0)  # nothing is to come


def test_what_goes_into_the_other_folder_takes_room_too():
    check_room((LARGE,), {}, ROOM, reserve=0, taken=900)
    with pytest.raises(Refused):
        check_room((LARGE,), {}, ROOM, reserve=0, taken=901)


def test_too_few_shards_are_refused():
    check_shards(MANIFEST, 1, "org/m")
    check_shards(MANIFEST, None, "org/m")
    with pytest.raises(Refused) as refused:
        check_shards(MANIFEST, 39, "org/m")
    assert refused.value.what == "the repository has 1 shards, the recipe expects 39"


def test_a_part_belongs_to_one_content():
    assert part_name(Entry("sub/a.safetensors", 1, sha256="5f3e" * 16)) == "sub--a.safetensors.5f3e5f3e5f3e5f3e.part"
    assert part_name(Entry("a", 1, sha256="b" * 64)) != part_name(Entry("a", 1, sha256="c" * 64))


def test_the_index_decides_which_shards_come():
    files = (Entry(INDEX, 1), Entry("a.safetensors", 1), Entry("b.safetensors", 1))
    listing = Manifest("org/m", "0123abc", files)
    assert wants_index(MODEL_SOURCE, listing) == (INDEX,)
    read = {INDEX: json.dumps({"weight_map": {"w": "a.safetensors"}}).encode()}
    assert [one.name for one in chosen(MODEL_SOURCE, listing, read).files] == [INDEX, "a.safetensors"]


def test_an_index_that_is_no_json_is_told_as_such():
    with pytest.raises(Unreadable):
        chosen(MODEL_SOURCE, Manifest("org/m", "0123abc", ()), {INDEX: b"<html>"})


def test_tables_need_a_configuration_that_knows_of_them():
    tables = Source(TABLES, "org/m", "main", "/t", tables=True)
    listing = Manifest("org/m", "0123abc", (Entry(INDEX, 1), Entry(CONFIG, 1)))
    index = json.dumps({"weight_map": {}}).encode()
    for read in ({INDEX: index}, {INDEX: index, CONFIG: b"{}"}):
        with pytest.raises(Refused):
            chosen(tables, listing, read)


def test_both_repositories_have_their_folders():
    weights = Weights(repo="org/m", engram_repo="org/t")
    head = NodeSettings(model="/host/model", engram="/host/tables")
    assert sources(settings(head, weights)) == (
        Source(MODEL, "org/m", "main", "/host/model"),
        Source(TABLES, "org/t", "main", "/host/tables", tables=True),
    )


def test_without_a_repository_or_a_folder_there_is_nothing_to_fetch():
    for weights in (Weights(), Weights(engram_repo="org/t"), Weights(repo="org/m")):
        with pytest.raises(SettingsError):
            sources(settings(NodeSettings(), weights))
