"""A server with vLLM's shape and none of its weight: parent, engine, worker; /health, /metrics, /v1/completions.

Every process overwrites its own command line and environment with a title, as setproctitle does, so that they can be
told apart and no longer carry the marker. As the `bin/vllm` of an environment it takes vLLM's whole command line, of
which it knows --host, --port and --headless. Options:
    --port N            serve HTTP (a head); without it, or with --headless, a headless parent
    --deaf              ignore SIGTERM, in all processes
    --stray             a grandchild that leaves the session through a double fork
    --busy              always one request running, one token more at each reading of the counters
    --print TEXT ...    written first, with Python escapes
    --exit N SECONDS    the parent leaves with this code after a while, its children stay
    --flood LINES       print so many lines
    --wait-for FILE     then wait for this file and print the same again
"""

import argparse
import ctypes
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NoReturn

counters = {"running": 0, "generation": 0}


def take_title(title: str) -> None:
    """Replace what /proc shows of us: command line and environment lie one after the other in memory."""
    stat = Path("/proc/self/stat").read_text()
    fields = stat[stat.rindex(")") + 2 :].split()
    arg_start, env_end = int(fields[45]), int(fields[48])
    room = env_end - arg_start
    ctypes.memmove(arg_start, title.encode()[: room - 1].ljust(room, b"\0"), room)
    pr_set_name = 15
    ctypes.CDLL(None).prctl(pr_set_name, title.encode()[:15], 0, 0, 0)


def child(title: str, deaf: bool, below: tuple[str, ...] = ()) -> None:
    """Returns once all of them have their titles."""
    told, tell = os.pipe()
    if os.fork():
        os.read(told, 1)
        return
    take_title(title)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else signal.SIG_DFL)
    if below:
        child(below[0], deaf, below[1:])
    idle(tell)


def stray() -> None:
    told, tell = os.pipe()
    if os.fork():
        os.wait()
        os.read(told, 1)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    take_title("VLLM::Stray")
    idle(tell)


def idle(tell: int) -> NoReturn:
    os.write(tell, b".")
    while True:
        time.sleep(60)


class Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(200, self.metrics() if self.path == "/metrics" else "")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        wanted = os.environ.get("VLLM_API_KEY")
        if wanted and self.headers["Authorization"] != f"Bearer {wanted}":
            self.answer(401, '{"error": "Unauthorized"}')
            return
        counters["generation"] += 1
        self.answer(200, json.dumps({"choices": [{"text": "1"}]}))

    def answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def metrics(self) -> str:
        counters["generation"] += counters["running"]
        label = '{engine="0",model_name="tiny"}'
        return "".join(
            f"vllm:{name}{label} {value}.0\n"
            for name, value in (
                ("num_requests_running", counters["running"]),
                ("num_requests_waiting", 0),
                ("prompt_tokens_total", counters["generation"]),
                ("generation_tokens_total", counters["generation"]),
                ("something_else_total", 7),
            )
        )

    def log_request(self, code: object = "-", size: object = "-") -> None:
        print("access", self.requestline, code, flush=True)


def main() -> None:
    options = argparse.ArgumentParser(allow_abbrev=False)
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int)
    options.add_argument("--headless", action="store_true")
    options.add_argument("--deaf", action="store_true")
    options.add_argument("--stray", action="store_true")
    options.add_argument("--busy", action="store_true")
    options.add_argument("--print", dest="text", default="")
    options.add_argument("--exit", nargs=2, type=float)
    options.add_argument("--flood", type=int, default=0)
    options.add_argument("--wait-for", type=Path)
    given, _ = options.parse_known_args()
    port = None if given.headless else given.port
    counters["running"] = int(given.busy)
    deaf = given.deaf
    names = ("VLLM::EngineCore", "VLLM::Worker_TP0") if port else ("VLLM::Worker_TP1",)
    child(names[0], deaf, names[1:])
    if given.stray:
        stray()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else lambda *_: os._exit(0))
    sys.stdout.write(given.text.encode().decode("unicode_escape"))
    sys.stdout.flush()
    flood(given.flood)
    if given.wait_for:
        while not given.wait_for.exists():
            time.sleep(0.05)
        flood(given.flood)
    if port:
        server = ThreadingHTTPServer((given.host, port), Api)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    if given.exit:
        code, seconds = given.exit
        time.sleep(seconds)
        os._exit(int(code))
    while True:
        time.sleep(60)


def flood(lines: int) -> None:
    for number in range(lines):
        print(f"line {number} " + "x" * 80)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
