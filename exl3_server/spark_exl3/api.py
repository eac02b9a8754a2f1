"""The HTTP side: routes, the key, streams. Requests wait for their turn here, each in its own thread."""

import hmac
import json
import select
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty
from typing import Any

from spark_exl3 import answers
from spark_exl3.chat import Split, Template, opens_thought
from spark_exl3.engine import End, Engine, Piece, State, Turn, Wish
from spark_exl3.wishes import Asked, Refused, asked, messages, template_words, text_prompt

MOST_BYTES = 16 * 2**20
LOOK_AGAIN = 0.5  # seconds; how soon a client that hung up is noticed while it waits


@dataclass(frozen=True, slots=True)
class Served:
    """All that a request may need: who the model is called, and what it can do."""

    name: str
    context: int
    key: str
    template: Template
    engine: Engine


class Gone(Exception):
    """The client does not read any more."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], served: Callable[["Server"], Served]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Api)
        self.served = served(self)


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "spark_exl3"
    timeout = 120  # of one read or write: a client that stalls frees its thread
    server: Server

    def do_GET(self) -> None:
        state = self.served.engine.state
        match self.path.partition("?")[0]:
            case "/health":
                self._tell(503 if state is State.FAILED else 200, {"status": state.value})
            case "/ready":
                self._tell(200 if state is State.READY else 503, {"status": state.value})
            case "/metrics" if state is State.READY:
                self._metrics()
            case "/v1/models":
                self._guarded(self._models)
            case _:
                self._refuse(Refused(404, f"there is nothing at {self.path}", code="not_found"))

    def do_POST(self) -> None:
        self._said = time.monotonic()
        match self.path.partition("?")[0]:
            case "/v1/chat/completions":
                self._guarded(lambda: self._complete(chat=True))
            case "/v1/completions":
                self._guarded(lambda: self._complete(chat=False))
            case "/tokenize":
                self._guarded(self._tokenize)
            case _:
                self.close_connection = True  # its body is not read
                self._refuse(Refused(404, f"there is nothing at {self.path}", code="not_found"))

    @property
    def served(self) -> Served:
        return self.server.served

    def _guarded(self, answer: Callable[[], None]) -> None:
        try:
            self._check_key()
            answer()
        except Refused as refused:
            self._refuse(refused)
        except (Gone, OSError):
            self.close_connection = True

    def _check_key(self) -> None:
        key, given = self.served.key, self.headers.get("Authorization", "")
        if key and not hmac.compare_digest(given.encode(), f"Bearer {key}".encode()):
            self.close_connection = True
            raise Refused(401, "the API key is missing or wrong", code="invalid_api_key")

    def _models(self) -> None:
        served = self.served
        card = {"id": served.name, "object": "model", "owned_by": "spark_exl3", "max_model_len": served.context}
        self._tell(200, {"object": "list", "data": [card] if served.engine.state is State.READY else []})

    def _metrics(self) -> None:
        engine, done = self.served.engine, self.served.engine.done
        text = answers.metrics(done.running, engine.waiting, done.prompt, done.generated, done.steps)
        self._send(200, "text/plain; version=0.0.4", text.encode())

    def _tokenize(self) -> None:
        body = self._body()
        model = self.served.engine.model
        begin = body.get("add_special_tokens", True) is not False
        if "messages" in body:
            text, begin = self.served.template.render(messages(body), template_words(body)), False
        else:
            text = text_prompt(body)
        tokens, count = model.tokens(text, begin)
        told = [int(one) for one in tokens.flatten().tolist()]
        self._tell(200, {"count": count, "max_model_len": self.served.context, "tokens": told})

    def _complete(self, *, chat: bool) -> None:
        body = self._body()
        wanted = asked(body, self.served.name)
        if chat:
            text, begin = self.served.template.render(messages(body), template_words(body)), False
        else:
            text, begin = text_prompt(body), True
        thinking = chat and opens_thought(text)
        if thinking and wanted.sampling.schema is not None:
            what = "a thought follows no schema: turn thinking off, or leave the schema out"
            raise Refused(400, what, parameter="response_format")
        wish = self._wish(text, begin, wanted)
        told = answers.Told(
            f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}", int(time.time()), self.served.name, chat
        )
        turn = self.served.engine.ask(wish)
        try:
            if wanted.streams:
                self._stream(told, turn, Split(thinking), wanted.counts)
            else:
                self._whole(told, turn, Split(thinking))
        finally:
            turn.left.set()

    def _wish(self, text: str, begin: bool, wanted: Asked) -> Wish:
        model = self.served.engine.model
        tokens, length = model.tokens(text, begin)
        room = model.room(length)
        if length == 0:
            raise Refused(400, "the prompt is empty", parameter="prompt")
        if room < 1:
            what = f"the prompt has {length} tokens, and the context of {self.served.context} leaves no room behind it"
            raise Refused(400, what, code="context_length_exceeded")
        return Wish(tokens, length, min(wanted.most or room, room), wanted.sampling, wanted.stops)

    def _whole(self, told: answers.Told, turn: Turn, split: Split) -> None:
        thought, text = "", ""
        for one in self._pieces(turn):
            if isinstance(one, Piece):
                further = split.take(one.text)
                thought, text = thought + further[0], text + further[1]
            else:
                self._tell(200, answers.whole(told, thought + split.end(), text, one.finish, one.counts))
                self._log(200, one)

    def _stream(self, told: answers.Told, turn: Turn, split: Split, counts: bool) -> None:
        """The status waits for the first piece: until then a request can still be refused."""
        begun = False
        try:
            for one in self._pieces(turn):
                if not begun:
                    self._begin_stream(told)
                    begun = True
                if isinstance(one, Piece):
                    thought, text = split.take(one.text)
                    if thought or text:
                        self._event(answers.piece(told, thought, text))
                else:
                    self._event(answers.piece(told, split.end(), "", one.finish))
                    if counts:
                        self._event(answers.tally(told, one.counts))
                    self._log(200, one)
        except Refused as refused:
            if not begun:
                raise
            self._event(answers.error(refused))
        self.wfile.write(b"data: [DONE]\n\n")

    def _begin_stream(self, told: answers.Told) -> None:
        self.close_connection = True  # its end is how a client knows that a stream is over
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        if told.chat:
            self._event(answers.first(told))

    def _pieces(self, turn: Turn) -> Iterator[Piece | End]:
        """Up to the end. Raises Refused as the engine says it, and Gone once the client hung up."""
        while True:
            try:
                one = turn.pieces.get(timeout=LOOK_AGAIN)
            except Empty:
                if self._is_gone():
                    raise Gone from None
                continue
            if isinstance(one, Refused):
                raise one
            yield one
            if isinstance(one, End):
                return

    def _is_gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True
            raise Refused(400, f"a body of at most {MOST_BYTES} bytes with its Content-Length is needed")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except ValueError as error:
            raise Refused(400, f"the body is no JSON: {error}") from error
        if not isinstance(body, dict):
            raise Refused(400, "the body must be a JSON object")
        return body

    def _event(self, told: answers.Json) -> None:
        self.wfile.write(b"data: " + json.dumps(told, ensure_ascii=False).encode() + b"\n\n")

    def _refuse(self, refused: Refused) -> None:
        self._tell(refused.status, answers.error(refused))
        self._log(refused.status)

    def _tell(self, status: int, told: answers.Json) -> None:
        self._send(status, "application/json", json.dumps(told, ensure_ascii=False).encode())

    def _send(self, status: int, kind: str, text: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text)

    def _log(self, status: int, end: End | None = None) -> None:
        """One line for each request that is no look at the server's state, without a word of its text."""
        if self.path == "/metrics":
            return
        told = f"{self.command} {self.path} {status}"
        if end:
            told += f" prompt={end.counts.prompt} new={end.counts.new} finish={end.finish}"
            told += f" seconds={time.monotonic() - self._said:.2f}"
        print(told, file=sys.stderr, flush=True)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name; it is told in _log
        pass
