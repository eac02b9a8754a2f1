"""sparkctl as a real process in a lab node: run it, read its events as they come, signal it, and time it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Self

from tests.lab.specification import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.lab.node import Node, Running

Event = dict[str, Any]
# Whoever was started in the background ignores SIGINT, and so would all that it starts.
INTERRUPTIBLE = ("env", "--default-signal=INT")
WORK = PurePosixPath("/root/work")
RESULTS = ("served", "stopped", "status", "smoke", "plan", "config", "failed")


@dataclass(frozen=True, slots=True)
class Said:
    """What one sparkctl said and how it ended."""

    words: tuple[str, ...]
    code: int
    seconds: float
    events: tuple[Event, ...]
    err: str

    @property
    def result(self) -> Event:
        """The last object that a verb promises."""
        found = [event for event in self.events if event["event"] in RESULTS]
        assert found, f"sparkctl {' '.join(self.words)} exited {self.code} without a result\n{self.err}"
        return found[-1]

    @property
    def failed(self) -> Event:
        assert self.result["event"] == "failed", self.result
        return self.result

    @property
    def sentence(self) -> str:
        """What a person reads first: the error and where, or the state and its first reason."""
        match self.result:
            case {"event": "failed", "error": "Refused", "evidence": [seen, *_]}:
                return str(seen)
            case {"event": "failed", "what": what, "where": where}:
                return f"{what} ({where})" if where else str(what)
            case {"event": "status", "state": state, "reasons": reasons}:
                return f"{state}: {reasons[0]}" if reasons else str(state)
            case other:
                return str(other["event"])

    def of(self, kind: str) -> tuple[Event, ...]:
        return tuple(event for event in self.events if event["event"] == kind)


class Begun:
    """A sparkctl that runs: its events so far, each with the moment it came."""

    def __init__(self, words: tuple[str, ...], running: Running) -> None:
        self.words = words
        self.running = running
        self.began = time.monotonic()
        self.heard: list[tuple[float, Event]] = []
        self._news = threading.Condition()
        self._err: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_events, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def wait_for(self, is_it: Callable[[Event], bool], what: str, seconds: float = 60.0, after: float = 0.0) -> float:
        """The moment at which such an event came (later than `after`)."""
        end = time.monotonic() + seconds
        with self._news:
            while True:
                for at, event in self.heard:
                    if at > after and is_it(event):
                        return at
                left = end - time.monotonic()
                assert left > 0, f"not within {seconds:.0f} s: {what}; heard {[event for _, event in self.heard][-4:]}"
                assert self.running.poll() is None or any(one.is_alive() for one in self._readers), (
                    f"ended before {what}: {[event for _, event in self.heard][-4:]} {''.join(self._err)}"
                )
                self._news.wait(min(left, 0.2))

    def wait_for_stage(self, stage: str, seconds: float = 60.0) -> float:
        return self.wait_for(
            lambda event: event["event"] == "stage-started" and event["stage"] == stage, f"stage {stage}", seconds
        )

    def signal(self, number: int) -> None:
        self.running.signal(number)

    def end(self, timeout: float = 60.0) -> Said:
        """Wait for its own end; one that does not come in time has hung, and no fault may do that to it."""
        try:
            code = self.running.wait(timeout)
        except subprocess.TimeoutExpired:
            self.running.end()
            raise AssertionError(f"sparkctl {' '.join(self.words)} hung: {self.heard[-4:]}") from None
        seconds = time.monotonic() - self.began
        for reader in self._readers:
            reader.join(10)
        self.running.end()
        return Said(self.words, code, seconds, tuple(event for _, event in self.heard), "".join(self._err))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.running.end()

    def _read_events(self) -> None:
        for line in self.running.entry.stdout or ():
            event = json.loads(line)
            with self._news:
                self.heard.append((time.monotonic(), event))
                self._news.notify_all()

    def _read_errors(self) -> None:
        for line in self.running.entry.stderr or ():
            self._err.append(line)


@dataclass(slots=True)
class Cli:
    """`python -m cluster`, run on one machine of the lab, in a folder of its own with a `.env`."""

    node: Node
    settings: Mapping[str, str]
    folder: PurePosixPath = WORK
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        place = self.node.path(self.folder)
        place.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{name}={value}\n" for name, value in self.settings.items())
        (place / ".env").write_text(text)

    def begin(self, *words: str, as_json: bool = True) -> Begun:
        argv = (*INTERRUPTIBLE, sys.executable, "-m", "cluster", *words, *(("--json",) if as_json else ()))
        pipe = subprocess.PIPE
        env = {"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1", **self.environment}
        running = self.node.popen(argv, env=env, cwd=str(self.folder), stdout=pipe, stderr=pipe)
        return Begun(words, running)

    def __call__(self, *words: str, timeout: float = 240.0) -> Said:
        with self.begin(*words) as begun:
            return begun.end(timeout)

    def text(self, *words: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """As a person sees it, through a pipe."""
        argv = (sys.executable, "-m", "cluster", *words)
        env = {"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1", **self.environment}
        return self.node.run(argv, env=env, cwd=str(self.folder), timeout=timeout)


ASKING = """
import json, sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), {"Content-Type": "application/json"})
try:
    print(urllib.request.urlopen(request, timeout=float(sys.argv[3])).read().decode())
except urllib.error.HTTPError as error:
    print(json.dumps({"status": error.code}))
except OSError as error:
    print(json.dumps({"trouble": str(error)}))
"""


def asking(url: str, body: Mapping[str, Any], limit: float) -> tuple[str, ...]:
    """The command with which a machine of the lab asks the API; it prints the answer, or the status, as JSON."""
    return ("python3", "-S", "-c", ASKING, url, json.dumps(body), str(limit))


def chat(node: Node, base: str, question: str, limit: float = 60.0) -> Any:
    """The whole answer of the chat API to one question, asked from this node, greedily."""
    body = {"model": "demo", "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 16}
    return json.loads(node.run(asking(f"{base}/v1/chat/completions", body, limit), check=True).stdout)


def long_request(node: Node, base: str, limit: float = 120.0) -> Running:
    """A request that makes tokens for as long as the context lasts."""
    body = {"model": "demo", "prompt": "1", "max_tokens": 1000, "ignore_eos": True, "temperature": 0}
    return node.popen(asking(f"{base}/v1/completions", body, limit), stdout=subprocess.PIPE)
