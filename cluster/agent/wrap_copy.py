"""Run a Python program in a copy of the wrapper instead of a new interpreter. A part of `wrap`."""

from __future__ import annotations

import os
import signal
import sys


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
