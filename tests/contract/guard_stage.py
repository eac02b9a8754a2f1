"""One story for the memory guard with real processes, inside a process namespace of its own: guard_stage.py JSON

What is available is 2 GiB less what the processes in here hold, written to a file that the guard reads instead of
/proc/meminfo: the machine itself never runs short, and nobody else's processes can spoil a story.

Argument: {"folder", "seconds", "server": [MIB, AFTER, RATE, MORE], "stranger": [...] | null, "cache": MiB,
"spec": {...}, "second": bool, "kill_guard": bool, "stuck_disk": bool}. Answer: what is left of it all, as JSON.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from cluster.app.agents import source
from cluster.app.guard import program as guard_program
from cluster.model.bundle import bundle
from cluster.runtime.native import LOOK_PARTS, RANK_PARTS

MIB = 1 << 20
ALL = 2048 * MIB
BALLOON = Path(__file__).with_name("balloon.py")
PYTHON = sys.executable


class Meminfo(threading.Thread):
    """Keeps the file true, twenty times a second."""

    def __init__(self, path: Path, cache: int, still: bool = False) -> None:
        super().__init__(daemon=True)
        self.path, self.cache, self.still = path, cache, still
        self.write()

    def run(self) -> None:
        while True:
            self.write()
            time.sleep(0.05)

    def write(self) -> None:
        available = ALL if self.still else max(0, ALL - sum(map(anonymous, pids())))
        free = max(0, available - self.cache)
        lines = {"MemTotal": ALL, "MemFree": free, "MemAvailable": available, "Shmem": 0, "SUnreclaim": 0}
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{name}: {size // 1024} kB\n" for name, size in lines.items()))
        new.replace(self.path)


def pids() -> list[int]:
    names = (path.name for path in Path("/proc").iterdir())
    return [int(name) for name in names if name.isdigit() and int(name) != os.getpid()]


def anonymous(pid: int) -> int:
    try:
        words = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(words[1]) - int(words[2])) * 4096


def ask(text: bytes, verb: str, request: Any) -> Any:
    done = subprocess.run([PYTHON, "-IS", "-", verb, json.dumps(request)], input=text, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{verb}: {done.stdout.decode()} {done.stderr.decode()}")
    return json.loads(done.stdout)


class Rank:
    """A rank and its guard on a node of their own: a state folder, a meminfo."""

    def __init__(self, story: dict[str, Any], number: int) -> None:
        self.number = number
        self.root = Path(story["folder"]) / f"node{number}"
        self.dir = self.root / "deployments" / "g" / "boots" / "B" / f"rank{number}"
        self.dir.mkdir(parents=True)
        self.programs = {"guard": guard_program(), "rank": bundle(source(part) for part in RANK_PARTS)}
        for name, text in self.programs.items():
            (self.root / f"{name}.py").write_bytes(text)
        server = story["server"] if number == 0 else [50, 0, 0, 0]
        spec = {
            "deployment": "g", "boot": "B", "rank": number, "node": f"n{number}",
            "argv": [PYTHON, str(BALLOON), *map(str, server)], "env": {}, "secrets": {}, "cwd": None,
        }  # fmt: skip
        (self.dir / "spec.json").write_text(json.dumps(spec))
        Meminfo(self.root / "meminfo", story["cache"] * MIB, still=number > 0).start()
        ports = [story["port"], story["port"] + 1]
        order = {
            "mode": "act", "warn": 900 * MIB, "floor": 600 * MIB, "last": 400 * MIB, "foreign": "leave",
            "allowance": None, "drop": [], "ranks": [str(self.dir)], "grace": 5.0, "address": "127.0.0.1",
            "port": ports[number], "peers": [["127.0.0.1", ports[1 - number]]] if story["second"] else [],
            "token": "t", "meminfo": str(self.root / "meminfo"), **story["spec"],
        }  # fmt: skip
        (self.dir / "guard-spec.json").write_text(json.dumps(order))

    def start(self) -> None:
        guard = {"dir": str(self.dir), "program": str(self.root / "guard.py"), "unit": None}
        self.guard = ask(self.programs["guard"], "launch", guard)
        self.score = int(Path(f"/proc/{self.guard['pid']}/oom_score_adj").read_text())
        ask(self.programs["rank"], "launch", {**guard, "program": str(self.root / "rank.py")})

    def stick_disk(self) -> None:
        """The guard's log takes no line any more and whoever writes one waits for ever, as on a disk that hangs."""
        log = self.dir / "guard.log"
        log.unlink()
        os.mkfifo(log)

    def read(self, name: str) -> Any:
        path = self.dir / name
        return json.loads(path.read_text()) if path.exists() else None

    def told(self) -> dict[str, Any]:
        log = self.dir / "guard.log"
        lines = log.read_text().splitlines() if log.is_file() else []
        evidence = self.read("guard-evidence.json")
        request = {"root": str(self.root), "deployment": "g", "ranks": None, "boot": None, "http": None, "log_lines": 0}
        look = ask(bundle(source(part) for part in LOOK_PARTS), "look", request)
        return {
            "oom_score_adj": self.score,
            "record": self.read("guard.json"), "log": [json.loads(line) for line in lines],
            "exit": self.read("exit.json"), "stop": self.read("stop.json"),
            "evidence": sorted(evidence) if evidence else None, "samples": len(evidence["samples"]) if evidence else 0,
            "state": look["ranks"][0]["state"], "guard": look["ranks"][0]["guard"],
        }  # fmt: skip


def main() -> None:
    story = json.loads(sys.argv[1])
    ranks = [Rank(story, number) for number in range(2 if story["second"] else 1)]
    for rank in ranks:
        rank.start()
    stranger = None
    if story["stranger"]:
        link = Path(story["folder"]) / "ffmpeg"
        link.symlink_to(os.path.realpath(PYTHON))
        argv = [str(link), str(BALLOON), *map(str, story["stranger"])]
        stranger = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL)
    if story["stuck_disk"]:
        ranks[0].stick_disk()
    if story["kill_guard"]:
        os.kill(ranks[0].guard["pid"], signal.SIGKILL)
    until = time.monotonic() + story["seconds"]
    while time.monotonic() < until and not all((rank.dir / "exit.json").exists() for rank in ranks):
        time.sleep(0.1)
    time.sleep(1.5)  # a guard looks once a second whether its rank is still there
    state = Path(f"/proc/{stranger.pid}/stat").read_text().split(") ")[1][0] if stranger else ""
    told = {"ranks": [rank.told() for rank in ranks], "stranger": state, "pid": stranger.pid if stranger else 0}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
