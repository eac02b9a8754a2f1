"""Answer many questions in one round trip: commands and files to read. Runs on a node, from standard input.

Argument: a JSON list of {"file": "/path"} or {"argv": [...], "stdin": text, "limit": seconds}, the last two as needed;
answer: a JSON list of {"exit": n | null, "out", "err"} in the same order, asked side by side. `exit` is null when the
tool or the file is absent, 124 when it was given up. A `~/` at the start of a path is the home.

A dead NFS server must not hold up the other answers, and a busy node must not be taken for one: a limit is for the time
in which a command does nothing. One that works may take a minute, or as long as its own limit where that is longer.
"""

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

IDLE = 15.0  # seconds without a tick of processor time
LONGEST = 60.0
LOOK = 3.0
MOST = 4 * 1024 * 1024


def run(argv: list[str], stdin: str = "", limit: float = 0.0) -> dict[str, Any]:
    # the Python that runs us: the first of a login shell's PATH may be a shim that takes longer than the answer
    argv = [sys.executable if argv[0] == "python3" else argv[0], *argv[1:]]
    environment = dict(os.environ, LC_ALL="C")
    environment["PATH"] = environment.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin:/snap/bin"
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
    except FileNotFoundError:
        return {"exit": None, "out": "", "err": "not found: " + argv[0]}
    except OSError as error:
        return {"exit": 126, "out": "", "err": str(error)}
    given_up, out, err = hear(process, stdin.encode(), limit or IDLE, max(limit, LONGEST))
    if given_up:
        return {"exit": 124, "out": "", "err": given_up}
    return {
        "exit": process.returncode,
        "out": out[:MOST].decode("utf-8", "replace"),
        "err": err[:MOST].decode("utf-8", "replace"),
    }


def hear(process: subprocess.Popen[bytes], stdin: bytes, idle: float, longest: float) -> tuple[str, bytes, bytes]:
    """Why it was given up, or nothing; and both of its streams."""
    began = worked = time.monotonic()
    used, words = 0, stdin or None
    while True:
        try:
            return ("", *process.communicate(words, timeout=min(LOOK, idle / 5)))
        except subprocess.TimeoutExpired:
            words = None  # it is being written already
        now, before = time.monotonic(), used
        used = ticks(process.pid)
        worked = now if used != before else worked
        if now - worked >= idle or now - began >= longest:
            process.kill()  # and not waited for: what waits for a dead disk does not end
            return "no answer in %.0f s" % (now - began), b"", b""


def ticks(pid: int) -> int:
    """Processor time of a process, of its children that ended, and of those that live; 0 when it is gone."""
    fields = words_of("/proc/%d/stat" % pid, after=")")
    children = words_of("/proc/%d/task/%d/children" % (pid, pid))
    return sum(map(int, fields[11:15])) + sum(map(ticks, map(int, children)))


def words_of(path: str, after: str = "") -> list[str]:
    try:
        with open(path) as file:
            text = file.read()
    except OSError:
        return []
    return (text.rpartition(after)[2] if after else text).split()


def read(path: str) -> dict[str, Any]:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return {"exit": 0, "out": file.read(MOST).decode("utf-8", "replace"), "err": ""}
    except (FileNotFoundError, NotADirectoryError) as error:
        return {"exit": None, "out": "", "err": str(error)}
    except OSError as error:
        return {"exit": error.errno or 1, "out": "", "err": str(error)}


def answer(question: dict[str, Any]) -> dict[str, Any]:
    return read(question["file"]) if question.get("file") else run(**question)


if __name__ == "__main__":
    questions = json.loads(sys.argv[1])
    answers: list[Any] = [None] * len(questions)

    def put(place: int) -> None:
        answers[place] = answer(questions[place])

    threads = [threading.Thread(target=put, args=(place,)) for place in range(len(questions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    json.dump(answers, sys.stdout)
