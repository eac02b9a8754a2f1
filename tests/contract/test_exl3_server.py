"""Our server over ExLlamaV3, as a process of its own on a real port; its library is the fake that knows one answer."""

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.probe.vllm_metrics import Counters, read_counters
from tests.contract.bench import until
from tests.contract.sshd import free_port

pytestmark = pytest.mark.contract

REPOSITORY = Path(__file__).parents[2]
LIMIT = 30
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "17*19?"}], "temperature": 0}
NONSENSE = {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}
PROMPT = len("<｜begin▁of▁sentence｜><｜User｜>17*19?<｜Assistant｜></think>")  # the fake's tokens are letters


class Served:
    def __init__(self, folder: Path, words: tuple[str, ...], told: dict[str, str]) -> None:
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"reply": "323"} | told))
        self.port, self.log = free_port(), folder / "log"
        path = f"{REPOSITORY / 'exl3_server'}:{REPOSITORY / 'tests/fakes/exllama'}"
        argv = (sys.executable, "-m", "spark_exl3", "--model", str(folder), "--port", str(self.port), *words)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(argv, stderr=log, env={"PATH": os.environ["PATH"], "PYTHONPATH": path})

    def ask(self, path: str, body: object = None, key: str = "") -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        sent = body if isinstance(body, str) else json.dumps(body)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request("POST" if body is not None else "GET", path, sent if body is not None else None, headers)
        answer = connection.getresponse()
        told = answer.status, answer.read().decode()
        connection.close()
        return told

    def chat(self, **further: Any) -> tuple[int, dict[str, Any]]:
        status, text = self.ask("/v1/chat/completions", ASK | further)
        return status, json.loads(text)

    def events(self, path: str, body: dict[str, Any]) -> list[Any]:
        status, text = self.ask(path, body | {"stream": True})
        assert status == 200, text
        lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        assert lines[-1] == "[DONE]"
        return [json.loads(line) for line in lines[:-1]]

    def state(self) -> object:
        try:
            return self.ask("/ready")
        except OSError as error:
            return error


Start = Callable[..., Served]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    servers: list[Served] = []

    def begin(*words: str, ready: bool = True, **told: str) -> Served:
        servers.append(Served(tmp_path / f"pack{len(servers)}", words, told))
        if ready:
            until(servers[-1].state, lambda state: state == (200, '{"status": "ready"}'))
        return servers[-1]

    yield begin
    for one in servers:
        one.process.terminate()
        one.process.wait(LIMIT)


def test_it_is_alive_at_once_and_ready_when_the_model_is_loaded(start, tmp_path):
    server = start(ready=False, loads=str(tmp_path / "go"))
    until(server.state, lambda state: state == (503, '{"status": "loading"}'))
    assert server.ask("/health") == (200, '{"status": "loading"}')
    assert json.loads(server.ask("/v1/models")[1]) == {"object": "list", "data": []}
    assert server.chat() == (
        503,
        {
            "error": {
                "message": "the model is not ready: loading",
                "type": "server_error",
                "param": None,
                "code": "not_ready",
            }
        },
    )
    (tmp_path / "go").touch()
    until(server.state, lambda state: state == (200, '{"status": "ready"}'))
    card = {"id": "pack0", "object": "model", "owned_by": "spark_exl3", "max_model_len": 6144}
    assert json.loads(server.ask("/v1/models")[1])["data"] == [card]


def test_a_chat_is_answered_whole_and_in_pieces_with_its_counts(start):
    server = start("--name", "demo", "--drafts")
    status, whole = server.chat(model="demo")
    usage = {
        "prompt_tokens": PROMPT,
        "completion_tokens": 3,
        "total_tokens": PROMPT + 3,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"accepted_prediction_tokens": 5, "rejected_prediction_tokens": 2},
    }
    assert (status, whole["object"], whole["model"], whole["usage"]) == (200, "chat.completion", "demo", usage)
    message = {"role": "assistant", "content": "323"}
    assert whole["choices"] == [{"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}]
    events = server.events("/v1/chat/completions", ASK | {"max_tokens": 2, "stream_options": {"include_usage": True}})
    deltas = [(one["choices"][0]["delta"], one["choices"][0]["finish_reason"]) for one in events[:-1]]
    begun = {"role": "assistant", "content": ""}
    assert deltas == [(begun, None), ({"content": "3"}, None), ({"content": "2"}, None), ({}, "length")]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 2
    assert {(one["id"], one["object"]) for one in events} == {(events[0]["id"], "chat.completion.chunk")}


def test_a_text_is_gone_on_with_in_the_same_two_ways(start):
    server = start()
    whole = json.loads(server.ask("/v1/completions", {"prompt": "17*19=", "stop": "2"})[1])
    assert (whole["object"], whole["choices"][0]["text"], whole["usage"]["prompt_tokens"]) == (
        "text_completion",
        "3",
        7,
    )
    events = server.events("/v1/completions", {"prompt": ["17*19="]})
    assert "".join(one["choices"][0]["text"] for one in events) == "323"
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_thought_is_told_apart_from_the_answer(start):
    server = start(reply="20*17 less 17</think>323")
    on = {"chat_template_kwargs": {"thinking": True}}
    message = server.chat(**on)[1]["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "323", "reasoning_content": "20*17 less 17"}
    deltas = [one["choices"][0]["delta"] for one in server.events("/v1/chat/completions", ASK | on)]
    assert "".join(one.get("reasoning_content", "") for one in deltas) == "20*17 less 17"
    assert "".join(one.get("content", "") for one in deltas) == "323"
    refused = server.chat(**on, response_format={"type": "json_object"})
    assert (refused[0], refused[1]["error"]["param"]) == (400, "response_format")


def test_prompts_are_counted_as_they_will_be_answered(start):
    server = start()
    told = json.loads(server.ask("/tokenize", {"messages": ASK["messages"]})[1])
    assert (told["count"], told["max_model_len"], len(told["tokens"])) == (PROMPT, 6144, PROMPT)
    assert json.loads(server.ask("/tokenize", {"prompt": "ab", "add_special_tokens": False})[1])["tokens"] == [97, 98]


def test_its_work_is_counted_under_the_names_that_sparkctl_reads(start):
    server = start()
    server.chat()
    assert read_counters(server.ask("/metrics")[1]) == Counters(
        prompt=PROMPT, generation=3, running=0, waiting=0, steps=5
    )


def test_only_who_has_the_key_is_answered(start, tmp_path):
    (tmp_path / "key").write_text("sesame\n")
    server = start("--api-key-file", str(tmp_path / "key"))
    for path, body in (("/v1/models", None), ("/v1/chat/completions", ASK), ("/tokenize", {"prompt": "a"})):
        for key in ("", "sesam"):
            status, text = server.ask(path, body, key)
            assert (status, json.loads(text)["error"]["code"]) == (401, "invalid_api_key")
        assert server.ask(path, body, "sesame")[0] == 200
    assert server.ask("/health")[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/v1/nothing", {}, 404, "there is nothing at /v1/nothing"),
        ("/v1/completions", "{", 400, "the body is no JSON"),
        ("/v1/completions", "[]", 400, "the body must be a JSON object"),
        ("/v1/completions", {"prompt": "a", "model": "gpt"}, 404, "there is no model 'gpt' here, only 'pack0'"),
        ("/v1/completions", {"prompt": "a" * 600}, 400, "the prompt has 601 tokens, and the context of 512 leaves no"),
        ("/v1/chat/completions", {}, 400, "messages must be a list"),
        (
            "/v1/completions",
            {
                "prompt": "a",
                "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}},
            },
            400,
            "this request does not fit: unknown type",
        ),
    ],
)
def test_wrong_requests_get_openai_s_errors_and_the_next_one_its_answer(start, path, body, status, told):
    server = start("--context", "512")
    answer = server.ask(path, body)
    assert (answer[0], json.loads(answer[1])["error"]["message"][: len(told)]) == (status, told)
    assert server.chat()[0] == 200


def test_requests_wait_for_each_other(start, tmp_path):
    server = start(waits=str(tmp_path / "go"))
    connections = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT) for _ in range(3)]
    for connection in connections:
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "17*19="}))
    (tmp_path / "go").touch()
    for connection in connections:
        told = json.loads(connection.getresponse().read())
        connection.close()
        assert told["choices"][0]["text"] == "323"


def test_a_client_that_hangs_up_frees_its_turn(start, tmp_path):
    server = start(waits=str(tmp_path / "go"))
    with socket.create_connection(("127.0.0.1", server.port)) as one:
        body = json.dumps({"prompt": "a", "stream": True})
        one.sendall(f"POST /v1/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        until(server.log.read_text, lambda text: "loading" in text)
    (tmp_path / "go").touch()
    assert server.chat()[1]["choices"][0]["message"]["content"] == "323"


def test_when_the_engine_fails_the_client_is_told_and_the_process_ends(start):
    server = start(fails="iterate")
    status, told = server.chat()
    assert (status, told["error"]["code"]) == (500, "engine_failed")
    assert server.process.wait(LIMIT) == 1
    assert "illegal memory access" in server.log.read_text()


def test_a_model_that_does_not_load_ends_the_process(start):
    server = start(ready=False, fails="load")
    assert server.process.wait(LIMIT) == 1
    assert "CUDA out of memory" in server.log.read_text()


def test_a_taken_port_and_a_wrong_word_are_said_in_one_line(start):
    server = start()
    taken = start("--port", str(server.port), ready=False)
    assert taken.process.wait(LIMIT) == 1
    assert (
        taken.log.read_text() == f"spark_exl3: cannot listen on 127.0.0.1 port {server.port}: Address already in use\n"
    )
    wrong = start("--context", "1000", ready=False)
    assert wrong.process.wait(LIMIT) == 2
    assert wrong.log.read_text().count("\n") == 1
