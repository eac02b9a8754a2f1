"""A server that is not vLLM: live at once, ready once its model is loaded, told by files beside it.

own_server.py FOLDER HOST PORT NAME     writes what it was given to FOLDER/given.json; /ready answers 503 until
                                        FOLDER/loaded is there, and counts how often it did in FOLDER/asked
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER, HOST, PORT, NAME = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]


class Api(BaseHTTPRequestHandler):
    @property
    def ready(self) -> bool:
        return (FOLDER / "loaded").exists()

    def do_GET(self) -> None:
        if self.path == "/ready" and not self.ready:
            with (FOLDER / "asked").open("a") as file:
                file.write(".")
        known = {
            "/health": (200, {"server_ready": True}),
            "/ready": (200 if self.ready else 503, {}),
            "/v1/models": (200, {"data": [{"id": NAME, "max_model_len": 6144}] if self.ready else []}),
        }
        self.answer(*known.get(self.path, (404, {})))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200 if self.ready else 503, {"choices": [{"text": "1"}]})

    def answer(self, status: int, body: object) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


if __name__ == "__main__":
    given = {"argv": sys.argv[1:], "copy": os.environ.get("EXL3_ATS_COPY"), "dir": os.environ.get("EXL3_MODEL_DIR")}
    (FOLDER / "given.json").write_text(json.dumps(given))
    ThreadingHTTPServer((HOST, PORT), Api).serve_forever()
