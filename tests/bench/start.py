"""`start`: the time until two ranks serve through sparkctl, over the same two commands typed by hand."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.bench.measure import ROOT, CannotMeasure, Result, clean_environment, load, median, say, sparkctl, timed
from tests.contract.sshd import free_port

PAIRS = int(os.environ.get("BENCH_PAIRS", "5"))
LIMIT = 300.0  # seconds for one boot
POLL = 0.1
OK = 200
# What the launcher lets through to a server; a shell would have exported these too.
USUAL = ("HOME", "LOGNAME", "USER", "SHELL", "PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class Bench:
    """One deployment of the demo recipe in a folder of its own, on ports of its own."""

    folder: Path
    port: int
    options: tuple[str, ...]
    environment: dict[str, str]

    def sparkctl(self, verb: str, *more: str) -> list[str]:
        return [sparkctl(), verb, *self.options, *more]


@dataclass(frozen=True, slots=True)
class Command:
    """What one rank runs, as `plan` shows it."""

    argv: list[str]
    environment: dict[str, str]


def run() -> Result:
    with tempfile.TemporaryDirectory(prefix="sparkctl-bench-") as folder:
        bench = new_bench(Path(folder))
        commands = planned(bench)
        say(f"a first boot by hand, not counted, so that files are in memory: {by_hand(bench, commands):.1f} s")
        ours: list[float] = []
        hand: list[float] = []
        cpu: list[float] = []
        for pair in range(PAIRS):
            for arm in ("hand", "sparkctl") if pair % 2 == 0 else ("sparkctl", "hand"):
                if arm == "hand":
                    hand.append(by_hand(bench, commands))
                else:
                    seconds, used = through_sparkctl(bench)
                    ours.append(seconds)
                    cpu.append(used)
            say(
                f"pair {pair + 1} of {PAIRS}: sparkctl {ours[-1]:.2f} s ({cpu[-1]:.2f} s CPU of its own), "
                f"by hand {hand[-1]:.2f} s; load {load():.1f}"
            )
    return Result(
        ratios={"overhead": round(median(ours) / median(hand), 3)},
        figures={
            "sparkctl_seconds": median(ours),
            "by_hand_seconds": median(hand),
            "sparkctl_cpu_seconds": median(cpu),
            "sparkctl_all": [round(one, 2) for one in ours],
            "by_hand_all": [round(one, 2) for one in hand],
            "pairs": PAIRS,
            "cores": os.cpu_count(),
        },
    )


def new_bench(folder: Path) -> Bench:
    """The paths of server and model come from where `scripts/demo` puts them, or from SPARKCTL_VENV and _MODEL_DIR."""
    venv = Path(os.environ.get("SPARKCTL_VENV") or ROOT / ".venv-vllm")
    model = Path(os.environ.get("SPARKCTL_MODEL_DIR") or ROOT / "scripts" / "demo_model" / "model")
    if not (venv / "bin" / "vllm").exists():
        raise CannotMeasure(f"there is no vLLM in {venv}; run: python3 scripts/provision.py vllm")
    port, state = free_port(), folder / "state"
    settings = {
        "DEPLOYMENT": "bench",
        "VENV": venv,
        "MODEL_DIR": model,
        "HEAD_STATE_DIR": state,
        "WORKER_STATE_DIR": state,
    }
    sets = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    ports = ("--port", str(port), "--master-port", str(free_port()))
    return Bench(folder, port, ("--recipe", "demo", *ports, *sets), clean_environment())


def planned(bench: Bench) -> list[Command]:
    done = timed(bench.sparkctl("plan", "--json"), environment=bench.environment, cwd=bench.folder)
    if done.exit:
        raise CannotMeasure(f"sparkctl plan failed: {done.out or done.err}")
    stages = json.loads(done.out.splitlines()[-1])["stages"]
    steps = next(stage["steps"] for stage in stages if stage["stage"] == "ranks")
    usual = {name: bench.environment[name] for name in USUAL if name in bench.environment}
    commands = [Command(step["argv"], usual | _known(step["environment"])) for step in steps]
    unknown = [value for one in commands for value in (*one.argv, *one.environment.values()) if value.startswith("<")]
    if unknown:
        raise CannotMeasure(f"the plan does not know all that it will run: {', '.join(unknown)}")
    return commands


def _known(environment: list[list[str]]) -> dict[str, str]:
    """`plan` asks no node, so the one thing that start reads there is filled in: who carries the loopback address."""
    return {name: value.replace("<interface of 127.0.0.1>", "lo") for name, value in environment}


def through_sparkctl(bench: Bench) -> tuple[float, float]:
    """Seconds until `start` returned with exit 0, and its own CPU seconds."""
    try:
        done = timed(bench.sparkctl("start", "-q"), environment=bench.environment, cwd=bench.folder, limit=LIMIT)
        if done.exit:
            raise CannotMeasure(f"sparkctl start failed with exit code {done.exit}: {done.out}{done.err}")
        if not answers(bench.port):
            raise CannotMeasure("sparkctl start returned, and the server does not answer")
    finally:
        stopped = timed(bench.sparkctl("stop"), environment=bench.environment, cwd=bench.folder, limit=LIMIT)
        if stopped.exit:
            raise CannotMeasure(f"sparkctl stop failed with exit code {stopped.exit}: {stopped.out}{stopped.err}")
    return done.seconds, done.cpu


def by_hand(bench: Bench, commands: list[Command]) -> float:
    """Seconds from two background processes to the first token."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(background(one, bench.folder / f"rank{rank}.log"))
            for rank, one in reversed(list(enumerate(commands)))
        ]
        while not answers(bench.port):
            gone = [one.args for one in started if one.poll() is not None]
            if gone or time.monotonic() - began > LIMIT:
                raise CannotMeasure(f"two ranks by hand do not serve; gone: {gone}; logs: {_last_words(bench)}")
            time.sleep(POLL)
        return time.monotonic() - began


@contextlib.contextmanager
def background(command: Command, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """As `command > log 2>&1 &`; at the end its whole session is gone."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command.argv,
            env=command.environment,
            cwd=Path.home(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end_session(process)


def end_session(leader: "subprocess.Popen[bytes]") -> None:
    """KILL: nothing of a benchmark is worth a graceful end, and the next run needs the cores."""
    until = time.monotonic() + 30
    while living := session(leader.pid):
        if time.monotonic() > until:
            raise CannotMeasure(f"these processes do not end: {living}")
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        leader.poll()
        time.sleep(0.05)
    leader.wait()


def session(number: int) -> list[int]:
    """Processes of that session that are not zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == number and state not in "ZX":
                found.append(int(stat.parent.name))
    return found


def answers(port: int) -> bool:
    """Whether one token is made."""
    body = {"model": "demo", "prompt": "1", "max_tokens": 1, "temperature": 0}
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        reply.read()
    except (OSError, HTTPException):
        return False
    else:
        return reply.status == OK
    finally:
        connection.close()


def _last_words(bench: Bench) -> str:
    return " | ".join(log.read_text(errors="replace")[-500:] for log in sorted(bench.folder.glob("rank*.log")))
