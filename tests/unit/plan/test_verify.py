"""The verdict over a folder: what was proven, what was not looked at, what is wrong and where."""

from cluster.model.weights import FileState, WeightFile
from cluster.plan.verify import proven
from cluster.probe.manifest import IndexFact
from cluster.weights.manifest import Entry, FileFact, Manifest


def files(*digests: str) -> dict[str, FileFact]:
    return {name: FileFact(name, 1, b"{", digest=digest) for name, digest in zip("abc", digests, strict=False)}


MANIFEST = Manifest("org/m", "0123abc", (Entry("a", 1, sha256="1"), Entry("b", 1, sha256="2")))


def test_files_with_the_digest_of_the_manifest_are_right():
    found = proven("head", "/m", MANIFEST, files("sha256:1", "sha256:2"), None, unlike=None)
    assert (found.ok, found.right, found.not_checked, found.repo) == (True, 2, 0, "org/m")


def test_what_was_not_read_is_not_checked_and_no_failure():
    found = proven("head", "/m", MANIFEST, files("sha256:1", ""), None, unlike=None)
    assert (found.ok, found.right, found.not_checked) == (True, 1, 1)


def test_a_swapped_file_is_found_by_name():
    found = proven("worker", "/m", MANIFEST, files("sha256:1", "sha256:1"), None, unlike=None)
    detail = "is sha256:1, must be sha256:2"
    assert (found.ok, found.wrong) == (False, (WeightFile("b", FileState.WRONG, 1, "digest", detail),))


def test_without_a_manifest_the_head_decides():
    found = proven("worker", "/m", None, files("sha256:1", "sha256:9"), None, unlike=frozenset({"b", "c"}))
    assert (found.right, found.wrong) == (
        1,
        (
            WeightFile("b", FileState.WRONG, 1, "unlike", "is sha256:9, not what the head has"),
            WeightFile("c", FileState.MISSING, None, "missing", "is not there, the head has it"),
        ),
    )


def test_equal_sizes_prove_no_content():
    found = proven("worker", "/m", None, files("sha256:1"), None, unlike=frozenset(), by_content=False)
    assert (found.ok, found.right, found.not_checked) == (True, 0, 1)


def test_an_index_that_does_not_match_is_a_problem():
    index = IndexFact(("w, not in a",), 1, ("x in b",), 7)
    found = proven("head", "/m", None, files("sha256:1"), index, unlike=None)
    assert (found.ok, found.problems) == (
        False,
        ("1 tensors of the index are in no shard: w, not in a", "7 tensors are not in the index: x in b"),
    )


def test_no_folder_and_an_empty_one_are_told_apart():
    assert [proven("a", "/m", None, {}, None, unlike=None, present=one).problems for one in (True, False)] == [
        ("the folder is empty",),
        ("the folder is not there",),
    ]


def test_links_out_of_the_folder_are_noted():
    facts = {"a": FileFact("a", 1, b"{", link="/data/m/blobs/5f3e")}
    assert proven("head", "/data/m/snapshots/0123abc", None, facts, None, unlike=None).notes == (
        "its links lead out of it: a container or an export needs /data/m, and snapshots/0123abc below it as the model",
    )
