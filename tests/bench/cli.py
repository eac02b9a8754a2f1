"""`cli`: what typing a command costs: starting up over click alone, and round trips to the nodes over SSH."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.measure import ROOT, CannotMeasure, Result, clean_environment, median, say, sparkctl, timed
from tests.contract.sshd import SSHD, Sshd, free_port

PAIRS = 21
PLAIN = """
import click
@click.group()
def cli():
    pass
@cli.command()
def start():
    "Start it."
cli()
"""
STANDIN = ROOT / "tests" / "contract" / "standin.py"
# What sshd says at level VERBOSE when it begins to run something for a client.
STARTING = "Starting session: "
ABSENT, SERVING = 9, 0


def run() -> Result:
    with tempfile.TemporaryDirectory(prefix="sparkctl-bench-") as folder:
        help_ratio, help_figures = measure_help(Path(folder))
        trips, ssh_figures = measure_status(Path(folder))
    return Result({"help_over_click": help_ratio, "status_roundtrips": trips}, {**help_figures, **ssh_figures})


# ---- starting up ----------------------------------------------------------------------------------------------------


def measure_help(folder: Path) -> tuple[float, dict[str, float]]:
    """Interleaved, so that a busy moment meets all of them."""
    plain = folder / "plain.py"
    plain.write_text(PLAIN)
    commands = {
        "help": [sparkctl(), "--help"],
        "click_help": [sys.executable, str(plain), "--help"],
        "start_help": [sparkctl(), "start", "--help"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for pair in range(PAIRS + 1):  # the first one writes byte code and is not counted
        for name, argv in commands.items():
            done = timed(argv, environment=clean_environment(), cwd=folder)
            if done.exit:
                raise CannotMeasure(f"{' '.join(argv)} ended with exit code {done.exit}: {done.err}")
            if pair:
                seconds[name].append(done.seconds)
    figures = {f"{name}_seconds": median(values, 4) for name, values in seconds.items()}
    say(f"help: {PAIRS} pairs, " + ", ".join(f"{name} {value * 1000:.0f} ms" for name, value in figures.items()))
    return round(figures["help_seconds"] / figures["click_help_seconds"], 3), figures


# ---- round trips ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remote:
    """Two nodes behind two real SSH servers that write down every command they are asked to run."""

    folder: Path
    nodes: tuple[Sshd, Sshd]
    port: int

    def local(self, verb: str) -> list[str]:
        """Both nodes as this machine: what they run is then looked at over SSH."""
        return [sparkctl(), verb, "-q", *self._options({})]

    def over_ssh(self, verb: str) -> list[str]:
        nodes = {
            "HEAD_SSH": "head",
            "WORKER_SSH": "worker",
            "HEAD_IP": "192.0.2.1",  # of documentation (RFC 5737): nothing goes there, only SSH is used
            "WORKER_IP": "192.0.2.2",
        }
        return [sparkctl(), verb, "--ssh-config", str(self.ssh_config), *self._options(nodes)]

    def _options(self, more: dict[str, str]) -> list[str]:
        settings = {
            "DEPLOYMENT": "benchcli",
            "HEAD_STATE_DIR": self.folder / "head-state",
            "WORKER_STATE_DIR": self.folder / "worker-state",
            "VENV": self.folder / "server",
            "MODEL_DIR": self.folder / "model",
            **more,
        }
        sets = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        return ["--recipe", "demo", "--port", str(self.port), "--master-port", str(free_port()), *sets]

    @property
    def ssh_config(self) -> Path:
        return self.folder / "ssh_config"

    def commands(self) -> tuple[int, ...]:
        """How many each node has begun so far."""
        return tuple((node.folder / "sshd.log").read_text(errors="replace").count(STARTING) for node in self.nodes)


def measure_status(folder: Path) -> tuple[int, dict[str, object]]:
    if SSHD is None:
        raise CannotMeasure("sshd is missing; run: apt-get install openssh-server")
    verbose = ("LogLevel VERBOSE",)
    with Sshd(folder / "head", verbose) as head, Sshd(folder / "worker", verbose) as worker:
        remote = Remote(folder, (head, worker), free_port())
        write_ssh_config(remote)
        write_server(remote)
        absent, absent_seconds = count(remote, ABSENT)
        run_or_fail(remote, "start")
        try:
            serving, serving_seconds = count(remote, SERVING)
        finally:
            run_or_fail(remote, "stop")
        bare = [_seconds(lambda: _true(remote)) for _ in range(5)]
    most = max(*absent, *serving)
    figures = {
        "status_roundtrips_absent": list(absent),
        "status_roundtrips_serving": list(serving),
        "status_absent_seconds": absent_seconds,
        "status_serving_seconds": serving_seconds,
        "ssh_true_seconds": median(bare),
        "status_over_ssh_true": round(absent_seconds / median(bare), 2),
    }
    say(f"status: commands on head and worker: {absent} when absent, {serving} when it serves")
    say(f"status: {absent_seconds} s absent, {serving_seconds} s serving; one `ssh head true` {median(bare)} s")
    return most, figures


def count(remote: Remote, expected: int) -> tuple[tuple[int, ...], float]:
    """Commands that one `status` needs on each node, and its median seconds. Every run must need the same."""
    seen: set[tuple[int, ...]] = set()
    seconds = []
    for _ in range(3):
        before = remote.commands()
        done = timed(remote.over_ssh("status"), environment=environment(), cwd=remote.folder)
        if done.exit != expected:
            raise CannotMeasure(f"status ended with exit code {done.exit}, not {expected}: {done.out}{done.err}")
        seen.add(tuple(after - one for one, after in zip(before, remote.commands(), strict=True)))
        seconds.append(done.seconds)
    most = max(seen, key=max)
    if min(most) < 1:
        raise CannotMeasure(f"sshd wrote down {most} commands; a status that asks nobody cannot be")
    return most, median(seconds)


def run_or_fail(remote: Remote, verb: str) -> None:
    done = timed(remote.local(verb), environment=environment(), cwd=remote.folder)
    if done.exit:
        raise CannotMeasure(f"sparkctl {verb} ended with exit code {done.exit}: {done.out}{done.err}")


def environment() -> dict[str, str]:
    """Without an agent: the keys are those of the servers."""
    return {name: value for name, value in clean_environment().items() if name != "SSH_AUTH_SOCK"}


def write_ssh_config(remote: Remote) -> None:
    names = zip(("head", "worker"), remote.nodes, strict=True)
    texts = (node.ssh_config.read_text().replace("Host node\n", f"Host {name}\n") for name, node in names)
    remote.ssh_config.write_text("".join(texts))


def write_server(remote: Remote) -> None:
    """A stand-in with vLLM's shape: `vllm serve MODEL ... --port N [--headless]`."""
    site = remote.folder / "server" / "lib" / "python3" / "site-packages" / "vllm-0.32.0.dist-info"
    site.mkdir(parents=True)
    program = remote.folder / "server" / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        f"argv = [sys.executable, {str(STANDIN)!r}]\n"
        "if '--headless' not in sys.argv:\n"
        "    argv += ['--port', sys.argv[sys.argv.index('--port') + 1]]\n"
        "os.execv(argv[0], argv)\n"
    )
    program.chmod(0o755)
    model = remote.folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))


def _true(remote: Remote) -> None:
    subprocess.run(["ssh", "-F", str(remote.ssh_config), "head", "true"], check=True, stdin=subprocess.DEVNULL)


def _seconds(act: Callable[[], None]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began
