"""The `sparkctl` process itself: what it imports, how it completes words, how it ends."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract

ROOT = Path(__file__).resolve().parents[2]
SLOW = ("fabric", "invoke", "paramiko", "cryptography", "rich", "docker", "requests", "yaml", "psutil", "cluster.app")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Nothing of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARKCTL_", "_SPARKCTL_"))}
    return kept | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "dumb"}


def run(environment: dict[str, str], folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cluster", *words],
        cwd=folder,
        env=environment | more,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# ---- what --help costs


def loaded(environment: dict[str, str], *words: str) -> set[str]:
    code = (
        "import sys, contextlib, io\n"
        "from cluster.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        f"    main({list(words)!r}) if {bool(words)} else None\n"
        "print('\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("words", [(), ("--help",), ("start", "--help"), ("--version",)])
def test_help_imports_nothing_slow(environment, words):
    modules = loaded(environment, *words)
    assert "cluster.cli.commands" in modules
    assert [name for name in SLOW if name in modules] == []


# ---- completion


def test_every_shell_has_its_script(environment, tmp_path):
    """bash is asked for its version by click, so it may be missing on a machine; the others need nothing."""
    for shell in ("zsh", "fish", *(["bash"] if shutil.which("bash") else [])):
        done = run(environment, tmp_path, "completion", shell)
        assert (done.returncode, done.stderr) == (0, "")
        assert "_SPARKCTL_COMPLETE" in done.stdout


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_the_script_is_valid_for_its_shell(environment, tmp_path, shell, check):
    if not shutil.which(shell):
        pytest.skip(f"not run: {shell} is not installed")
    script = tmp_path / f"complete.{shell}"
    script.write_text(run(environment, tmp_path, "completion", shell).stdout)
    done = subprocess.run([shell, check, script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def complete(environment: dict[str, str], folder: Path, words: str, number: int) -> list[str]:
    done = run(environment, folder, _SPARKCTL_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(number))
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_words_are_completed(environment, tmp_path):
    assert complete(environment, tmp_path, "sparkctl st", 1) == ["start", "status", "stop"]
    assert "--recipe" in complete(environment, tmp_path, "sparkctl start --re", 2)
    assert complete(environment, tmp_path, "sparkctl completion f", 2) == ["fish"]


# ---- how it ends


def test_a_closed_pipe_ends_it_quietly(environment, tmp_path):
    """`sparkctl config --all | head -1`, with more than a pipe holds."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cluster", "config", "--all", "--json"],
            cwd=tmp_path,
            env=environment,
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write)
    assert done.stderr == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_130(environment, tmp_path, number):
    """While it waits between two looks at nodes that are this machine."""
    said = ["--set", "HEAD_IP=127.0.0.1", "--set", "WORKER_IP=127.0.0.1", "--set", "DEPLOYMENT=nothing"]
    said += ["--set", f"HEAD_STATE_DIR={tmp_path}", "--set", f"WORKER_STATE_DIR={tmp_path}"]
    said += ["--set", "HEAD_SSH=local", "--set", "WORKER_SSH=local"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cluster", "status", "--watch", "--json", *said],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert '"event": "status"' in process.stdout.readline()
        time.sleep(0.2)
        began = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert (process.returncode, err) == (130, "")
    assert '"error": "Interrupted"' in out
    assert time.monotonic() - began < 5


def test_wrong_usage_costs_no_import_and_ends_with_2(environment, tmp_path):
    done = run(environment, tmp_path, "strat")
    assert done.returncode == 2
    assert "start" in done.stderr
