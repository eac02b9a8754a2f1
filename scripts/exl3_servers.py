"""The servers of the EXL3 proof, started, asked and stopped by sparkctl as users do. A part of gpu_exl3.py."""

import json
import socket
import statistics
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.exl3_run import ARCHITECTURE, CONTEXT, Failed, Run

RECIPE = "dsv41-sage-exl3-1x"
TOKENS, ROUNDS = 768, 6


@dataclass(frozen=True)
class Deployment:
    name: str
    pack: Path
    port: int
    desk: Path


def deployment(run: Run, name: str, pack: Path) -> Deployment:
    """The recipe for one Spark, told that this GPU maps no files and that there is no container."""
    desk = run.folder / f"desk-{name}"
    desk.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        "--model",
        "{model}",
        "--name",
        "{name}",
        "--host",
        "{host}",
        "--port",
        "{port}",
        "--context",
        "{max_model_len}",
    ]
    told = {
        "deployment": name,
        "nodes": [{"name": "gpu", "control": "local", "address": "127.0.0.1", "state_dir": str(desk / "state")}],
        "serve": {"model": str(pack), "served_model_name": name, "port": port, "max_model_len": CONTEXT},
        "launch": {
            "runtime": "native",
            "command": [sys.executable, "-m", "spark_exl3", *words],
            "environment": {"PYTHONPATH": run.environment["PYTHONPATH"]},
        },
        "tuning": {"torch_arch": ARCHITECTURE},
        "exl3": {"profile": "none", "confidence": None},
        "image": {"name": ""},
    }
    (desk / "cluster.yaml").write_text(json.dumps(told))  # JSON is YAML
    return Deployment(name, pack, port, desk)


def start(run: Run, one: Deployment) -> None:
    """Checks of a box that this machine is not (a GB10, a large /dev/shm) are passed over by name, and told."""
    found = run.checks("preflight", "--recipe", RECIPE, cwd=one.desk)
    refusing = sorted({each["finding"]["id"] for each in found["results"] if each["finding"]["severity"] == "refusal"})
    began = time.monotonic()
    try:
        passed = [word for name in refusing for word in ("--force", name)]
        told = run.sparkctl("start", "--recipe", RECIPE, *passed, cwd=one.desk, limit=150)
    finally:
        with (run.keep / "servers.log").open("a") as file:
            for log in one.desk.glob("state/deployments/*/boots/*/rank0/*log"):
                file.write(f"=== {one.name}: {log.name}\n{log.read_text(errors='replace')}\n")
    seconds = round(time.monotonic() - began, 1)
    run.seen[f"start_{one.name}"] = {"event": told["event"], "seconds": seconds, "forced": refusing}


def stop(run: Run, one: Deployment) -> None:
    told = run.sparkctl("stop", "--recipe", RECIPE, cwd=one.desk, limit=90)
    run.seen[f"stop_{one.name}"] = told["event"]


def ask(one: Deployment, path: str, body: dict[str, Any]) -> dict[str, Any]:
    sent = json.dumps(body | {"model": one.name, "temperature": 0}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{one.port}{path}", sent, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=90) as answer:
        return json.load(answer)  # type: ignore[no-any-return]


def chat(run: Run, one: Deployment) -> None:
    told = ask(one, "/v1/chat/completions", {"messages": [{"role": "user", "content": "17*19"}], "max_tokens": 16})
    choice = told["choices"][0]
    run.seen[f"chat_{one.name}"] = {
        "text": choice["message"]["content"],
        "finish": choice["finish_reason"],
        "usage": told["usage"],
    }
    if told["usage"]["completion_tokens"] < 1:
        raise Failed(f"no token: {told}")


def smoke(run: Run, one: Deployment) -> None:
    told = run.sparkctl("smoke", "--recipe", RECIPE, cwd=one.desk)
    run.seen[f"smoke_{one.name}"] = [(each["name"], each["ok"], each["detail"]) for each in told["checks"]]


def pace(run: Run, pair: tuple[Deployment, Deployment]) -> None:
    """Tokens a second of both layouts, in turns, after one round that is not counted; and that both say the same."""
    rates: dict[str, list[float]] = {one.name: [] for one in pair}
    texts = {}
    for number in range(ROUNDS + 1):
        for one in pair if number % 2 else pair[::-1]:
            began = time.monotonic()
            told = ask(one, "/v1/completions", {"prompt": "the stone", "max_tokens": TOKENS})
            seconds = time.monotonic() - began
            texts[one.name] = told["choices"][0]["text"]
            if number:
                rates[one.name].append(told["usage"]["completion_tokens"] / seconds)
    medians = {name: statistics.median(each) for name, each in rates.items()}
    first, second = medians.values()
    run.seen["tokens_per_second"] = {
        name: {"median": round(medians[name], 1), "all": [round(one, 1) for one in rates[name]]} for name in rates
    }
    run.seen["relaid_over_plain"] = round(second / first, 3)
    run.seen["same_text"] = len(set(texts.values())) == 1
    if not run.seen["same_text"]:
        raise Failed("the two layouts answer differently")
    if not 0.9 <= second / first <= 1.1:
        raise Failed(f"the paces differ: {medians}")


def serve(run: Run, packs: dict[str, Path]) -> None:
    there = {name: pack for name, pack in packs.items() if (pack / "config.json").exists()}
    ones = {name: deployment(run, name, pack) for name, pack in there.items()}
    run.together(*((f"start {name}", start, one) for name, one in ones.items()))
    up = {name: one for name, one in ones.items() if f"start {name}" not in run.failed}
    for name, one in up.items():
        run.together((f"chat {name}", chat, one))
    if "demo" in up:
        run.together(("smoke demo", smoke, up["demo"]))
    if {"plain", "relaid"} <= up.keys():
        run.together(("pace", pace, (up["plain"], up["relaid"])))
    run.together(*((f"stop {name}", stop, one) for name, one in ones.items()))
