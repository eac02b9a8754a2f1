"""What a file of a model is found to be, and what a folder must hold."""

import json
import struct

import pytest

from cluster.errors import Refused, Unreadable
from cluster.model.weights import FileState, WeightFile
from cluster.weights.manifest import (
    Entry,
    Exposure,
    FileFact,
    Manifest,
    compare,
    exposure,
    judge,
    needed,
    only,
    parse,
    rendered,
)


def valid() -> bytes:
    """232 bytes: a header of 176 for 48 of data."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [12], "data_offsets": [0, 48]}}).encode().ljust(176)
    return struct.pack("<Q", 176) + header + bytes(48)


def fact(data: bytes, name: str = "model.safetensors", **more: object) -> FileFact:
    expected = 232 if len(data) >= 184 and data[:1] == b"\xb0" else None
    return FileFact(name, len(data), data[:64], expected, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (valid(), ""),
        (valid()[:231], "truncated"),
        (valid()[:200], "truncated"),
        (valid()[:60], "truncated_header"),
        (valid()[:7], "not_safetensors"),
        (b"", "empty"),
        (valid() + bytes(16), "trailing_bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:".ljust(135, b"0"), "lfs_pointer"),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "html"),
        (b"\n<HTML>busy</HTML>", "html"),
        (b"PK\x03\x04" * 20, "not_safetensors"),
    ],
)
def test_a_shard_is_judged_by_its_exact_size_and_its_first_bytes(data, fault):
    """HF-02."""
    found = judge(fact(data), None)
    assert (found.fault, found.state) == (fault, FileState.WRONG if fault else FileState.NOT_CHECKED)


def test_a_configuration_that_is_a_web_page_is_wrong():
    assert judge(fact(b"<!doctype html>", "config.json"), None).fault == "html"
    assert judge(fact(b"version https://git-lfs.github.com/spec/v1", "tokenizer.json"), None).fault == "lfs_pointer"


def test_a_damaged_header_is_told_in_its_words():
    found = judge(FileFact("a.safetensors", 232, valid()[:64], None, "Expecting value"), None)
    assert found == WeightFile("a.safetensors", FileState.WRONG, 232, "bad_header", "Expecting value")


def test_content_is_right_wrong_or_not_checked():
    entry = Entry("model.safetensors", 232, sha256="aa")
    assert [judge(fact(valid(), digest=digest), entry).state for digest in ("sha256:aa", "sha256:bb", "")] == [
        FileState.RIGHT,
        FileState.WRONG,
        FileState.NOT_CHECKED,
    ]


def test_whole_by_its_header_but_not_what_the_publisher_has():
    found = judge(fact(valid()), Entry("model.safetensors", 248))
    assert (found.fault, found.detail) == ("truncated", "232 bytes, must be 248")


def test_an_absent_file_says_whether_a_fetch_can_go_on_with_it():
    """HF-01."""
    name = "model-00017-of-00039.safetensors"
    assert [
        judge(FileFact(name, None, part=3 << 30), None),
        judge(FileFact(name, None), None),
        judge(FileFact(name, None, link="/blobs/5f3e", dangling=True), None),
    ] == [
        WeightFile(
            name, FileState.PARTIAL, None, "resumable", "3.0 GiB of it are there: sparkctl fetch goes on with them"
        ),
        WeightFile(name, FileState.MISSING, None, "missing", "is not there"),
        WeightFile(name, FileState.MISSING, None, "dangling", "a link to /blobs/5f3e, which is not there"),
    ]


def test_links_out_of_the_folder_say_what_must_be_mounted():
    """HF-03."""
    folder = "/data/hf/hub/models--org--m/snapshots/0123abc"
    blob = FileFact("a.safetensors", 232, link="/data/hf/hub/models--org--m/blobs/5f3e")
    far = FileFact("b.safetensors", 232, link="/home/other/b.safetensors")
    assert [exposure(folder, [blob]), exposure(folder, [blob, far]), exposure(folder, [FileFact("c", 1)])] == [
        Exposure("/data/hf/hub/models--org--m", "snapshots/0123abc"),
        Exposure("/", folder.removeprefix("/")),
        None,
    ]


FILES = tuple(
    Entry(name, 1)
    for name in (
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "consolidated.safetensors",
        "model.safetensors.index.json",
        "config.json",
        "tokenizer.model",
        "README.md",
        "figures/benchmark.png",
        "original/params.json",
        "exllamav3/attention.safetensors",
    )
)


def test_only_what_a_server_reads_is_needed():
    index = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    names = [one.name for one in needed(FILES, index, ["exllamav3/*"])]
    assert names == [FILES[at].name for at in (0, 1, 3, 4, 5, 9)]


def test_without_an_index_every_shard_beside_the_configuration_is_needed():
    assert [one.name for one in needed(FILES, None)] == [FILES[at].name for at in (0, 1, 2, 3, 4, 5)]


def test_an_index_that_names_what_is_not_published_is_refused():
    with pytest.raises(Refused) as refused:
        needed(FILES, {"a": "model-00003-of-00003.safetensors"})
    assert refused.value.evidence == ("model-00003-of-00003.safetensors",)


def test_files_that_are_asked_for_by_name_must_all_be_there():
    assert [one.name for one in only(FILES, ["config.json", "README.md", "config.json"])] == [
        "config.json",
        "README.md",
    ]
    with pytest.raises(Refused) as refused:
        only(FILES, ["config.json", "model-00047-of-00048.safetensors"])
    assert refused.value.evidence == ("model-00047-of-00048.safetensors",)


def test_nodes_are_compared_with_the_first():
    def file(name: str, digest: str) -> FileFact:
        return FileFact(name, 1, digest=digest)

    head = {"a": file("a", "sha256:1"), "b": file("b", "sha256:2"), "c": file("c", "sha256:3")}
    worker = {"a": file("a", "sha256:1"), "b": file("b", "sha256:9")}
    assert compare({"head": head, "worker": worker}, contents=True) == {
        "head": frozenset(),
        "worker": frozenset({"b", "c"}),
    }
    assert compare({"head": head, "worker": worker}, contents=False)["worker"] == frozenset({"c"})


def test_a_manifest_comes_back_as_it_was_written():
    manifest = Manifest("org/m", "0123abc", (Entry("a", 1, sha256="aa"), Entry("b", 2, sha1="bb"), Entry("c", 3)))
    assert parse(rendered(manifest), "here") == manifest


@pytest.mark.parametrize("text", ["", "[]", '{"repo": "m"}', '{"repo": "m", "revision": "r", "files": {"a": {}}}'])
def test_a_damaged_manifest_is_told_as_such(text):
    with pytest.raises(Unreadable):
        parse(text.encode(), "here")
