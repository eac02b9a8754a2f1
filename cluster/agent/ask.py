"""Answer many questions in one round trip: commands and files to read. Runs on a node, from standard input.

Argument: a JSON list of {"file": "/path"} or {"argv": [...], "stdin": text, "limit": seconds}, the last two as needed;
answer: a JSON list of {"exit": n | null, "out", "err"} in the same order, asked side by side. `exit` is null when the
tool or the file is absent, 124 when time ran out. A `~/` at the start of a path is the home.
"""

import json
import os
import subprocess
import sys
import threading
from typing import Any

LIMIT = 15.0  # seconds for one command: a dead NFS server must not hold up the other answers
MOST = 4 * 1024 * 1024


def run(argv: list[str], stdin: str = "", limit: float = LIMIT) -> dict[str, Any]:
    environment = dict(os.environ, LC_ALL="C")
    environment["PATH"] = environment.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin:/snap/bin"
    try:
        done = subprocess.run(
            argv, input=stdin.encode(), capture_output=True, env=environment, timeout=limit, check=False
        )
    except FileNotFoundError:
        return {"exit": None, "out": "", "err": "not found: " + argv[0]}
    except subprocess.TimeoutExpired:
        return {"exit": 124, "out": "", "err": "no answer in %.0f s" % limit}
    except OSError as error:
        return {"exit": 126, "out": "", "err": str(error)}
    return {
        "exit": done.returncode,
        "out": done.stdout[:MOST].decode("utf-8", "replace"),
        "err": done.stderr[:MOST].decode("utf-8", "replace"),
    }


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
