"""Keep a node from running out of memory. Runs beside a rank and ends with it; sent as one file with its parts.

    guard.py launch JSON   {"dir", "program": path of this file here, "unit": name | null}; prints guard.json
    guard.py stop JSON     {"dir"}; prints {"was": whether it still ran}
    guard.py run DIR       what launch starts

DIR is the rank's folder; there lie
    guard-spec.json      {"mode": "watch"|"act","floor","warn","last": bytes,"foreign": "leave"|"freeze"|"stop",
                          "allowance": bytes planned for our ranks here | null,"drop": [folder of a model, ...],
                          "ranks": [folder of each rank on this node, ...],"grace": seconds,
                          "address","port","peers": [[address, port], ...],"token","meminfo": path | null}
    guard.json           {"pid","ticks","kernel_boot","mode","floor","started","hard": {"oom_score_adj","locked"},
                          "lowest": bytes,"did": [{"at","what"}],"ended": sentence | null}
    guard.log            one JSON object a line, on the disk before anything is done, if the disk takes it in 2 s
    guard-evidence.json  the last half minute, written before our ranks are stopped

Guards of one boot tell each other over UDP when ranks must stop, signed with a token that only this boot has: the
fabric is what the ranks need anyway, and no login has to work for it.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import glob
import hashlib
import hmac
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Deque, Dict, List, Optional

from cluster.agent.guard_disk import Disk
from cluster.agent.guard_eyes import ALERT, CALM, Eyes, meminfo
from cluster.agent.guard_rule import PROTECTED, Action, Past, Rules, Sample, decide
from cluster.agent.own import (
    Json,
    fail,
    kernel_boot,
    processes,
    read,
    read_json,
    read_process,
    send,
    shim_of,
    stamp,
    systemd_manager,
    whole_path,
)

KEPT = 30.0  # seconds of samples for the evidence
TICK, TICK_CALM = 30.0, 300.0
LOADED = 1800.0  # a boot is over by then
HELLO = 5.0
SETTLE = 2.0  # seconds that evidence may take to be on the disk; then what must be done is done without it
REPEAT = 10.0  # seconds for which the others are told to stop
COMING = 300.0  # the rank is launched right after us
CHECKED = 1.0
PRESSURE = "/proc/pressure/memory"


class Peers:
    """The guards of the other nodes. A word is said again and again: it may be lost, and it costs nothing."""

    def __init__(self, spec: Json) -> None:
        self.token = str(spec["token"]).encode()
        self.others = [(str(address), int(port)) for address, port in spec["peers"]]
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind((spec["address"], int(spec["port"])))

    def say(self, word: str) -> None:
        body = json.dumps({"word": word, "at": time.time()}).encode()
        for other in self.others:
            with contextlib.suppress(OSError):  # a link that is down now may be up for the next one
                self.socket.sendto(self.sign(body) + body, other)

    def words(self) -> List[str]:
        found: List[str] = []
        while True:
            try:
                data = self.socket.recv(4096)
            except OSError:
                return found
            if hmac.compare_digest(data[:64], self.sign(data[64:])):
                found.append(str(json.loads(data[64:])["word"]))

    def sign(self, body: bytes) -> bytes:
        return hmac.new(self.token, body, hashlib.sha256).hexdigest().encode()


class Guard:
    def __init__(self, folder: str) -> None:
        self.folder, self.disk = folder, Disk()
        self.spec = read_json(os.path.join(folder, "guard-spec.json"))
        self.rules = rules_of(self.spec)
        self.meminfo = self.spec.get("meminfo") or "/proc/meminfo"
        self.eyes = Eyes([whole_path(one) for one in self.spec["ranks"]], self.meminfo)
        self.past = Past()
        self.samples: Deque[Sample] = collections.deque()
        self.peers: Optional[Peers] = None
        self.stopped_at: Optional[float] = None
        self.asked = False
        self.record: Json = {}

    def run(self) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self.on_term)
        hard, me = harden(), read_process(os.getpid())
        self.record = {
            "pid": os.getpid(), "ticks": me.ticks if me else 0, "kernel_boot": kernel_boot(), "mode": self.spec["mode"],
            "floor": self.rules.floor, "started": stamp(time.time()), "hard": hard, "lowest": None, "did": [],
            "ended": None,
        }  # fmt: skip
        self.save()
        self.log("began", rules=self.rules._asdict(), hard=hard)
        reason = "a bug"
        try:
            reason = self.watch()
        finally:
            self.record["ended"] = reason
            self.save()
            self.log("ended", why=reason)
            self.disk.settle(SETTLE)

    def watch(self) -> str:
        began = time.monotonic()
        next_tick = next_hello = next_check = began
        while True:
            at = time.monotonic()
            sample = self.look(at)
            self.past, actions = decide(self.past, sample, self.rules)
            for action in actions:
                self.act(action, sample)
            if at >= next_tick:
                is_calm = at - began > LOADED and sample.available >= self.rules.warn
                next_tick = at + (TICK_CALM if is_calm else TICK)
                self.log("look", **self.figures(sample))
                self.save()
            if at >= next_hello and self.spec["peers"]:
                next_hello = at + HELLO
                self.greet()
            over = self.is_over(at - began, at >= next_check)
            next_check = at + CHECKED if at >= next_check else next_check
            if over:
                return over
            self.listen(at, ALERT if sample.available < self.rules.warn else CALM)

    def greet(self) -> None:
        """Again and again: the guard of the boot before may still hold the port for a moment."""
        try:
            self.peers = self.peers or Peers(self.spec)
        except OSError as error:
            self.log("alone", why="no word to or from the other nodes: %s" % error)
            return
        self.peers.say("here")

    def look(self, at: float) -> Sample:
        sample = self.eyes.look(at, bool(self.samples) and self.samples[-1].available < self.rules.warn)
        self.samples.append(sample)
        while self.samples[0].at < at - KEPT:
            self.samples.popleft()
        lowest = self.record["lowest"]
        self.record["lowest"] = sample.available if lowest is None else min(lowest, sample.available)
        return sample

    def figures(self, sample: Sample) -> Json:
        return {
            "available": sample.available, "free": sample.free, "lowest": self.record["lowest"], "ours": sample.ours,
            "pressure": read(PRESSURE).split("\n")[0],
        }  # fmt: skip

    def is_over(self, age: float, thoroughly: bool) -> str:
        """Why there is nothing left to guard, or ""."""
        if self.asked:
            return "asked to"
        if os.path.exists(os.path.join(self.folder, "exit.json")):
            return "the rank ended"
        if not os.path.exists(os.path.join(self.folder, "rank.json")):
            return "the rank never came" if age > COMING else ""
        return "the rank is gone" if thoroughly and not self.eyes.mine(processes()) else ""

    def listen(self, at: float, pause: float) -> None:
        """Wait for the next look, or for a word of another node."""
        if self.peers is None:
            time.sleep(pause)
            return
        if self.stopped_at is not None and at - self.stopped_at < REPEAT:
            self.peers.say("stop")
        select.select([self.peers.socket], [], [], pause)
        if "stop" in self.peers.words() and not self.past.stopped and self.rules.acts:
            self.past = self.past._replace(stopped=True)
            self.stop_ours("another node of this deployment is out of memory")

    def act(self, action: Action, sample: Sample) -> None:
        if action.kind == "stop":
            self.stopped_at = sample.at
            if self.peers:
                self.peers.say("stop")
            self.stop_ours(action.why)
            return
        self.log(action.kind, why=action.why, pid=action.pid, **self.figures(sample))
        self.disk.settle(SETTLE)
        if action.kind == "drop":
            before = meminfo(self.meminfo)["MemFree"]
            files = drop_cache(self.spec["drop"])
            self.note("dropped %d files from the page cache, %d MiB came free" % (
                files, (meminfo(self.meminfo)["MemFree"] - before) >> 20))  # fmt: skip
        elif action.kind == "warn":
            self.note(action.why)
        else:
            number = {"freeze": signal.SIGSTOP, "end": signal.SIGTERM, "kill": signal.SIGKILL}[action.kind]
            self.note("%s: %d processes; %s" % (action.kind, signal_session(action.key, number), action.why))

    def stop_ours(self, why: str) -> None:
        """Evidence first, on the disk; then the rank's own shim ends it as it always does."""
        evidence = {
            "at": stamp(time.time()), "why": why, "begin": self.past.begin and self.past.begin._asdict(),
            "samples": [dict(one._asdict(), trees=largest(one)) for one in self.samples],
            "meminfo": read(self.meminfo), "pressure": read(PRESSURE), "gpu": self.eyes.gpu,
        }  # fmt: skip
        self.disk.write(os.path.join(self.folder, "guard-evidence.json"), json.dumps(evidence))
        self.log("stop", why=why)
        self.note("stopped our ranks; %s" % why)
        wish = {"at": stamp(time.time()), "grace": float(self.spec["grace"]), "by": "guard", "why": why}
        self.disk.write(os.path.join(self.folder, "stop.json"), json.dumps(wish))
        self.disk.settle(SETTLE)  # the signal alone is wish enough
        table = processes()
        shim = shim_of(self.folder, table)
        for process in [shim] if shim else list(self.eyes.mine(table).values()):
            send(process.pid, process.ticks, signal.SIGTERM)

    def note(self, what: str) -> None:
        self.record["did"] = [*self.record["did"][-9:], {"at": stamp(time.time()), "what": what}]
        self.save()

    def save(self) -> None:
        self.disk.write(os.path.join(self.folder, "guard.json"), json.dumps(self.record))

    def log(self, event: str, **more: Any) -> None:
        line = json.dumps({"at": stamp(time.time()), "event": event, **more}) + "\n"
        self.disk.append(os.path.join(self.folder, "guard.log"), line)

    def on_term(self, number: int, frame: Any) -> None:
        self.asked = True


def largest(sample: Sample) -> List[Any]:
    return sorted(sample.trees, key=lambda tree: -tree.size)[:10]


def rules_of(spec: Json) -> Rules:
    return Rules(
        warn=int(spec["warn"]), floor=int(spec["floor"]), last=int(spec["last"]), acts=spec["mode"] == "act",
        foreign=str(spec["foreign"]), allowance=spec.get("allowance"), drops=bool(spec.get("drop")),
    )  # fmt: skip


def drop_cache(folders: List[str]) -> int:
    """Only the model's own files: they were read once and are not read again."""
    count = 0
    for path in [
        path for folder in folders for path in glob.glob(os.path.join(os.path.expanduser(folder), "*.safetensors"))
    ]:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            count += 1
    return count


def signal_session(session: int, number: int) -> int:
    """The processes of a session, but none that the node lives by."""
    members = [one for one in processes().values() if one.session == session and one.pid not in (1, os.getpid())]
    chosen = [one for one in members if not one.comm.startswith(PROTECTED)]
    for one in chosen:
        with contextlib.suppress(OSError):
            send(one.pid, one.ticks, number)
    return len(chosen)


def harden() -> Json:
    """Last in the kernel's line, and never swapped out; what the account may not do is left undone and told."""
    done: Dict[str, bool] = {"oom_score_adj": False, "locked": False}
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")
        file.flush()  # what the account may not do is refused here
        done["oom_score_adj"] = True
    current_and_future = 3
    done["locked"] = ctypes.CDLL(None).mlockall(current_and_future) == 0
    return done


def launch(request: Json) -> Json:
    """Start apart from us, and wait until it says who it is."""
    folder, program = whole_path(request["dir"]), whole_path(request["program"])
    if not os.path.exists(os.path.join(folder, "guard-spec.json")):
        fail(2, "there is no guard-spec.json in %s" % folder)
    argv = [sys.executable, "-IS", program, "run", folder]
    manager = systemd_manager() if request.get("unit") else None
    if manager:
        unit = ["systemd-run", "--" + manager, "--unit=" + request["unit"], "--collect", "--quiet"]
        properties = ["--property=Type=exec", "--property=LimitMEMLOCK=infinity"]
        words = [word.replace("$", "$$") for word in argv]
        started = subprocess.run([*unit, *properties, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if started.returncode:
            fail(4, "systemd-run failed: %s" % started.stderr.decode("utf-8", "replace").strip())
    else:
        with open(os.path.join(folder, "guard.err"), "ab") as err:
            subprocess.Popen(argv, start_new_session=True, stdin=subprocess.DEVNULL, stdout=err, stderr=err, cwd="/")
    until = time.monotonic() + 10.0
    while not os.path.exists(os.path.join(folder, "guard.json")):
        if time.monotonic() > until:
            fail(4, "the guard did not come up: %s" % read(os.path.join(folder, "guard.err"))[-1000:])
        time.sleep(0.02)
    return read_json(os.path.join(folder, "guard.json"))


def stop(request: Json) -> Json:
    """End a guard that is still there; it is the same process only if it began at the same moment."""
    record = read_json(os.path.join(whole_path(request["dir"]), "guard.json"))
    was, until = is_alive(record), time.monotonic() + 5.0
    while is_alive(record):
        send(record["pid"], record["ticks"], signal.SIGTERM if time.monotonic() < until else signal.SIGKILL)
        time.sleep(0.05)
    return {"was": was}


def is_alive(record: Json) -> bool:
    process = read_process(int(record.get("pid") or 0))
    same_kernel = record.get("kernel_boot") == kernel_boot()
    return bool(same_kernel and process and process.ticks == record.get("ticks") and process.state not in "ZX")


def main(words: List[str]) -> None:
    if len(words) != 2 or words[0] not in ("run", "launch", "stop"):
        fail(2, "use: run DIR | launch JSON | stop JSON")
    if words[0] == "run":
        Guard(whole_path(words[1])).run()
        return
    request = json.loads(words[1])
    print(json.dumps(launch(request) if words[0] == "launch" else stop(request)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
