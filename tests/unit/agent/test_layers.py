"""Layers out of containerd's store: of an index only the manifest of this architecture, and only what is there."""

import hashlib
import json
from pathlib import Path

import pytest

from cluster.agent.layers import CONTENT, NotReadable, chain_of, describe, open_store

LAYERS = (b"first layer", b"second layer")


class Store:
    """Blobs by their digest, as containerd keeps them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / CONTENT
        self.folder.mkdir(parents=True)

    def keep(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        (self.folder / name).write_bytes(data)
        return f"sha256:{name}"

    def manifest(self, *layers: bytes, missing: bool = False) -> str:
        digests = [f"sha256:{hashlib.sha256(one).hexdigest()}" if missing else self.keep(one) for one in layers]
        config = self.keep(json.dumps({"rootfs": {"diff_ids": digests}}).encode())
        rows = [
            {"digest": digest, "size": len(one), "mediaType": "tar"}
            for digest, one in zip(digests, layers, strict=True)
        ]
        return self.keep(json.dumps({"config": {"digest": config}, "layers": rows}).encode())

    def index(self, **manifests: str) -> str:
        rows = [
            {"digest": digest, "platform": {"os": "linux", "architecture": name}} for name, digest in manifests.items()
        ]
        return self.keep(json.dumps({"manifests": rows}).encode())

    def open(self, identity: str, architecture: str = "arm64"):
        return open_store({"containerd": True, "roots": [str(self.root)], "id": identity, "architecture": architecture})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_of_an_index_the_manifest_of_this_architecture_is_read_and_an_attestation_is_none(store):
    """IMG-02: blobs of the other platforms are named by the index, and are not there."""
    other = store.manifest(b"elsewhere", missing=True)
    found = store.open(store.index(unknown=other, amd64=other, arm64=store.manifest(*LAYERS)))
    described = describe(found, 0)
    assert [one["size"] for one in described["layers"]] == [len(one) for one in LAYERS]
    assert [b"".join(found.read(number, 3)) for number in (0, 1)] == [one[3:] for one in LAYERS]


def test_an_index_without_this_architecture_is_not_readable(store):
    with pytest.raises(NotReadable, match="no manifest for arm64"):
        store.open(store.index(amd64=store.manifest(*LAYERS)))


def test_a_layer_that_was_not_kept_is_said_before_anything_is_sent(store):
    found = store.open(store.manifest(*LAYERS, missing=True))
    with pytest.raises(NotReadable, match="was not kept"):
        describe(found, 0)


def test_only_layers_from_the_first_missing_one_on_are_described(store):
    described = describe(store.open(store.manifest(*LAYERS)), 1)
    assert [one["number"] for one in described["layers"]] == [1]
    assert len(described["diffs"]) == 2


def test_a_chain_names_a_layer_by_all_below_it():
    joined = hashlib.sha256(b"sha256:a sha256:b").hexdigest()
    assert (chain_of(["sha256:a"]), chain_of(["sha256:a", "sha256:b"])) == ("sha256:a", f"sha256:{joined}")
