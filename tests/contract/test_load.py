"""The program that asks a served API many questions, against a server that streams in every way there is."""

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Barrier, Thread
from typing import Any

import pytest

from cluster.app.agents import source

pytestmark = pytest.mark.contract

USAGE = {"prompt_tokens": 9, "completion_tokens": 6}
AT_ONCE = 3


class Api(BaseHTTPRequestHandler):
    """The question says how to answer."""

    server: "Server"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        how = body["messages"][0]["content"]
        self.server.seen.append(body)
        if how == "meet":
            self.server.barrier.wait(20)
        self.send_response(503 if how == "refuse" else 200)
        self.end_headers()
        if how == "refuse":
            self.wfile.write(b"not ready")
            return
        self.say({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        pieces = [] if how == "nothing" else ["ab", "cd", "ef"] if how == "several" else ["a", "b", "c", "d", "e", "f"]
        for number, text in enumerate(pieces):
            if how == "break" and number == 2:
                self.say({"error": {"message": "the engine failed"}})
                return
            kind = "reasoning_content" if how == "think" and number == 0 else "content"
            self.say({"choices": [{"delta": {kind: text}}]})
        self.say({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        if how != "uncounted":
            self.say({"choices": [], "usage": USAGE})
        self.wfile.write(b"data: [DONE]\n\n")

    def say(self, chunk: Any) -> None:
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def log_message(self, *words) -> None:
        pass


class Server(ThreadingHTTPServer):
    seen: list[dict[str, Any]]
    barrier: Barrier


@pytest.fixture
def api() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Api) as server:
        server.seen, server.barrier = [], Barrier(AT_ONCE)
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def load(api: Server, how: str, requests: int = 1, at_once: int = 1) -> list[dict[str, Any]]:
    want = {
        "url": f"http://127.0.0.1:{api.server_port}/v1/chat/completions",
        "model": "m",
        "questions": [how],
        "requests": requests,
        "at_once": at_once,
        "max_tokens": 6,
        "limit": 30,
        "key_file": "",
    }
    argv = (sys.executable, "-IS", "-", json.dumps(want))
    done = subprocess.run(argv, input=source("load"), capture_output=True, check=True, timeout=60)
    samples: list[dict[str, Any]] = json.loads(done.stdout)["samples"]
    return samples


@pytest.mark.parametrize(
    ("how", "pieces", "told"),
    [
        ("plain", 6, (9, 6, "")),
        ("uncounted", 6, (None, None, "")),
        ("several", 3, (9, 6, "")),
        ("think", 6, (9, 6, "")),
        ("break", 2, (None, None, "{'message': 'the engine failed'}")),
        ("refuse", 0, (None, None, "HTTP 503: not ready")),
        ("nothing", 0, (9, 6, "an answer without text")),
    ],
)
def test_each_kind_of_stream_is_told_as_it_is(api, how, pieces, told):
    (sample,) = load(api, how)
    assert (sample["prompt_tokens"], sample["new_tokens"], sample["error"]) == told
    assert (sample["pieces"], len(sample["gaps"])) == (pieces, max(0, pieces - 1))
    assert (sample["first"] is not None) == (pieces > 0)
    assert 0 <= sample["began"] <= sample["ended"]


def test_questions_are_asked_at_once_after_one_each_that_does_not_count(api):
    samples = load(api, "meet", requests=2 * AT_ONCE, at_once=AT_ONCE)
    assert [one["error"] for one in samples] == [""] * 2 * AT_ONCE
    assert len(api.seen) == 3 * AT_ONCE
    assert all(one["stream_options"] == {"include_usage": True} and one["temperature"] == 0 for one in api.seen)


def test_a_server_that_is_not_there_is_told(api):
    api.shutdown()
    api.server_close()
    (sample,) = load(api, "plain")
    assert "refused" in sample["error"].lower()
