"""The program that asks the API, as a node runs it, against a server that counts words and can look up a phrase."""

import json
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest

from cluster.app.agents import source

OVERHEAD = 7  # tokens of a chat template


def tokens_of(body) -> int:
    return OVERHEAD + len(re.findall(r"\S+", body["messages"][0]["content"]))


class Api(BaseHTTPRequestHandler):
    """Words are tokens. The answer is the phrase of the prompt; with thinking on, a thought comes first."""

    seen: ClassVar[list[dict[str, Any]]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        if self.path == "/tokenize":
            self.wfile.write(json.dumps({"count": tokens_of(body)}).encode())
            return
        self.seen.append(body)
        phrase = re.search(r"passphrase is (\S+)\.", body["messages"][0]["content"])
        thought = [{"reasoning_content": "hm "}] if body["chat_template_kwargs"]["thinking"] else []
        for delta in (*thought, {"content": phrase[1] if phrase else "323"}):
            self.say({"choices": [{"delta": delta}]})
        self.say({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": tokens_of(body)}})
        self.wfile.write(b"data: [DONE]\n\n")

    def say(self, chunk) -> None:
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def log_message(self, *words) -> None:
        pass


@pytest.fixture
def api():
    class Mine(Api):
        seen: ClassVar = []

    with ThreadingHTTPServer(("127.0.0.1", 0), Mine) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def ask(api, **more):
    want = {
        "url": f"http://127.0.0.1:{api.server_port}/v1/chat/completions",
        "model": "m",
        "prompt": "17*19",
        "max_tokens": 32,
        "limit": 10,
        "key_file": "",
        "extra": {"chat_template_kwargs": {"thinking": False}},
    } | more
    argv = (sys.executable, "-IS", "-", json.dumps(want))
    return json.loads(subprocess.run(argv, input=source("chat"), capture_output=True, check=True, timeout=60).stdout)


@pytest.mark.parametrize("tokens", [64, 65, 1000, 4096])
@pytest.mark.parametrize("depth", [0, 50, 100])
def test_the_needle_lies_in_a_prompt_of_exactly_that_length(api, tokens, depth):
    answer = ask(api, needle={"tokens": tokens, "depth": depth, "seed": "5eed", "phrase": "XQ-77-BLUE"})
    (body,) = api.RequestHandlerClass.seen
    assert (answer["text"], answer["tokens"], answer["usage"]["prompt_tokens"]) == ("XQ-77-BLUE", tokens, tokens)
    words = body["messages"][0]["content"].split()
    assert words[0] == "5eed"
    filler = tokens - OVERHEAD - 1 - 4 - 13
    assert abs(words.index("passphrase") - 2 - filler * depth / 100) <= 1


def test_another_seed_makes_another_prompt(api):
    for seed in ("a", "b"):
        ask(api, needle={"tokens": 200, "depth": 50, "seed": seed, "phrase": "X"})
    first, second = (one["messages"][0]["content"].split()[1:] for one in api.RequestHandlerClass.seen)
    assert first != second


def test_too_short_a_prompt_is_told(api):
    answer = ask(api, needle={"tokens": 10, "depth": 50, "seed": "a", "phrase": "X"})
    assert answer["error"] == "10 tokens are too few for the question itself"


@pytest.mark.parametrize(("thinks", "thought"), [(False, ""), (True, "hm ")])
def test_thoughts_are_kept_apart(api, thinks, thought):
    answer = ask(api, extra={"chat_template_kwargs": {"thinking": thinks}})
    assert (answer["text"], answer["reasoning"], answer["finish"]) == ("323", thought, "stop")
