"""A hub of models: what a repository holds at a revision, and its files, each brought by a process of its own.

A process, because a transfer that hangs in foreign code can only be ended from outside. Its part of a file grows at the
end alone, in a file of ours: the library itself throws away what it had when it is interrupted.
"""

import json
import os
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from select import select
from threading import Event
from typing import Any

from cluster.errors import Interrupted, Refused, SettingsError, SparkctlError, StepFailed
from cluster.model.table import Secret
from cluster.weights.manifest import Entry, Manifest

LOOK = 0.5
TRIES = 6  # in a row without a byte
LONGEST_WAIT = 30.0
SLOWEST = 4096  # bytes a second that still count as moving
ANSWER = 120.0


@dataclass(frozen=True, slots=True)
class Transfer:
    """One file to bring: into `part` as it comes, to `target` when it is whole."""

    repo: str
    revision: str
    entry: Entry
    part: Path
    target: Path


@dataclass(frozen=True, slots=True)
class Watchful:
    """When a transfer counts as stalled, and whether it may begin over xet."""

    stall: float = 60.0
    xet: bool = False


class Hub:
    """A hub as one user sees it. Every call runs in a process of its own; `stop` ends them all."""

    def __init__(self, token: Secret | None, stop: Event) -> None:
        self._token = token
        self._stop = stop

    def listing(self, repo: str, revision: str) -> Manifest:
        """All files of a repository; a branch or tag is resolved to the commit it stands for now."""
        said = self._ask({"do": "list", "repo": repo, "revision": revision})
        files = tuple(
            Entry(one["name"], one["size"], one["sha256"], "" if one["sha256"] else one["sha1"])
            for one in said["files"]
        )
        return Manifest(repo, said["revision"], files)

    def read(self, repo: str, revision: str, name: str) -> bytes:
        """A small file, whole."""
        said = self._ask({"do": "read", "repo": repo, "revision": revision, "name": name})
        return b64decode(said["data"])

    def stubs(self, manifest: Manifest, names: Iterable[str], folder: Path) -> None:
        """Files like the repository's, with their headers and sizes, that take no room: the weights are holes."""
        sizes = [[name, entry.size] for name in names if (entry := manifest.entry(name)) is not None]
        want = {"do": "stubs", "repo": manifest.repo, "revision": manifest.revision}
        self._ask(want | {"files": sizes, "folder": str(folder)})

    def bring(
        self, one: Transfer, watchful: Watchful, moved: Callable[[int], None], told: Callable[[str], None]
    ) -> None:
        """Until the file is whole. `moved` gets how much of it is there; `told` what went wrong and is tried again."""
        one.part.parent.mkdir(parents=True, exist_ok=True)
        one.target.parent.mkdir(parents=True, exist_ok=True)
        _adopt(one)
        xet, tries = watchful.xet, 0
        while True:
            before = _length(one.part)
            problem = self._attempt(one, watchful, moved, xet=xet)
            if problem is None:
                moved(one.entry.size)
                return
            tries = 1 if _length(one.part) > before else tries + 1
            if tries >= TRIES:
                raise StepFailed(
                    f"{one.entry.name} does not come: {problem}",
                    where=one.repo,
                    evidence=[f"{_length(one.part)} of {one.entry.size} bytes are there"],
                    fix="sparkctl fetch again: it goes on with what is there",
                )
            how = " without xet" if xet else ""
            told(f"{one.entry.name}: {problem}; trying again{how}, {_length(one.part)} bytes are there")
            xet = False
            if self._stop.wait(min(0.5 * 2 ** (tries - 1), LONGEST_WAIT)):
                raise Interrupted("interrupted")

    def _attempt(self, one: Transfer, watchful: Watchful, moved: Callable[[int], None], *, xet: bool) -> str | None:
        want = {
            "do": "bring",
            "repo": one.repo,
            "revision": one.revision,
            "name": one.entry.name,
            "size": one.entry.size,
            "part": str(one.part),
            "target": str(one.target),
            "xet": xet,
        }
        aside = one.part.with_suffix(".xet")
        child = self._begin(want, xet=xet)
        at, since = -1, time.monotonic()
        try:
            while not _spoke(child):
                now = _weight(aside) if xet else _length(one.part)
                if now - at >= SLOWEST * (time.monotonic() - since) and now > at:
                    at, since = now, time.monotonic()
                    moved(now)
                if self._stop.is_set():
                    raise Interrupted("interrupted")
                if time.monotonic() - since > watchful.stall:
                    return f"nothing moved for {watchful.stall:g} s"
            said = _answer(child, one.repo)
            if said.get("again"):
                return str(said["again"])
            return None
        finally:
            _end(child)

    def _ask(self, want: dict[str, Any]) -> dict[str, Any]:
        child = self._begin(want, xet=False)
        deadline = time.monotonic() + ANSWER
        try:
            while not _spoke(child):
                if self._stop.is_set():
                    raise Interrupted("interrupted")
                if time.monotonic() > deadline:
                    raise StepFailed("the hub does not answer", where=want["repo"], fix="try again, or --offline")
            said = _answer(child, want["repo"])
        finally:
            _end(child)
        if "again" in said:
            raise StepFailed(
                f"the hub does not answer: {said['again']}", where=want["repo"], fix="try again, or --offline"
            )
        return said

    def _begin(self, want: dict[str, Any], *, xet: bool) -> "subprocess.Popen[bytes]":
        kept = {name: value for name, value in os.environ.items() if name not in ("HF_TOKEN", "HF_HUB_OFFLINE")}
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), kept.get("PYTHONPATH", ""))))
        kept |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_VERBOSITY": "error"}
        kept |= {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "HF_HUB_DISABLE_XET": "0" if xet else "1"}
        if self._token is not None:
            kept["HF_TOKEN"] = self._token.reveal()
        child = subprocess.Popen(
            [sys.executable, "-m", "cluster.hub_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=kept,
            start_new_session=True,  # Ctrl-C is for us, we end it
        )
        assert child.stdin is not None
        with suppress(BrokenPipeError):
            child.stdin.write(json.dumps(want).encode() + b"\n")
            child.stdin.flush()
        return child


def _spoke(child: "subprocess.Popen[bytes]") -> bool:
    """Whether it has answered or ended; waits a moment for it."""
    assert child.stdout is not None
    return bool(select([child.stdout.fileno()], [], [], LOOK)[0])


def _answer(child: "subprocess.Popen[bytes]", repo: str) -> dict[str, Any]:
    assert child.stdout is not None
    text = child.stdout.read()
    try:
        said: dict[str, Any] = json.loads(text)
    except ValueError:
        return {"again": f"the process that fetched ended with exit code {child.wait()}"}
    if "error" in said:
        raise _error(said, repo)
    return said


def _error(said: Mapping[str, Any], repo: str) -> SparkctlError:
    what = str(said["error"])
    match what:
        case "missing":
            return SettingsError(
                f"the hub has no {said['text']}, or does not show it to this user",
                where=repo,
                fix="look at HF_MODEL_REPO, HF_ENGRAM_REPO and their revisions; a private one needs HF_TOKEN",
            )
        case "gated":
            fix = "accept its terms on its page with your account, and set HF_TOKEN"
            return Refused("the repository is gated", where=repo, evidence=[said["text"]], fix=fix)
        case "library":
            return SettingsError(
                "huggingface_hub cannot be used", evidence=[said["text"]], fix="pip install huggingface_hub"
            )
        case _:
            return StepFailed("the hub refuses", where=repo, evidence=[said["text"]])


def _end(child: "subprocess.Popen[bytes]") -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    if child.poll() is None:
        child.kill()
    child.wait()


def _adopt(one: Transfer) -> None:
    """Go on with what an ended download of the publisher's own client has of it; its digest is in the name."""
    theirs = one.target.parent / ".cache" / "huggingface" / "download"
    if one.part.exists() or not one.entry.sha256:
        return
    for begun in theirs.glob(f"*{one.entry.sha256}*.incomplete"):
        begun.replace(one.part)
        return


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _weight(folder: Path) -> int:
    """What the files below really take: xet writes where it likes."""
    return sum(one.stat().st_blocks * 512 for one in folder.rglob("*") if one.is_file()) if folder.exists() else 0
