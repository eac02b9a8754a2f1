"""Launch and stop one rank of a server on this node; the parts that it names are sent along, as one file.

    rank.py run DIR        the shim: parent of the server for as long as it lives
    rank.py launch JSON    {"dir", "program": path of this file here, "unit": name | null, "wait": seconds}
    rank.py stop JSON      {"dirs": [DIR, ...], "grace": seconds}
                           or all that lives: {"root", "deployment", "ranks": [n, ...] | null, "grace"}

DIR is STATE/deployments/NAME/boots/BOOT/rankN and holds
    spec.json       {"deployment","boot","rank","node","argv":[],"env":{},"secrets":{"NAME":"FILE"},"cwd","log_bytes",
                    "keep_logs"}
    rank.json       {"pid","ticks","kernel_boot","session","main":[pid,ticks],"unit","manager","program","started",
                    "available"}: pid is the shim's; ticks is field 22 of its stat
    processes.json  {"kernel_boot","seen":[[pid,ticks],...]}: what descended from the shim when it last looked
    log, log.1 ...  lines of the server, each behind a UTC time: 2026-11-30T17:30:00.123Z
    stop.json       {"at","grace"}: somebody asked for the end
    exit.json       {"code","signal","at","requested","left_behind","killed","error"}: how the main process
                    ended, how many processes it left behind, and how many of all the shim had to kill
    lock            held by the shim while it lives

launch prints rank.json; stop prints
    {"ranks": [{"dir","boot","rank","how": "absent"|"graceful"|"killed"|"left","ended": [NAME, ...],
                "left": [{"pid","name"}, ...],"seconds"}, ...], "available_before", "available_after"}
A failure prints {"error": sentence}.
Exit codes: 2 wrong request, 3 runs or ran already, 4 did not start, 5 not all gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Dict, List, Mapping, Tuple

from cluster.agent.box import box_of, end_in_box, remove_box, remove_ended_boxes
from cluster.agent.own import (
    MARK,
    Json,
    Process,
    boot_and_rank,
    fail,
    folders_of,
    memory,
    name_of,
    ours,
    processes,
    read,
    read_json,
    send,
    shim_of,
    stamp,
    systemd_manager,
    whole_path,
)
from cluster.agent.prune import prune
from cluster.agent.shim import INHERITED, Shim, fill, reserve, take_lock

GRACE = 15.0


def launch(request: Json) -> Json:
    """Start the shim apart from us, and wait until it says who it is. What old boots left goes first: it takes room.

    A rank that was launched is known as one even when the node loses its power a moment later.
    """
    folder, program = whole_path(request["dir"]), whole_path(request["program"])
    if not os.path.exists(os.path.join(folder, "spec.json")):
        fail(2, "there is no spec.json in %s" % folder)
    os.close(take_lock(folder))
    if any(os.path.exists(os.path.join(folder, name)) for name in ("rank.json", "exit.json")):
        fail(3, "this boot ran already: %s" % folder)
    prune(folder, program)
    try:
        reserve(folder)
    except OSError as error:
        fail(4, "cannot keep records in %s: %s" % (folder, error.strerror))
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    env[MARK] = folder
    argv = [sys.executable, "-IS", program, "run", folder]
    manager = systemd_manager() if request.get("unit") else None
    if manager:
        if manager == "user":  # not every login sets it, and systemd-run finds the user's manager by it
            env.setdefault("XDG_RUNTIME_DIR", "/run/user/%d" % os.getuid())
        started = subprocess.run(
            unit_argv(request["unit"], manager, argv, env), capture_output=True, text=True, env={**os.environ, **env}
        )
        if started.returncode:
            fail(4, "systemd-run failed: %s" % started.stderr.strip())
    else:
        with open(os.path.join(folder, "shim.err"), "ab") as err:
            subprocess.Popen(argv, env=env, start_new_session=True, stdin=subprocess.DEVNULL, stdout=err, stderr=err)
    rank = await_start(folder, float(request.get("wait", 10.0)))
    for path in (os.path.join(folder, "rank.json"), folder):
        keep(path)
    return rank


def keep(path: str) -> None:
    """Have it on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def await_start(folder: str, wait: float) -> Json:
    until = time.monotonic() + wait
    while True:
        rank, ended = read_json(os.path.join(folder, "rank.json")), read_json(os.path.join(folder, "exit.json"))
        if ended.get("error"):
            fail(4, ended["error"])
        if rank:
            return rank
        if time.monotonic() > until:
            words = read(os.path.join(folder, "shim.err"))[-2000:]
            fail(4, "the shim did not come up within %g s: %s" % (wait, words))
        time.sleep(0.005)


def unit_argv(unit: str, manager: str, argv: List[str], env: Mapping[str, str]) -> List[str]:
    """KillMode=mixed lets the shim end its server in order; OOMPolicy=continue lets it record a death by memory.

    The score for the kernel's choice is set by the server's own process, so that the shim is not among the first.
    A user's manager may not raise limits, and a unit that asks for it does not start; the shim takes what is allowed.
    """
    limits = ("LimitMEMLOCK=infinity", "LimitNOFILE=1048576") if manager == "system" else ()
    properties = (
        "Type=exec", "KillMode=mixed", "OOMPolicy=continue", "TimeoutStopSec=45", "TasksMax=infinity", *limits,
    )  # fmt: skip
    variables = {**env, "SPARKCTL_UNIT": unit, "SPARKCTL_MANAGER": manager}
    return [
        "systemd-run", "--" + manager, "--unit=" + unit, "--description=" + unit, "--collect", "--quiet",
        *("--property=" + one for one in properties),
        *("--setenv=%s=%s" % pair for pair in sorted(variables.items())),
        *(word.replace("$", "$$") for word in argv),
    ]  # fmt: skip


class Ending:
    """The end of one rank: ask, wait, kill, and look until nothing is left."""

    def __init__(self, folder: str, grace: float) -> None:
        self.folder, self.grace = folder, grace
        self.began = time.monotonic()
        self.known: Dict[Tuple[int, int], str] = {}
        self.live: Dict[int, Process] = {}
        self.how = "absent"
        self.box = box_of(folder)

    def look(self, table: Dict[int, Process]) -> None:
        """What was proven ours once stays ours, even when its witness is gone."""
        kept = {pid: table[pid] for pid, ticks in self.known if pid in table and table[pid].ticks == ticks}
        self.live = {**kept, **ours(self.folder, table)}
        for process in self.live.values():
            self.known.setdefault((process.pid, process.ticks), name_of(process))

    def ask(self, table: Dict[int, Process]) -> None:
        """The shim passes the wish on to its server; without a shim each process is asked."""
        self.look(table)
        if not self.live:
            return
        self.how = "graceful"
        try:
            with open(os.path.join(self.folder, "stop.json"), "w") as file:
                json.dump({"at": stamp(time.time()), "grace": self.grace}, file)
        except OSError:
            pass  # a full disk must not keep a rank alive; the shim takes the signal itself as the wish
        shim = shim_of(self.folder, table)
        for process in [shim] if shim else list(self.live.values()):
            send(process.pid, process.ticks, signal.SIGTERM)

    def is_over(self, table: Dict[int, Process]) -> bool:
        """The shim kills when the grace is over, and records it; a second later we do, and last the shim itself."""
        self.look(table)
        late = time.monotonic() - self.began - self.grace
        shim = shim_of(self.folder, table)
        must_end = late > 1 or (late > 0 and not shim)
        if must_end and self.box:
            end_in_box(self.box)
        for process in self.live.values() if must_end else ():
            if late > 4 or not shim or process.pid != shim.pid:
                self.how = "killed"
                send(process.pid, process.ticks, signal.SIGKILL)
        return not self.live or late > 20

    def record(self) -> None:
        """A shim that was killed could not write how it ended. A container without processes is only in the way."""
        if not self.live:
            remove_box(self.folder)
        is_recorded = os.path.exists(os.path.join(self.folder, "exit.json"))
        ended_by = signal.SIGKILL if self.how == "killed" else signal.SIGTERM
        if self.known and not self.live and not is_recorded:
            fill(self.folder, "exit.json", {
                "code": None, "signal": int(ended_by), "at": stamp(time.time()),
                "requested": True, "left_behind": 0, "killed": 0, "error": None,
            })  # fmt: skip

    def report(self) -> Json:
        boot, rank = boot_and_rank(self.folder)
        if self.live:
            self.how = "left"
        elif self.known and read_json(os.path.join(self.folder, "exit.json")).get("killed"):
            self.how = "killed"
        return {
            "dir": self.folder, "boot": boot, "rank": rank, "how": self.how,
            "ended": sorted(name for (pid, _), name in self.known.items() if pid not in self.live),
            "left": [{"pid": one.pid, "name": name_of(one)} for one in self.live.values()],
            "seconds": round(time.monotonic() - self.began, 2),
        }  # fmt: skip


def stop(request: Json) -> Json:
    grace, before, table = float(request.get("grace", GRACE)), memory()[2], processes()
    endings = [Ending(folder, grace) for folder in folders_of(request)]
    for ending in endings:
        ending.ask(table)
    waiting = [ending for ending in endings if ending.live or "dirs" in request]
    reports = []
    while waiting:
        table = processes()
        over = [ending for ending in waiting if ending.is_over(table)]
        for ending in over:
            ending.record()
            reports.append(ending.report())
        waiting = [ending for ending in waiting if ending not in over]
        time.sleep(0.1 if waiting else 0)
    remove_ended_boxes([ending.folder for ending in endings])
    reports.sort(key=lambda report: (str(report["boot"]), int(report["rank"])))
    return {"ranks": reports, "available_before": before, "available_after": memory()[2]}


def main(words: List[str]) -> None:
    if len(words) != 2 or words[0] not in ("run", "launch", "stop"):
        fail(2, "use: run DIR | launch JSON | stop JSON")
    if words[0] == "run":
        Shim(whole_path(words[1])).run()
        return
    try:
        request = json.loads(words[1])
    except ValueError as error:
        fail(2, "wrong request: %s" % error)
    answer = launch(request) if words[0] == "launch" else stop(request)
    print(json.dumps(answer), flush=True)
    if words[0] == "stop" and any(rank["left"] for rank in answer["ranks"]):
        sys.exit(5)


if __name__ == "__main__":
    main(sys.argv[1:])
