"""The shim: parent of one rank's server for as long as it lives, and the end of everything below it."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import subprocess
import time
from typing import Callable, Dict, List, Mapping, Optional, Set, Tuple

from cluster.agent.box import attach_words, box_of, end_in_box, how_box_ended, main_in_box
from cluster.agent.log import Lines, Log
from cluster.agent.own import (
    MARK,
    Json,
    Process,
    descendants,
    fail,
    is_same,
    kernel_boot,
    memory,
    processes,
    read,
    read_json,
    read_process,
    send,
    stamp,
)

# All else stays out: a variable exported on one node only would make the ranks unequal.
INHERITED = (
    "HOME", "LOGNAME", "USER", "SHELL", "PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR",
)  # fmt: skip
LEFTOVER_GRACE = 5.0
BOX_WAIT = 8.0
PIPE_GRACE = 2.0
ROOM = 4096


class Shim:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.spec = read_json(os.path.join(folder, "spec.json"))
        self.lines = Lines()
        self.main = 0
        self.status: Optional[int] = None
        self.requested = False
        self.kill_at: Optional[float] = None
        self.seen: Set[Tuple[int, int]] = set()
        self.killed: Set[int] = set()
        self.box = box_of(folder)
        self.boxed: Optional[Tuple[int, int]] = None

    def run(self) -> None:
        lock = take_lock(self.folder)
        become_guardian()
        self.log = Log(
            os.path.join(self.folder, "log"), self.spec.get("log_bytes", 64 << 20), self.spec.get("keep_logs", 2)
        )
        self.wake = catch_signals(self.ask_to_stop)
        self.pipe, output = os.pipe()
        try:
            self.main = start_server(self.folder, self.spec, output)
        except (OSError, ValueError, KeyError) as error:
            self.record_exit(None, None, 0, "the server did not start: %s" % error)
            return
        os.close(output)
        self.record_start()
        if self.requested:
            send(self.main, None, signal.SIGTERM)
        self.serve()
        if self.killed:
            fill(
                self.folder,
                "exit.json",
                {**read_json(os.path.join(self.folder, "exit.json")), "killed": len(self.killed)},
            )
        os.close(lock)

    def serve(self) -> None:
        began = time.monotonic()
        next_record, empty_since = began, 0.0
        while self.pipe >= 0 or not empty_since:
            now = time.monotonic()
            if now >= next_record:
                next_record = now + (2.0 if now < began + 120 else 10.0)
                self.record_processes()
            self.pump()
            self.reap()
            self.end_in_time()
            if self.status is not None and not empty_since and not self.below():
                empty_since = now
            if empty_since and now > empty_since + PIPE_GRACE:
                return  # somebody who is not below us holds the pipe

    def below(self) -> List[Process]:
        """All that descends from us; nothing escapes, as orphans become children of the subreaper that we are."""
        table = processes()
        boxed = {self.boxed[0]} if self.boxed and is_same(*self.boxed) else set()
        return [table[pid] for pid in descendants({os.getpid()} | boxed, table) | boxed if pid in table]

    def ask_to_stop(self) -> None:
        if self.requested or self.status is not None:
            return
        self.requested = True
        wish = read_json(os.path.join(self.folder, "stop.json"))
        self.kill_at = time.monotonic() + float(wish.get("grace", 15.0))
        if self.main:
            send(self.main, None, signal.SIGTERM)

    def pump(self) -> None:
        """Wait a moment for output or a signal. What has no end after a second is a line too: it may be the last."""
        ready = select.select([self.wake] + ([self.pipe] if self.pipe >= 0 else []), [], [], 1.0)[0]
        if self.wake in ready:
            os.read(self.wake, 512)
        lines: List[bytes] = []
        if self.pipe in ready:
            data = os.read(self.pipe, 1 << 16)
            lines = self.lines.feed(data)
            if not data:
                os.close(self.pipe)
                self.pipe = -1
        if not ready or self.pipe < 0:
            lines += self.lines.flush()
        if lines:
            self.log.add(lines, time.time())

    def reap(self) -> None:
        """Collect ended children, adopted ones too; when the main process is among them, all else must go."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self.main:
                self.status = status
                self.main_has_ended(status)

    def main_has_ended(self, status: int) -> None:
        """A killed API server leaves engine and worker behind, and they would hold their memory for ever."""
        inside, words = how_box_ended(self.box) if self.box else (None, None)
        left = self.below()
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        if inside is not None:
            code, ended_by = inside, None
        self.record_exit(code, ended_by, len(left), words)
        for process in left:
            send(process.pid, process.ticks, signal.SIGTERM)
        self.kill_at = time.monotonic() + LEFTOVER_GRACE

    def end_in_time(self) -> None:
        if self.kill_at is not None and time.monotonic() >= self.kill_at:
            self.kill_at = time.monotonic() + 1.0
            doomed = self.below()
            if self.box and self.boxed:
                end_in_box(self.box)
            for process in doomed:
                self.killed.add(process.pid)
                send(process.pid, process.ticks, signal.SIGKILL)

    def record_start(self) -> None:
        me, main = read_process(os.getpid()), read_process(self.main)
        self.boxed = self.await_box()
        fill(self.folder, "rank.json", {
            "pid": os.getpid(), "ticks": me.ticks if me else 0, "kernel_boot": kernel_boot(), "session": os.getsid(0),
            "main": [self.main, main.ticks if main else 0],
            "unit": os.environ.get("SPARKCTL_UNIT"), "manager": os.environ.get("SPARKCTL_MANAGER"),
            "box": self.boxed, "program": at_home(self.spec["argv"][0]),
            "started": stamp(time.time()), "available": memory()[2],
        })  # fmt: skip

    def await_box(self) -> Optional[Tuple[int, int]]:
        """The container's process 1, once it runs; None when it never came to run, which its client then says."""
        until = time.monotonic() + BOX_WAIT
        while self.box and time.monotonic() < until:
            boxed = main_in_box(self.box)
            if boxed or os.waitid(os.P_PID, self.main, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return boxed
            time.sleep(0.05)
        return None

    def record_processes(self) -> None:
        seen = {(process.pid, process.ticks) for process in self.below()}
        if not seen <= self.seen:
            self.seen = seen
            fill(self.folder, "processes.json", {"kernel_boot": kernel_boot(), "seen": sorted(seen)[:150]})

    def record_exit(self, code: Optional[int], ended_by: Optional[int], left: int, error: Optional[str]) -> None:
        fill(self.folder, "exit.json", {
            "code": code, "signal": ended_by, "at": stamp(time.time()),
            "requested": self.requested, "left_behind": left, "killed": 0, "error": error,
        })  # fmt: skip


def start_server(folder: str, spec: Json, output: int) -> int:
    process = subprocess.Popen(
        attach_words(spec["container"]) if spec.get("container") else [at_home(word) for word in spec["argv"]],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=server_environment(folder, spec, os.environ),
        cwd=os.path.expanduser(spec.get("cwd") or "~"),
        preexec_fn=be_first_to_go,  # noqa: PLW1509  the shim has one thread
    )
    process.returncode = 0  # reaped by us, with all the others
    return process.pid


def be_first_to_go() -> None:
    """In the child: a group of its own, as a server may signal all its group; first in line when memory runs out."""
    os.setpgid(0, 0)
    weigh_in(1000)


def server_environment(folder: str, spec: Json, inherited: Mapping[str, str]) -> Dict[str, str]:
    """A few variables of the user, ours, the spec's, and the secrets."""
    env = {name: inherited[name] for name in INHERITED if name in inherited}
    program = at_home(spec["argv"][0])
    if os.path.isabs(program):  # the tools beside it (ninja) are found without activating its environment
        env["PATH"] = os.path.dirname(program) + os.pathsep + env.get("PATH", os.defpath)
    env.update({"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", MARK: folder})
    env.update({name: at_home(value) for name, value in spec.get("env", {}).items()})
    env.update({name: read_secret(os.path.expanduser(path)) for name, path in spec.get("secrets", {}).items()})
    return env


def at_home(word: str) -> str:
    """`~/` at the start of a word is the home on this node."""
    return os.path.expanduser(word) if word.startswith("~/") else word


def read_secret(path: str) -> str:
    mode = os.stat(path).st_mode & 0o7777
    if mode & 0o077:
        raise ValueError("%s can be read by others (mode %04o); run: chmod 600 %s" % (path, mode, path))
    secret = read(path).strip()
    if not secret:
        raise ValueError("%s is empty or cannot be read" % path)
    return secret


def reserve(folder: str) -> None:
    """Take the room of the records while there is some: they must be writable when the disk is full."""
    for name in ("rank.json", "exit.json", "processes.json"):
        with open(os.path.join(folder, "." + name), "wb") as file:
            file.write(b" " * ROOM)
            file.flush()
            os.fsync(file.fileno())


def fill(folder: str, name: str, record: Json) -> None:
    """Write a record over its reserved room, then give it its name. The padding is white space to JSON."""
    path, room = os.path.join(folder, name), os.path.join(folder, "." + name)
    target = room if os.path.exists(room) else path
    with open(target, "r+b" if os.path.exists(target) else "wb") as file:
        file.write(json.dumps(record).encode().ljust(ROOM - 1) + b"\n")
    os.replace(target, path)


def take_lock(folder: str) -> int:
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fail(3, "this rank runs already: %s" % folder)
    return lock


def become_guardian() -> None:
    """A session of our own, parent of every orphan below, locked memory as far as allowed (RDMA pins buffers)."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    set_name, set_child_subreaper = 15, 36
    prctl = ctypes.CDLL(None).prctl
    if prctl(set_child_subreaper, 1, 0, 0, 0):
        fail(4, "the kernel did not let the shim adopt orphans")
    prctl(set_name, b"sparkctl-shim", 0, 0, 0)
    for kind in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (hard, hard))
    weigh_in(-500)
    os.chdir("/")


def weigh_in(score: int) -> None:
    """How soon the kernel ends us when memory runs out. Lowering needs rights that a user may lack."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(score))
    except OSError:
        pass


def catch_signals(on_stop: Callable[[], None]) -> int:
    """The read end of a pipe that gets a byte with each signal."""
    wake, written = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    # Functions, not SIG_IGN: what is ignored here would stay ignored in the server.
    for number in (signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: on_stop())
    return wake
