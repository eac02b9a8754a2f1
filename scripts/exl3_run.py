"""One run of the EXL3 proof: where things lie, what it calls, and what has come out so far. A part of gpu_exl3.py."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = "9.0"
CONTEXT = 2048
LONG = 90


class Failed(Exception):
    """What a part saw instead of what it wanted."""


@dataclass
class Run:
    """One run of all parts: where things lie, and what has come out so far."""

    folder: Path
    keep: Path
    seen: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def part(self, name: str, act: Callable[..., None], *given: Any) -> None:
        began = time.monotonic()
        try:
            act(self, *given)
        except Exception as error:  # a thread's root: the other parts go on
            self.failed.append(name)
            print(f"{name}: FAILED after {time.monotonic() - began:.1f} s: {type(error).__name__}: {error}", flush=True)
        else:
            print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)

    def call(self, *words: str | Path, limit: float = LONG, cwd: Path = ROOT, **more: str) -> str:
        argv, env = [str(one) for one in words], self.environment | more
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit, env=env, cwd=cwd)
        log = self.keep / "commands.log"
        with log.open("a") as file:
            file.write(f"$ {' '.join(argv)}\n{done.stdout}{done.stderr}-> {done.returncode}\n\n")
        if done.returncode:
            raise Failed(f"{' '.join(argv[:5])} ended with {done.returncode}: {(done.stderr or done.stdout)[-1500:]}")
        return done.stdout

    def checks(self, *words: str | Path, cwd: Path) -> dict[str, Any]:
        """A report that is wanted although it ends with a refusal."""
        argv = [sys.executable, "-m", "cluster", *map(str, words), "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LONG, env=self.environment, cwd=cwd)
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"event": "nothing"}
        if told["event"] == "failed" and told["error"] != "Refused":
            raise Failed(f"{' '.join(map(str, words))}: {told}")
        if told["event"] == "nothing":
            raise Failed(f"{' '.join(map(str, words))} said nothing: {done.stderr[-1500:]}")
        return told

    def sparkctl(self, *words: str | Path, limit: float = LONG, cwd: Path = ROOT) -> dict[str, Any]:
        told = self.call(sys.executable, "-m", "cluster", *words, "--json", limit=limit, cwd=cwd)
        return json.loads(told.splitlines()[-1])  # type: ignore[no-any-return]

    def together(self, *parts: tuple[Any, ...]) -> None:
        """Each part in a thread of its own, whatever becomes of the others: (name, what to do, with what)."""
        with ThreadPoolExecutor() as pool:
            for one in [pool.submit(self.part, *part) for part in parts]:
                one.result()
