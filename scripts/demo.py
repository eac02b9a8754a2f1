#!/usr/bin/env python3
"""The main job from end to end: two ranks of a tiny model on this machine, asked 17*19 over the OpenAI API, stopped.

Makes a folder with a `.env`, as a person would, and types the commands that a person would type. Exit code 0 only when
everything was right: started, serving, the answer was 323, stopped, gone. Whatever happens, it stops what it started.

SPARKCTL_VENV and SPARKCTL_MODEL_DIR name the environment with vLLM and the model; `scripts/demo` sets both.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

QUESTION = "What is 17*19? Reply with the integer only."
ANSWER = "323"
API_PORT, MASTER_PORT = 8888, 29521
ASK_LIMIT = 60.0
SERVING, ABSENT, INTERRUPTED = 0, 9, 130  # exit codes of `sparkctl status`, and of a Ctrl-C


class DemoFailed(Exception):
    """What was not as it must be."""


def main(arguments: Sequence[str]) -> int:
    if arguments:
        print(__doc__)
        return 2
    signal.signal(signal.SIGTERM, _as_interrupt)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="sparkctl-demo-"))
    failure, code = _demo(folder)
    print()
    if failure:
        print(f"demo: {failure}")
        print(f"demo: what was left to look at is in {folder}")
        return code
    shutil.rmtree(folder)
    print(f"demo: two ranks served, answered {ANSWER}, and are gone again ({time.monotonic() - began:.0f} s)")
    return 0


def _demo(folder: Path) -> tuple[str, int]:
    """Start, look, ask; then stop in any case. Returns what went wrong, and the exit code for it."""
    failure, code = "", 0
    try:
        port = write_env(folder)
        use(folder)
        ask(port)
    except DemoFailed as error:
        failure, code = str(error), 1
    except KeyboardInterrupt:
        failure, code = "interrupted", INTERRUPTED
    left = stop(folder) if (folder / ".env").exists() else ""
    return "; ".join(filter(None, (failure, left))), code or (1 if left else 0)


def use(folder: Path) -> None:
    expect(folder, 0, "start")
    expect(folder, SERVING, "status")


def stop(folder: Path) -> str:
    """Ends the ranks and looks that they are gone; a Ctrl-C must not leave them running. Returns what went wrong."""
    before = signal.signal(signal.SIGINT, _not_now), signal.signal(signal.SIGTERM, _not_now)
    try:
        expect(folder, 0, "stop")
        expect(folder, ABSENT, "status")
    except DemoFailed as error:
        return str(error)
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    return ""


# ---- what a person would do -----------------------------------------------------------------------------------------


def write_env(folder: Path) -> int:
    """The settings of the demo, in a folder of its own. Returns the port of the API."""
    port, master = free_port(API_PORT), free_port(MASTER_PORT)
    state = folder / "state"
    lines = ["RECIPE=demo"]
    for name in ("VENV", "MODEL_DIR"):
        value = os.environ.get(f"SPARKCTL_{name}")
        if not value:
            raise DemoFailed(f"SPARKCTL_{name} is not set; run scripts/demo, which sets it")
        lines.append(f"{name}={shlex.quote(str(Path(value).absolute()))}")
    lines += [f"{name}_STATE_DIR={shlex.quote(str(state))}" for name in ("HEAD", "WORKER")]
    lines += [f"PORT={port}", f"MASTER_PORT={master}"]
    type_out(f"cd {folder}", "cat .env")
    print("\n".join(lines), flush=True)
    (folder / ".env").write_text("\n".join(lines) + "\n")
    return port


def free_port(wanted: int) -> int:
    """The wanted port, or another when something listens there. Checked on all addresses, as torch listens on all."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            if port != wanted:
                print(f"demo: port {wanted} is taken; taking {probe.getsockname()[1]}")
            return int(probe.getsockname()[1])
    raise DemoFailed("this machine has no free port")


def ask(port: int) -> None:
    """A plain HTTP request, as any client of the OpenAI API makes it."""
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    body = json.dumps({"model": "demo", "temperature": 0, "messages": [{"role": "user", "content": QUESTION}]})
    type_out(f"curl -s {url} \\\n    -H 'Content-Type: application/json' \\\n    -d {shlex.quote(body)}")
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy of the shell is not for loopback
    try:
        with direct.open(request, timeout=ASK_LIMIT) as response:
            text = response.read().decode()
    except urllib.error.HTTPError as error:
        raise DemoFailed(
            f"the API answered HTTP {error.code}: {error.read().decode(errors='replace')[:300]}"
        ) from error
    except OSError as error:
        raise DemoFailed(f"the API did not answer: {error}") from error
    print(text, flush=True)
    answer = json.loads(text)["choices"][0]["message"]["content"].strip()
    if answer != ANSWER:
        raise DemoFailed(f"the answer was {answer!r} and should be {ANSWER}")


# ---- typing commands ------------------------------------------------------------------------------------------------


def expect(folder: Path, wanted: int, *words: str) -> None:
    type_out(f"sparkctl {shlex.join(words)}")
    code = run(folder, words)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code != wanted:
        raise DemoFailed(f"sparkctl {shlex.join(words)} ended with exit code {code}, not {wanted}")


def run(folder: Path, words: Sequence[str]) -> int:
    """In a process group of its own: it hears of a Ctrl-C once, from us, and is then waited for."""
    argv = (sys.executable, "-m", "cluster", *words)
    with subprocess.Popen(argv, cwd=folder, env=environment(), process_group=0) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise


def environment() -> dict[str, str]:
    """Settings come from the `.env` alone, so that what is shown is what is used."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARKCTL_")}
    root = str(Path(__file__).resolve().parent.parent)
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, (root, kept.get("PYTHONPATH"))))}


def type_out(*commands: str) -> None:
    print()
    for command in commands:
        print(f"$ {command}", flush=True)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _not_now(number: int, frame: FrameType | None) -> None:
    print("demo: stopping the ranks; this takes a moment", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
