"""Run one program on a node so that it always ends, and so that its output is only its own. Reads everything from fd 0.

The caller sends eight digits and this source, eight digits and a JSON request, the program's stdin, and keeps the
line open: `.` says that it lives, `s` asks to end the program, end of file says that it is gone. The answer is a
marker (what a login shell printed before it is noise) and frames: a letter, four bytes of length, the payload.
`o` and `e` carry output, `x` is the last one and says in JSON how it ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess

from cluster.agent.wrap_call import Call
from cluster.agent.wrap_copy import copy, is_program_for_us
from cluster.agent.wrap_files import read_file, write_file
from cluster.agent.wrap_find import find, named, search_path
from cluster.agent.wrap_line import TYPE_CHECKING, end, failed, frame, send, take, to_bytes

if TYPE_CHECKING:
    from typing import Any


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
