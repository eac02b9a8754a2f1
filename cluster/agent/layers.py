"""Read an image's layers straight out of its engine's own store, read-only, whichever of the two stores it has."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
from typing import Any, Dict, Iterator, List, Optional

PIECE = 1 << 20
TAR = "application/vnd.oci.image.layer.v1.tar"
CONTENT = "io.containerd.content.v1.content/blobs/sha256"


class NotReadable(Exception):
    """The store is not there, not ours to read, or not as we know it."""


def chain_of(diffs: List[str]) -> str:
    """What a graph-driver store calls the layer at the end of these."""
    chain = diffs[0]
    for diff in diffs[1:]:
        chain = "sha256:" + hashlib.sha256(("%s %s" % (chain, diff)).encode()).hexdigest()
    return chain


class GraphStore:
    """overlay2 and its like: files as they are unpacked, and beside them how they were arranged in the archive."""

    def __init__(self, root: str, driver: str, identity: str) -> None:
        self.root, self.driver = root, driver
        with open(self._under("imagedb/content/sha256", identity.partition(":")[2]), "rb") as file:
            self.config = file.read()
        self.diffs: List[str] = json.loads(self.config)["rootfs"]["diff_ids"]

    def _under(self, *parts: str) -> str:
        return os.path.join(self.root, "image", self.driver, *parts)

    def layers(self, first: int) -> List[Dict[str, Any]]:
        """From `first` on; their sizes are those of the archive, not of the files."""
        return [
            {"number": number, "digest": diff, "diff": diff, "media": TAR, "size": self._size(number)}
            for number, diff in enumerate(self.diffs)
            if number >= first
        ]

    def _folder(self, number: int) -> str:
        chain = chain_of(self.diffs[: number + 1])
        return self._under("layerdb/sha256", chain.partition(":")[2])

    def _entries(self, number: int) -> Iterator[Dict[str, Any]]:
        with gzip.open(os.path.join(self._folder(number), "tar-split.json.gz"), "rb") as file:
            for line in file:
                yield json.loads(line)

    def _size(self, number: int) -> int:
        return sum(_length(entry) for entry in self._entries(number))

    def read(self, number: int, offset: int) -> Iterator[bytes]:
        """The archive of one layer from a byte on, exactly as it was when the layer was made."""
        with open(os.path.join(self._folder(number), "cache-id")) as file:
            files = os.path.join(self.root, self.driver, file.read().strip(), "diff")
        for entry in self._entries(number):
            length = _length(entry)
            if offset >= length:
                offset -= length
                continue
            if entry["type"] == 2:
                yield base64.b64decode(entry["payload"])[offset:]
            else:
                yield from _file(os.path.join(files, _name(entry)), offset, length)
            offset = 0


def _name(entry: Dict[str, Any]) -> str:
    raw = entry.get("name_raw")
    name = os.fsdecode(base64.b64decode(raw)) if raw else entry["name"]
    return os.path.normpath("/" + name).lstrip("/")


def _length(entry: Dict[str, Any]) -> int:
    if entry["type"] == 2:
        return len(base64.b64decode(entry["payload"]))
    return int(entry.get("size") or 0)


def _file(path: str, offset: int, length: int) -> Iterator[bytes]:
    left = length - offset
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        while left:
            data = file.read(min(left, PIECE))
            if not data:
                raise NotReadable("%s is shorter than its layer says" % path)
            left -= len(data)
            yield data


class ContentStore:
    """containerd's: blobs as they were pulled, named by their digest."""

    def __init__(self, root: str, identity: str, architecture: str) -> None:
        self.folder = root
        manifest = self._json(identity)
        if "manifests" in manifest:
            fitting = [
                one
                for one in manifest["manifests"]
                if (one.get("platform") or {}).get("architecture", architecture) == architecture
            ]
            if not fitting:
                raise NotReadable("the index names no manifest for %s" % architecture)
            manifest = self._json(fitting[0]["digest"])
        self.config = self._blob(manifest["config"]["digest"])
        self.diffs: List[str] = json.loads(self.config)["rootfs"]["diff_ids"]
        self.blobs = manifest["layers"]

    def _path(self, digest: str) -> str:
        return os.path.join(self.folder, digest.partition(":")[2])

    def _blob(self, digest: str) -> bytes:
        with open(self._path(digest), "rb") as file:
            return file.read()

    def _json(self, digest: str) -> Dict[str, Any]:
        found: Dict[str, Any] = json.loads(self._blob(digest))
        return found

    def layers(self, first: int) -> List[Dict[str, Any]]:
        for blob in self.blobs[first:]:
            if not os.path.exists(self._path(blob["digest"])):
                raise NotReadable("blob %s was not kept" % blob["digest"])
        return [
            {"number": number, "digest": blob["digest"], "diff": diff, "media": blob["mediaType"], "size": blob["size"]}
            for number, (blob, diff) in list(enumerate(zip(self.blobs, self.diffs, strict=False)))[first:]
        ]

    def read(self, number: int, offset: int) -> Iterator[bytes]:
        blob = self.blobs[number]
        return _file(self._path(blob["digest"]), offset, blob["size"])


def content_folder(roots: List[str], digest: str) -> Optional[str]:
    """Where containerd keeps that blob: in one of its roots."""
    for root in roots:
        folder = os.path.join(root, CONTENT)
        if os.path.exists(os.path.join(folder, digest.partition(":")[2])):
            return folder
    return None


def open_store(wanted: Dict[str, Any]) -> Any:
    """`wanted`: roots, driver, containerd, id, architecture. Raises NotReadable."""
    try:
        if not wanted["containerd"]:
            return GraphStore(wanted["roots"][0], wanted["driver"], wanted["id"])
        folder = content_folder(wanted["roots"], wanted["id"])
        if folder is None:
            raise NotReadable("no blob %s under %s" % (wanted["id"], " or ".join(wanted["roots"])))
        return ContentStore(folder, wanted["id"], wanted["architecture"])
    except (OSError, KeyError, ValueError) as error:
        raise NotReadable(str(error)) from error


def describe(store: Any, first: int) -> Dict[str, Any]:
    """The image's configuration, byte for byte, and its layers from `first` on."""
    try:
        layers = store.layers(first)
    except (OSError, KeyError, ValueError) as error:
        raise NotReadable(str(error)) from error
    return {"config": base64.b64encode(store.config).decode(), "diffs": store.diffs, "layers": layers}
