"""Send an image's layers from the head to a worker, straight from the engine's store. Runs on the head.

Arguments as one JSON object. {"do": "describe"} prints what would be sent; {"do": "send"} sends it through the command
`receiver` (an ssh to the worker, or the receiver itself); {"do": "full"} joins `docker save` to `receiver`. Output:
lines of JSON: how far it is, then {"done": ...} or {"error": word, "words": lines}.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Any, Dict, Iterable, Iterator, List

from cluster.agent.layers import PIECE, NotReadable, describe, open_store

Json = Dict[str, Any]
EVERY = 0.5
SSH_EXIT = 255


class Failed(Exception):
    def __init__(self, kind: str, *words: str) -> None:
        super().__init__(kind)
        self.kind, self.words = kind, [word for word in words if word]


def tell(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Here:
    """The store is ours to read."""

    how = "store"

    def __init__(self, wanted: Json) -> None:
        self.store = open_store(wanted)

    def describe(self, first: int) -> Json:
        return describe(self.store, first)

    def read(self, layer: int, offset: int) -> Iterator[bytes]:
        found: Iterator[bytes] = self.store.read(layer, offset)
        return found


class Boxed:
    """The store is root's: a helper made from the image itself reads it, without network and without a way to write.

    Which of the places where a store may lie is there, the engine says: it mounts none that is not.
    """

    how = "helper container"

    def __init__(self, wanted: Json) -> None:
        self.wanted, self.root = wanted, wanted["roots"][0]
        self.words = ["docker", "-H", wanted["engine"], "run", "--rm", "--interactive", "--network=none", "--read-only"]
        self.words += ["--cap-drop=ALL", "--cap-add=DAC_READ_SEARCH", "--user=0", "--label=sparkctl.helper=1"]

    def _start(self, **more: Any) -> subprocess.Popen[bytes]:
        words = [*self.words, "--mount", "type=bind,readonly,source=%s,target=%s" % (self.root, self.root)]
        words += ["--entrypoint=python3", self.wanted["id"], "-IS", "-"]
        words.append(json.dumps({**self.wanted, "roots": [self.root], "reader": "", **more}))
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(base64.b64decode(self.wanted["reader"]))
            process.stdin.close()
        return process

    def describe(self, first: int) -> Json:
        failed = []
        for root in self.wanted["roots"]:
            self.root = root
            try:
                return self._describe(first)
            except NotReadable as error:
                failed.append(str(error))
        raise NotReadable("; ".join(failed))

    def _describe(self, first: int) -> Json:
        process = self._start(do="describe", first=first)
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout.read(), process.stderr.read()
        if process.wait():
            raise NotReadable(last_line(err))
        found: Json = json.loads(out)
        return found

    def read(self, layer: int, offset: int) -> Iterator[bytes]:
        process = self._start(do="read", layer=layer, offset=offset)
        assert process.stdout is not None
        yield from iter(lambda: process.stdout.read(PIECE), b"")  # type: ignore[union-attr]
        if process.wait():
            raise NotReadable("the helper container ended with exit code %d" % process.returncode)


def last_line(text: bytes) -> str:
    lines = [line for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def reader_for(wanted: Json) -> Any:
    try:
        return Here(wanted)
    except NotReadable:
        if not wanted["reader"]:
            raise
        return Boxed(wanted)


def describe_image(wanted: Json) -> None:
    reader = reader_for(wanted)
    tell(how=reader.how, **reader.describe(wanted["first"]))


# ---- sending --------------------------------------------------------------------------------------------------------


class Receiver:
    """The other end: what it said, and how it ended."""

    def __init__(self, words: List[str]) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  # read after its end
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.into: IO[bytes] = self.process.stdin
        self.out: IO[bytes] = self.process.stdout
        self.last: Json = {}
        self.sent = self.got = 0

    def hear(self) -> Json:
        """Its next line; whatever is no JSON is what a login shell printed."""
        for line in self.out:
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict):
                    return found
        return {}

    def listen(self) -> None:
        while True:
            said = self.hear()
            if not said:
                return
            self.last = said
            self.got = said.get("got", self.got)

    def write(self, data: bytes) -> None:
        self.into.write(data)
        self.sent += len(data)

    def end(self) -> int:
        with contextlib.suppress(OSError):
            self.into.close()
        return self.process.wait()

    def failure(self, code: int) -> Failed:
        self.errors.seek(0)
        words = self.errors.read().decode("utf-8", "replace").splitlines()[-5:]
        if self.last.get("error"):
            return Failed(self.last["error"], *self.last["words"])
        return Failed("ssh" if code == SSH_EXIT else "receiver", *words, "" if words else "exit code %d" % code)


class Teller(threading.Thread):
    """How many bytes the other end has, every half second."""

    def __init__(self, receiver: Receiver, total: int, before: int) -> None:
        super().__init__(daemon=True)
        self.receiver, self.total, self.before, self.over = receiver, total, before, threading.Event()

    def run(self) -> None:
        began = time.monotonic()
        while not self.over.wait(EVERY):
            got = self.receiver.got or self.receiver.sent
            tell(at=self.before + got, total=self.total, seconds=time.monotonic() - began, sent=self.receiver.sent)


def send(wanted: Json) -> None:
    reader = reader_for(wanted)
    described = reader.describe(wanted["first"])
    receiver = Receiver(wanted["receiver"])
    want = {name: wanted[name] for name in ("stage", "staging", "keep", "tags", "platform")}
    want.update(described, engine=wanted["to"], containerd=wanted["to_containerd"], media=wanted["media"])
    layers = once(one for one in described["layers"] if one["digest"] not in wanted["skip"])
    want.update(described=described["layers"], layers=layers)
    try:
        receiver.write(json.dumps(want).encode() + b"\n")
        receiver.into.flush()
    except OSError as error:
        raise receiver.failure(receiver.end()) from error
    staged = receiver.hear()
    if "staged" not in staged:
        receiver.last = staged
        raise receiver.failure(receiver.end())
    pump(reader, receiver, layers, staged["staged"])


def once(layers: Iterable[Json]) -> List[Json]:
    """An image may have one layer twice; it is sent the first time."""
    return list({one["digest"]: one for one in reversed(list(layers))}.values())[::-1]


def pump(reader: Any, receiver: Receiver, layers: List[Json], staged: Dict[str, int]) -> None:
    before = sum(staged.get(one["digest"], 0) for one in layers)
    teller = Teller(receiver, sum(one["size"] for one in layers), before)
    listener = threading.Thread(target=receiver.listen, daemon=True)
    listener.start()
    teller.start()
    try:
        with contextlib.suppress(BrokenPipeError):
            for layer in layers:
                send_layer(reader, receiver, layer, staged.get(layer["digest"], 0))
    finally:
        code = receiver.end()
        listener.join()
        teller.over.set()
        teller.join()
    if code or not receiver.last.get("done"):
        raise receiver.failure(code)
    tell(done=True, sent=receiver.sent, how=reader.how, before=before)


def send_layer(reader: Any, receiver: Receiver, layer: Json, have: int) -> None:
    if have >= layer["size"]:
        return
    head = {"blob": layer["digest"], "from": have, "size": layer["size"] - have}
    receiver.write(json.dumps(head).encode() + b"\n")
    for data in reader.read(layer["number"], have):
        receiver.write(data)


def send_full(wanted: Json) -> None:
    """`docker save` joined to `docker load`: sends everything, and both must end well."""
    with tempfile.TemporaryFile() as errors:
        words = [
            "docker",
            "-H",
            wanted["engine"],
            "save",
            *wanted["save_platform"],
            *(wanted["tags"] or [wanted["id"]]),
        ]
        save = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors)
        receiver = Receiver(wanted["receiver"])
        teller = Teller(receiver, wanted["size"], 0)
        listener = threading.Thread(target=receiver.listen, daemon=True)
        listener.start()
        teller.start()
        assert save.stdout is not None
        out = save.stdout
        try:
            with contextlib.suppress(BrokenPipeError):
                for data in iter(lambda: os.read(out.fileno(), PIECE), b""):
                    receiver.write(data)
        finally:
            code = receiver.end()
            out.close()
            saved = save.wait()
            teller.over.set()
            teller.join()
        errors.seek(0)
        words = errors.read().decode("utf-8", "replace").splitlines()[-5:]
        if saved and words and "broken pipe" not in words[-1]:
            raise Failed("save", *words)  # what the other end says of half an archive is no reason
        if code or saved:
            raise receiver.failure(code)
        tell(done=True, sent=receiver.sent, how="full export", before=0)


ACTS = {"describe": describe_image, "send": send, "full": send_full}

if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    try:
        ACTS[wanted["do"]](wanted)
    except NotReadable as error:
        tell(error="store", words=[str(error)])
    except Failed as failed:
        tell(error=failed.kind, words=failed.words)
