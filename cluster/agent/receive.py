"""Take an image's layers in on a worker: stage each by its digest, verify it, load it, tell how far it is.

Runs at the far end of an ssh from the head. Input: one line of JSON that says what will come; then for each layer a
line {"blob", "from", "size"} and that many bytes. Output: lines of JSON; the first says what is staged here already.
What was cut off stays: a part file per layer, and on a graph-driver store every layer that was loaded, held by an
image without a name.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import io
import json
import os
import queue
import signal
import subprocess
import sys
import tarfile
import threading
import time
from typing import Any, BinaryIO, Dict, Iterable, Iterator, List, Optional

PARTIAL_LABEL = "sparkctl.partial"
PIECE = 1 << 20
HOLDER_ENDS = 10.0

Json = Dict[str, Any]


class Trouble(Exception):
    """What is told to the head; `kind` is one word for a program."""

    def __init__(self, kind: str, *words: str) -> None:
        super().__init__(kind)
        self.kind, self.words = kind, list(words)


def tell(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


# ---- the staging folder ---------------------------------------------------------------------------------------------


class Staging:
    """Blobs by digest: `HEX` is whole and verified, `HEX.part` is the beginning of one."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.expanduser(folder)
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        self.lock = open(os.path.join(self.folder, "lock"), "a+")  # noqa: SIM115  # held until we end
        self._take()

    def _take(self) -> None:
        """From one whose head was cut off, and who has not noticed yet, we take over."""
        end = time.monotonic() + HOLDER_ENDS
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                self._end_holder()
                if time.monotonic() > end:
                    raise Trouble("busy", "another receiver holds %s" % self.folder) from None
                time.sleep(0.1)
        self.lock.seek(0)
        self.lock.truncate()
        self.lock.write("%d\n" % os.getpid())
        self.lock.flush()

    def _end_holder(self) -> None:
        self.lock.seek(0)
        said = self.lock.read().strip()
        with contextlib.suppress(OSError, ValueError):
            with open("/proc/%d/cmdline" % int(said), "rb") as file:
                is_ours = b"sparkctl" in file.read()
            if is_ours:
                os.kill(int(said), signal.SIGTERM)

    def path(self, digest: str) -> str:
        return os.path.join(self.folder, digest.partition(":")[2])

    def have(self, digest: str) -> int:
        for path in (self.path(digest), self.path(digest) + ".part"):
            with contextlib.suppress(OSError):
                return os.path.getsize(path)
        return 0

    def is_whole(self, digest: str) -> bool:
        return os.path.exists(self.path(digest))

    def append(self, digest: str, offset: int, pieces: Iterable[bytes]) -> None:
        """Every byte is in the file as soon as it came; the name changes only when the digest is right."""
        part = self.path(digest) + ".part"
        seen = hashlib.sha256()
        with open(part, "ab", buffering=0) as file:
            if file.tell() != offset:
                file.truncate(offset)
            with open(part, "rb") as before:
                for data in iter(lambda: before.read(PIECE), b""):
                    seen.update(data)
            for data in pieces:
                seen.update(data)
                file.write(data)
        if "sha256:" + seen.hexdigest() != digest:
            os.unlink(part)
            raise Trouble("digest", "%s arrived as sha256:%s" % (digest, seen.hexdigest()))
        os.rename(part, self.path(digest))

    def drop(self, digest: str) -> None:
        for path in (self.path(digest), self.path(digest) + ".part"):
            with contextlib.suppress(OSError):
                os.unlink(path)


# ---- archives that `docker load` takes ------------------------------------------------------------------------------


class Load:
    """One `docker load`, fed an archive while it runs."""

    def __init__(self, engine: str, platform: List[str]) -> None:
        self.process = subprocess.Popen(
            ["docker", "-H", engine, "load", *platform],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.said: List[bytes] = []
        self.reader = threading.Thread(target=self._listen, daemon=True)
        self.reader.start()
        assert self.process.stdin is not None
        self.into: BinaryIO = self.process.stdin  # type: ignore[assignment]

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)

    def add(self, name: str, size: int, pieces: Iterable[bytes]) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, 0o644
        try:
            self.into.write(member.tobuf(tarfile.GNU_FORMAT))
            for data in pieces:
                self.into.write(data)
            self.into.write(b"\0" * (-size % 512))
        except BrokenPipeError:
            self.end()

    def add_bytes(self, name: str, data: bytes) -> None:
        self.add(name, len(data), [data])

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.into.write(b"\0" * 1024)
            self.into.close()
        code = self.process.wait()
        self.reader.join()
        if code:
            words = b"".join(self.said).decode("utf-8", "replace").splitlines()
            raise Trouble("load", *words[-5:])


def blob_name(digest: str) -> str:
    return "blobs/sha256/" + digest.partition(":")[2]


def descriptions(want: Json, config: bytes, count: int, tags: List[str]) -> Iterator[tuple]:  # type: ignore[type-arg]
    """The small files of an archive of the first `count` layers, for either store: (name, bytes)."""
    digests = {one["diff"]: one for one in want["described"]}
    layers = [digests.get(diff, {"digest": diff, "media": want["media"], "size": 0}) for diff in want["diffs"][:count]]
    name = "sha256:" + hashlib.sha256(config).hexdigest()
    yield blob_name(name), config
    legacy = [{"Config": blob_name(name), "RepoTags": tags, "Layers": [blob_name(one["digest"]) for one in layers]}]
    if want["containerd"]:
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": _described("application/vnd.oci.image.config.v1+json", name, len(config)),
                "layers": [_described(one["media"], one["digest"], one["size"]) for one in layers],
            }
        ).encode()
        digest = "sha256:" + hashlib.sha256(manifest).hexdigest()
        entry = _described("application/vnd.oci.image.manifest.v1+json", digest, len(manifest))
        if tags:
            entry["annotations"] = {"io.containerd.image.name": full_name(tags[0])}
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
        yield blob_name(digest), manifest
        yield "index.json", json.dumps(index).encode()
        yield "oci-layout", b'{"imageLayoutVersion": "1.0.0"}'
    yield "manifest.json", json.dumps(legacy).encode()


def _described(media: str, digest: str, size: int) -> Json:
    return {"mediaType": media, "digest": digest, "size": size}


def full_name(tag: str) -> str:
    """`demo:1` is `docker.io/library/demo:1` to containerd."""
    first, slash, _ = tag.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return tag
    return "docker.io/" + (tag if slash else "library/" + tag)


def shortened(config: bytes, count: int) -> bytes:
    """The configuration of an image that ends after `count` layers, so that an engine keeps what it has."""
    whole = json.loads(config)
    steps = [one for one in whole.get("history") or [] if not one.get("empty_layer")]
    short = {"architecture": whole["architecture"], "os": whole["os"], "config": {"Labels": {PARTIAL_LABEL: "1"}}}
    short["history"] = steps[:count] if len(steps) >= count else [{"created_by": "sparkctl"}] * count
    short["rootfs"] = {"type": "layers", "diff_ids": whole["rootfs"]["diff_ids"][:count]}
    return json.dumps(short).encode()


# ---- loading --------------------------------------------------------------------------------------------------------


class Loader(threading.Thread):
    """Loads each staged layer as soon as it and all below it are there, while the next one is on its way."""

    def __init__(self, want: Json, staging: Staging) -> None:
        super().__init__(daemon=True)
        self.want, self.staging = want, staging
        self.config = base64.b64decode(want["config"])
        self.ready: queue.Queue[Optional[Json]] = queue.Queue()
        self.trouble: Optional[BaseException] = None
        self.made: List[str] = []

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:  # a thread root: handed to the main thread
            self.trouble = error

    def _run(self) -> None:
        taken = []
        for number in range(len(self.want["layers"])):
            layer = self.ready.get()
            if layer is None:
                return
            taken.append(layer)
            is_last = number + 1 == len(self.want["layers"])
            if is_last or not self.want["containerd"]:
                self._load(taken, len(self.want["diffs"]) if is_last else layer["number"] + 1, is_last)
                taken = []
        if not self.want["layers"]:
            self._load([], len(self.want["diffs"]), True)
        for image in self.made:
            subprocess.run(
                ["docker", "-H", self.want["engine"], "rmi", image],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def _load(self, layers: List[Json], count: int, is_last: bool) -> None:
        config = self.config if is_last else shortened(self.config, count)
        load = Load(self.want["engine"], self.want["platform"])
        for layer in layers:
            load.add(blob_name(layer["digest"]), layer["size"], pieces_of(self.staging.path(layer["digest"])))
        for name, data in descriptions(self.want, config, count, self.want["tags"] if is_last else []):
            load.add_bytes(name, data)
        load.end()
        if not is_last:
            self.made.append("sha256:" + hashlib.sha256(config).hexdigest())
        for layer in layers:
            tell(loaded=layer["digest"])
            if not self.want["keep"]:
                self.staging.drop(layer["digest"])


def pieces_of(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        yield from iter(lambda: file.read(PIECE), b"")


def take_bytes(source: BinaryIO, size: int, count: List[int]) -> Iterator[bytes]:
    while size:
        data = source.read1(min(size, PIECE))  # type: ignore[attr-defined]
        if not data:
            raise Trouble("cut", "the head ended in the middle of a layer")
        size -= len(data)
        count[0] += len(data)
        yield data


def take_line(source: BinaryIO) -> Json:
    line = source.readline()
    if not line:
        raise Trouble("cut", "the head ended before all was sent")
    found: Json = json.loads(line)
    return found


def receive_staged(want: Json, source: BinaryIO, count: List[int]) -> None:
    staging = Staging(want["staging"])
    needed = {one["digest"] for one in want["layers"]}
    for done in set() if want["keep"] else set(want["diffs"]) - needed:
        staging.drop(done)  # loaded by a run that ended before it could say so
    tell(staged={digest: staging.have(digest) for digest in needed})
    loader = Loader(want, staging)
    loader.start()
    try:
        for layer in want["layers"]:
            if not staging.is_whole(layer["digest"]):
                head = take_line(source)
                staging.append(head["blob"], head["from"], take_bytes(source, head["size"], count))
            if loader.trouble:
                break
            loader.ready.put(layer)
    finally:
        loader.ready.put(None)
        loader.join()
    if loader.trouble:
        raise loader.trouble


def receive_stream(want: Json, source: BinaryIO, count: List[int]) -> None:
    """Nothing is staged: one archive of all that is missing, straight into the engine."""
    tell(staged={})
    load = Load(want["engine"], want["platform"])
    config = base64.b64decode(want["config"])
    for _ in want["layers"]:
        head = take_line(source)
        load.add(blob_name(head["blob"]), head["size"], take_bytes(source, head["size"], count))
    for name, data in descriptions(want, config, len(want["diffs"]), want["tags"]):
        load.add_bytes(name, data)
    load.end()


def count_aloud(count: List[int], done: threading.Event) -> None:
    told = -1
    while not done.wait(0.5):
        if count[0] != told:
            told = count[0]
            tell(got=told)


def receive(source: BinaryIO) -> None:
    want = take_line(source)
    count, done = [0], threading.Event()
    teller = threading.Thread(target=count_aloud, args=(count, done), daemon=True)
    teller.start()
    try:
        (receive_staged if want["stage"] else receive_stream)(want, source, count)
    finally:
        done.set()
        teller.join()
    tell(got=count[0], done=True)


if __name__ == "__main__":
    try:
        receive(io.BufferedReader(io.FileIO(0), PIECE))
    except Trouble as trouble:
        tell(error=trouble.kind, words=trouble.words)
        sys.exit(1)
    except OSError as error:
        tell(error="no_space" if error.errno == 28 else "os", words=[str(error)])
        sys.exit(1)
