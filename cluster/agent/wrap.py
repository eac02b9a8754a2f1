"""Run one program on a node so that it always ends, and so that its output is only its own. Reads everything from fd 0.

The caller sends eight digits and this source, eight digits and a JSON request, the program's stdin, and keeps the
line open: `.` says that it lives, `s` asks to end the program, end of file says that it is gone. The answer is a
marker (what a login shell printed before it is noise) and frames: a letter, four bytes of length, the payload.
`o` and `e` carry output, `x` is the last one and says in JSON how it ended.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time

TYPE_CHECKING = False  # typing takes 10 ms to import, and every command would pay for it
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, Any

# A non-login shell leaves these out, and zfs, exportfs, snap's docker and nvcc live in them.
EXTRA_DIRS = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/snap/bin",
    "/usr/local/cuda/bin",
    "~/.local/bin",
)
GRACE = {"limit": 2.0, "stop": 0.5, "gone": 5.0}  # seconds from TERM to KILL
UNKILLABLE = 1.0  # seconds after KILL; a process in uninterruptible sleep never goes
DRAIN = 0.2  # seconds for children that keep the output open after their parent ended
CHUNK = 65536
PIPE_SIZE = 1024 * 1024  # the most that Linux lets a pipe hold, for those who may not ask for more
BACKLOG = 4 * 1024 * 1024  # unsent output beyond which the program has to wait


def take(size: int) -> bytes:
    """Exactly `size` bytes of the caller's line, fewer only when it ended. Never reads ahead."""
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def frame(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">cI", kind, len(data)) + data


def end(how: str, **details: object) -> bytes:
    return frame(b"x", json.dumps(dict(details, how=how)).encode())


def failed(error: OSError) -> bytes:
    return end("failed", code=errno.errorcode.get(error.errno or 0, ""), text=os.strerror(error.errno or 0))


def send(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


class Call:
    """The program, what is still to be sent to it and to the caller, and why it is being ended, if it is."""

    def __init__(
        self, child: subprocess.Popen[bytes] | Copy, request: dict[str, Any], stdin: bytes, told: list[int]
    ) -> None:
        self.child = child
        self.told = told
        self.stdin = memoryview(stdin)
        self.pipes = {pipe.fileno(): kind for pipe, kind in ((child.stdout, b"o"), (child.stderr, b"e")) if pipe}
        self.unsent = bytearray()
        self.limit = request["limit"]
        self.patience = request["patience"]
        self.started = self.heard = time.monotonic()
        self.reason: str | None = None
        self.kill_at: float | None = None
        self.killed = False
        self.ended_at: float | None = None
        self.done = False
        self.gone = False
        if child.stdin is not None:
            os.set_blocking(child.stdin.fileno(), False)

    def follow(self, wake: int) -> None:
        while not self.done or (self.unsent and not self.gone):
            busy = len(self.unsent) > BACKLOG
            reading = [wake] + ([] if self.gone else [0]) + ([] if busy else list(self.pipes))
            into = self.child.stdin
            writing = ([1] if self.unsent else []) + ([into.fileno()] if into else [])
            ready, writable, _ = select.select(reading, writing, [], self.wait())
            if wake in ready:
                os.read(wake, 512)
            if 0 in ready:
                self.listen()
            for pipe in [pipe for pipe in ready if pipe in self.pipes]:
                self.relay(pipe)
            if 1 in writable:
                self.flush()
            if into and into.fileno() in writable:
                self.feed(into)
            self.judge(time.monotonic())

    def wait(self) -> float:
        now = time.monotonic()
        times = [5.0]
        if self.limit is not None and not self.reason and not self.done:
            times.append(self.started + self.limit - now)
        if self.patience is not None:
            times.append(self.heard + self.patience - now)
        if self.kill_at is not None or self.ended_at is not None:
            times.append(0.05)
        return max(0.0, min(times))

    def listen(self) -> None:
        said = os.read(0, 512)
        self.heard = time.monotonic()
        if not said:
            self.lose()
        elif b"s" in said:
            self.begin_end("stop")

    def lose(self) -> None:
        self.gone = True
        self.unsent.clear()
        self.begin_end("gone")

    def begin_end(self, reason: str) -> None:
        if self.reason is None and not self.done:
            self.reason = reason
            self.kill_at = time.monotonic() + GRACE[reason]
            signal_session(self.child.pid, signal.SIGTERM)

    def drain(self) -> None:
        """What the program wrote before it ended is all in the pipes now, and ours even when the caller is slow."""
        for pipe in list(self.pipes):
            os.set_blocking(pipe, False)
            for _ in range(PIPE_SIZE // CHUNK):  # a child that writes for ever must not hold us here
                if pipe in self.pipes:
                    self.relay(pipe)

    def relay(self, pipe: int) -> None:
        try:
            data = os.read(pipe, CHUNK)
        except BlockingIOError:
            return
        if not data:
            del self.pipes[pipe]
        elif not self.gone and not self.done:
            self.unsent += frame(self.pipes[pipe], data)

    def flush(self) -> None:
        try:
            sent = os.write(1, bytes(self.unsent[:CHUNK]))
        except BlockingIOError:
            return
        except OSError:
            self.lose()
            return
        del self.unsent[:sent]

    def feed(self, pipe: IO[bytes]) -> None:
        try:
            sent = os.write(pipe.fileno(), self.stdin[:CHUNK])
            self.stdin = self.stdin[sent:]
        except BlockingIOError:
            return
        except OSError:  # it does not want to read the rest
            self.stdin = self.stdin[:0]
        if not self.stdin:
            pipe.close()
            self.child.stdin = None

    def judge(self, now: float) -> None:
        """End what has to end, and say so once nothing is left of it."""
        if self.done:
            return
        if self.told or (self.patience is not None and now - self.heard > self.patience):
            self.lose()
        if self.limit is not None and now - self.started > self.limit and self.ended_at is None:
            self.begin_end("limit")
        if self.ended_at is None and self.child.poll() is not None:
            self.ended_at = now
            self.drain()
        if self.kill_at is not None and now >= self.kill_at:
            if self.killed:
                self.finish(alive=any_left(self.child.pid))
                return
            self.killed = True
            self.kill_at = now + UNKILLABLE
            signal_session(self.child.pid, signal.SIGKILL)
        if self.ended_at is None:
            return
        if self.reason is not None:
            if not any_left(self.child.pid):
                self.finish()
        elif not self.pipes or now - self.ended_at > DRAIN:
            self.finish()

    def finish(self, alive: bool = False) -> None:
        code = self.child.returncode
        code = 128 + signal.SIGKILL if code is None else code if code >= 0 else 128 - code
        self.unsent += end(self.reason or "exit", exit=code, alive=alive)
        self.done = True


def session_members(session: int) -> Iterator[tuple[int, int]]:
    """(pid, its group) of every process of the session that is not a zombie."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % entry) as file:
                state, _, group, its_session = file.read().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):  # it ended while we looked
            continue
        if int(its_session) == session and state != "Z":
            yield int(entry), int(group)


def any_left(session: int) -> bool:
    return next(session_members(session), None) is not None


def signal_session(session: int, number: int) -> None:
    """The group of the program at once; then those of its session that made a group of their own."""
    with contextlib.suppress(OSError):
        os.killpg(session, number)
    for pid, group in session_members(session):
        if group != session:
            with contextlib.suppress(OSError):
                os.kill(pid, number)


def search_path(given: str) -> list[str]:
    dirs = [part for part in given.split(":") if part]
    for part in EXTRA_DIRS:
        full = os.path.expanduser(part)
        if full not in dirs:
            dirs.append(full)
    return dirs


def find(program: str, dirs: list[str], cwd: str | None) -> tuple[str | None, list[str]]:
    """The file to run and where we looked; None when it is in none of these places."""
    if "/" in program:
        candidates = [os.path.join(cwd or "", program)]
    else:
        candidates = [os.path.join(part, program) for part in dirs]
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate, dirs
    return None, candidates if "/" in program else dirs


def named(program: str) -> str:
    """`python3` is the one that runs us: it works, and the first on the path may be a version manager's slow script."""
    return sys.executable if program == "python3" and sys.executable else program


class Copy:
    """The copy of us that runs a Python program, as far as a Popen would be asked."""

    stdin = None

    def __init__(self, pid: int, out: int, err: int) -> None:
        self.pid = pid
        self.stdout, self.stderr = os.fdopen(out, "rb", 0), os.fdopen(err, "rb", 0)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def is_program_for_us(argv: list[str], stdin: bytes) -> bool:
    """`python3 -IS - ...` with its source on standard input: that is how we were started ourselves."""
    return argv[:3] == [sys.executable, "-IS", "-"] and bool(stdin)


def copy(argv: list[str], source: bytes, variables: dict[str, str], cwd: str | None) -> Copy:
    """Run the program in a copy of us. A new interpreter takes longer to start than most of them run."""
    (out, into_out), (err, into_err), (ready, tell) = os.pipe(), os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        os.setsid()
        os.write(tell, b".")
        become(argv, (into_out, into_err), variables, cwd)
        exec(compile(source, "<stdin>", "exec"), sys.modules["__main__"].__dict__)
        sys.exit()
    for descriptor in (into_out, into_err, tell):
        os.close(descriptor)
    os.read(ready, 1)  # before it has its session, nobody could end it
    os.close(ready)
    return Copy(pid, out, err)


def become(argv: list[str], outputs: tuple[int, int], variables: dict[str, str], cwd: str | None) -> None:
    """Leave nothing of ours behind: signals, descriptors, streams, variables, module."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(outputs[0], 1)
    os.dup2(outputs[1], 2)
    os.closerange(3, 64)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(variables)
    if cwd:
        os.chdir(cwd)
    sys.argv[:] = argv[2:]
    sys.modules["__main__"] = type(sys)("__main__")


def run(request: dict[str, Any], stdin: bytes) -> None:
    variables = dict(os.environ, LC_ALL="C")
    variables.update(request["env"])
    dirs = search_path(variables.get("PATH", ""))
    variables["PATH"] = ":".join(dirs)
    cwd = os.path.expanduser(request["cwd"]) if request["cwd"] else None
    if cwd and not os.path.isdir(cwd):
        return send(end("failed", code="ENOENT", text="the folder %s does not exist" % cwd))
    argv = [named(request["argv"][0]), *request["argv"][1:]]
    program, tried = find(argv[0], dirs, cwd)
    if program is None:
        return send(end("missing", tried=tried))
    wake, woken = os.pipe()
    for descriptor in (wake, woken):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    told = []  # signals that ask us to end; a handler may only leave a note
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda got, _: told.append(got))
    if is_program_for_us(argv, stdin):
        os.set_blocking(1, False)
        Call(copy(argv, stdin, variables, cwd), request, b"", told).follow(wake)
        os.set_blocking(1, True)
        return None
    try:
        child = subprocess.Popen(
            [to_bytes(argument) for argument in argv],
            executable=to_bytes(program),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={to_bytes(name): to_bytes(value) for name, value in variables.items()},
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        return send(failed(error))
    os.set_blocking(1, False)
    Call(child, request, stdin, told).follow(wake)
    os.set_blocking(1, True)
    return None


def read_file(path: str, start: int, length: int | None) -> Iterator[bytes]:
    """Yields the bytes in pieces."""
    with open(os.path.expanduser(path), "rb") as file:
        if start:
            file.seek(start)
        while length is None or length > 0:
            data = file.read(1 << 20 if length is None else min(length, 1 << 20))
            if not data:
                return
            length = None if length is None else length - len(data)
            yield data


def write_file(path: str, data: bytes, mode: int) -> None:
    """Nobody ever sees half a file: temporary name, fsync, rename, fsync of the folder."""
    path = os.path.expanduser(path)
    folder = os.path.dirname(path) or "."
    make_folders(folder)
    temporary = "%s.%d.%s.new" % (path, os.getpid(), os.urandom(4).hex())
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: str) -> None:
    if os.path.isdir(folder):
        return
    make_folders(os.path.dirname(folder) or ".")
    with contextlib.suppress(FileExistsError):  # somebody else made it, or a file is in the way: opening says which
        os.mkdir(folder, 0o700)


def serve(request: dict[str, Any], data: bytes) -> None:
    try:
        if request["do"] == "read":
            for part in read_file(request["path"], request["start"], request["length"]):
                send(frame(b"o", part))
        else:
            write_file(request["path"], data, request["mode"])
    except BrokenPipeError:
        return
    except OSError as error:
        send(failed(error))
    else:
        send(end("exit", exit=0, alive=False))


def main() -> None:
    size = take(8)
    request = json.loads(take(int(size))) if len(size) == 8 else None
    if request is None:
        return
    data = take(request["size"])
    if len(data) < request["size"]:
        return  # the caller is gone; half an input is worse than none
    send(to_bytes(request["marker"]))
    if request["do"] == "run":
        run(request, data)
    else:
        serve(request, data)
