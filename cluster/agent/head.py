"""Ask the server, NCCL and the GPU of this node how they are; the server may listen on loopback only."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from typing import Callable, List, Mapping, Optional, Tuple, Union

from cluster.agent.own import Json, read

Answer = Union[int, str]  # an HTTP status, or `refused`, `timeout`, `error: ...`
COUNTERS = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:iteration_tokens_total_count",
    "vllm:kv_cache_usage_perc",
)
HEALTH_LIMIT = 5.0
RAS_LIMIT = 2.0
RAS_MOST = 1 << 16
UNTIL_UP = 0.1


def ask(http: Json, method: str, path: str, limit: float, body: Optional[Json] = None) -> Tuple[Answer, str]:
    from http.client import HTTPConnection, HTTPException  # costs a third of our start, and not every look needs it

    headers = {"Connection": "close", "Content-Type": "application/json"}
    key = read(os.path.expanduser(http["key_file"])).strip() if http.get("key_file") else ""
    if key:
        headers["Authorization"] = "Bearer " + key
    connection = HTTPConnection(http["host"], http["port"], timeout=limit)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        return response.status, response.read(1 << 22).decode("utf-8", "replace")
    except ConnectionRefusedError:
        return "refused", ""
    except socket.timeout:
        return "timeout", ""
    except (OSError, HTTPException) as error:
        return "error: %s" % (str(error) or type(error).__name__), ""
    finally:
        connection.close()


def ask_health(http: Json) -> Json:
    """What its readiness path says, and the counters when it says anything."""
    health, _ = ask(http, "GET", http.get("ready") or "/health", HEALTH_LIMIT)
    metrics = ask_counters(http) if isinstance(health, int) else None
    return {"at": time.time(), "health": health, "metrics": metrics, "later": None, "completion": None}


def ask_counters(http: Json) -> Optional[str]:
    """The few lines of /metrics that tell progress."""
    status, text = ask(http, "GET", "/metrics", HEALTH_LIMIT)
    if status != 200:
        return None
    return "\n".join(line for line in text.splitlines() if line.startswith(COUNTERS))


def ask_completion(http: Json, limit: float) -> Json:
    """One token, greedily: the only question that all ranks must answer."""
    body = {"model": http["model"], "prompt": "1", "max_tokens": 1, "temperature": 0}
    began, at = time.monotonic(), time.time()
    answer, said = ask(http, "POST", "/v1/completions", limit, body)
    seconds = round(time.monotonic() - began, 3)
    return {"at": at, "answer": answer, "seconds": seconds, "said": "" if answer == 200 else said[:300]}


def runs_requests(metrics: Optional[str]) -> bool:
    running = [line.split()[-1] for line in (metrics or "").splitlines() if line.startswith(COUNTERS[0])]
    return any(value not in ("0", "0.0") for value in running)


def look_at_head(http: Json, limit: float) -> Json:
    """Busy: do the counters move? Idle, or nothing moves: does it answer? Health alone says yes beside a hung rank."""
    seen = ask_health(http)
    if seen["health"] != 200:
        return seen
    if runs_requests(seen["metrics"]):
        time.sleep(1.5)
        seen["later"] = ask_counters(http)
        if seen["later"] != seen["metrics"]:
            return seen
    seen["completion"] = ask_completion(http, limit)
    if seen["later"] is not None:
        seen["later"] = ask_counters(http)
    return seen


def ask_ras(address: List[Union[str, int]]) -> Json:
    """The RAS status of NCCL as text; its JSON form is broken exactly when a rank is missing."""
    began, data = time.monotonic(), b""
    try:
        with socket.create_connection((str(address[0]), int(address[1])), timeout=RAS_LIMIT) as connection:
            connection.sendall(b"verbose status\n")
            while len(data) < RAS_MOST:
                connection.settimeout(max(0.01, began + RAS_LIMIT - time.monotonic()))
                piece = connection.recv(1 << 14)
                if not piece:
                    break
                data += piece
    except ConnectionRefusedError:
        return {"text": None, "trouble": "refused"}
    except socket.timeout:
        return {"text": None, "trouble": "timeout"}
    except OSError as error:
        return {"text": None, "trouble": "error: %s" % error}
    return {"text": data.decode("utf-8", "replace"), "trouble": None}


def ask_gpus() -> Optional[List[Json]]:
    """Watts and load of each GPU; what is [N/A] on this machine is null."""
    if not shutil.which("nvidia-smi"):
        return None
    argv = ["nvidia-smi", "--query-gpu=power.draw,utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(argv, capture_output=True, text=True, timeout=10.0).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    rows = [[number_or_none(cell) for cell in line.split(",")] for line in text.splitlines() if "," in line]
    return [{"watts": row[0], "busy": row[1]} for row in rows]


def number_or_none(cell: str) -> Optional[float]:
    try:
        return float(cell)
    except ValueError:
        return None


class Asker(threading.Thread):
    """Asks again and again beside the watch, so that a question without an answer does not hold it up."""

    def __init__(self, question: Callable[[], object], every: float) -> None:
        super().__init__(daemon=True)
        self.question, self.every = question, every
        self.latest: object = None

    def run(self) -> None:
        while True:
            self.latest = self.question()
            time.sleep(self.every)


class HealthAsker(Asker):
    """Asks often until the server is up, as being refused costs next to nothing, and tells of each change."""

    def __init__(self, http: Json, every: float, news: threading.Event) -> None:
        super().__init__(lambda: ask_health(http), every)
        self.news, self.up = news, threading.Event()
        self.health: Answer = ""

    def run(self) -> None:
        while True:
            self.latest = seen = self.question()
            if isinstance(seen, dict):
                self.take(seen["health"])
            time.sleep(self.every if self.up.is_set() else min(self.every, UNTIL_UP))

    def take(self, health: Answer) -> None:
        if health != self.health:
            self.health = health
            self.news.set()
        if health == 200:
            self.up.set()
        else:
            self.up.clear()


class CompletionAsker(threading.Thread):
    """After the server's first 200, a completion until one succeeds; then, if so wished, one now and then."""

    def __init__(self, http: Json, head: HealthAsker, wish: Mapping[str, float]) -> None:
        super().__init__(daemon=True)
        self.http, self.head, self.limit, self.every = http, head, float(wish.get("limit") or 60.0), wish.get("every")
        self.latest: Optional[Json] = None
        self.asking_since: Optional[float] = None

    def run(self) -> None:
        while True:
            self.head.up.wait()
            self.asking_since = time.time()
            self.latest = ask_completion(self.http, self.limit)
            self.asking_since = None
            self.head.news.set()
            if self.latest["answer"] != 200:
                time.sleep(1.0)
            elif self.every is None:
                return
            else:
                time.sleep(self.every)
