"""The manifest program on files of its own: what it looks at, what it reads, and what it remembers."""

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from cluster.agent.manifest import main


def shard(path: Path, tensors: dict[str, int], cut: int = 0) -> bytes:
    entries, at = {}, 0
    for name, size in tensors.items():
        entries[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(entries).encode()
    data = struct.pack("<Q", len(header)) + header + os.urandom(at)
    path.write_bytes(data[: -cut or None])
    return data


@pytest.fixture
def ask(tmp_path, capsys):
    def ask(**more: Any) -> dict[str, list[dict[str, Any]]]:
        want = {"folder": str(tmp_path / "model"), "files": None, "hash": True, "again": False, "threads": 2}
        main(want | {"cache": str(tmp_path / "state" / "verdicts.json"), "pads": "__pad__"} | more)
        told: dict[str, list[dict[str, Any]]] = {}
        for line in capsys.readouterr().out.splitlines():
            said = json.loads(line)
            told.setdefault(said.pop("kind"), []).append(said)
        return told

    (tmp_path / "model").mkdir()
    return ask


def test_contents_are_read_once_and_remembered_until_the_file_changes(ask, tmp_path):
    path = tmp_path / "model" / "a.safetensors"
    data = shard(path, {"w": 100})
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    first, second = ask(), ask()
    assert [one["file"][0].get("digest") for one in (first, second)] == [digest, digest]
    assert (first["progress"][-1]["done"], "progress" in second) == (len(data), False)
    path.write_bytes(data[:-1] + b"x")
    assert ask()["file"][0]["digest"] != digest


def test_again_reads_what_is_remembered(ask, tmp_path):
    shard(tmp_path / "model" / "a.safetensors", {"w": 100})
    ask()
    assert "progress" in ask(again=True)


def test_without_contents_nothing_is_read_and_nothing_claimed(ask, tmp_path):
    data = shard(tmp_path / "model" / "a.safetensors", {"w": 100})
    told = ask(hash=False)
    assert told["file"] == [
        {"name": "a.safetensors", "size": len(data), "part": 0, "first": data[:64].hex(), "expected": len(data)}
    ]
    assert "progress" not in told


def test_small_files_have_the_digest_that_git_gives_them(ask, tmp_path):
    (tmp_path / "model" / "config.json").write_bytes(b"{}\n")
    want = "sha1:" + hashlib.sha1(b"blob 3\0{}\n").hexdigest()
    assert ask(files={"config.json": "sha1"})["file"][0]["digest"] == want


def test_index_and_headers_are_compared_both_ways(ask, tmp_path):
    shard(tmp_path / "model" / "a.safetensors", {"one": 8, "extra": 8, "__pad__0": 8})
    weight_map = {"one": "a.safetensors", "two": "a.safetensors", "three": "b.safetensors"}
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    told = ask()
    assert told["index"] == [
        {
            "missing": ["two, not in a.safetensors"],
            "missing_count": 1,
            "surplus": ["extra in a.safetensors"],
            "surplus_count": 1,
            "elsewhere": [],
        }
    ]
    assert {one["name"]: one["size"] for one in told["file"]}["b.safetensors"] is None


def test_links_are_followed_and_a_dangling_one_is_named(ask, tmp_path):
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    shard(blobs / "5f3e", {"w": 8})
    (tmp_path / "model" / "a.safetensors").symlink_to("../blobs/5f3e")
    (tmp_path / "model" / "b.safetensors").symlink_to("../blobs/gone")
    told = {one["name"]: one for one in ask()["file"]}
    assert [(one["size"] is None, one["link"], one["dangling"]) for one in told.values()] == [
        (False, str(blobs / "5f3e"), False),
        (True, str(blobs / "gone"), True),
    ]


def test_an_unfinished_download_of_either_client_is_seen(ask, tmp_path):
    """HF-01: the client exits with 0, and the file is not there."""
    ours = tmp_path / "model" / ".sparkctl" / "parts"
    theirs = tmp_path / "model" / ".cache" / "huggingface" / "download"
    for folder in (ours, theirs):
        folder.mkdir(parents=True)
    (ours / "a.safetensors.part").write_bytes(bytes(10))
    (theirs / "b.safetensors.5f3e.incomplete").write_bytes(bytes(20))
    told = ask(files={"a.safetensors": "sha256", "b.safetensors": "sha256"})
    assert [(one["name"], one["size"], one["part"]) for one in told["file"]] == [
        ("a.safetensors", None, 10),
        ("b.safetensors", None, 20),
    ]


def test_a_damaged_memory_is_as_good_as_none(ask, tmp_path):
    shard(tmp_path / "model" / "a.safetensors", {"w": 8})
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "verdicts.json").write_text("[1, 2")
    assert "digest" in ask()["file"][0]


def test_a_folder_that_is_not_there_has_room_above_it(ask, tmp_path):
    told = ask(folder=str(tmp_path / "deep" / "down"), files={"a": "sha256"})
    assert (told["room"][0]["present"], told["room"][0]["writable"], told["room"][0]["free"] > 0) == (False, True, True)
    assert told["file"] == [{"name": "a", "size": None, "part": 0}]
