"""See how the ranks on this node are, once or again and again; the parts that it names are sent along, as one file.

    look.py look JSON     WHERE + {"boot": null,"http": HTTP | null,"completion_limit": 10,"ras": [host, port] | null,
                                   "log_lines": 200,"fabric": address | null}
    look.py watch JSON    WHERE + {"boot","every": 1.0,"places": {"RANK": [inode, offset]},"http": HTTP | null,
                                   "completion": {"limit": 60, "every": null} | null,"ras": [host, port] | null,
                                   "gpus": bool,"fabric": address | null}
    look.py stacks JSON   WHERE + {"limit": 20}
    look.py tail JSON     {"dir","lines": n | null,"since": time | null,"follow": bool,"grep": pattern | null}
    WHERE                 {"root","deployment","ranks": [n, ...] | null}, or {"dirs": [DIR, ...]}
    HTTP                  {"host","port","key_file": path | null,"model","ready": path}; give it only to rank 0's node

look prints one object, watch one a line and interval:
    {"at": epoch,"host","kernel_boot","booted": epoch,"memory": [total, free, available, cached, swap in use],
     "head": HEAD | null,"ras": RAS | null,"gpus": [GPU] | null,"fabric": what wires.py says,
     "ranks": [{"boot","rank","dir","state","pid","main","unit","started","kernel_boot","available",
                "stop_asked","exit": exit.json | null,
                "processes": [{"pid","ppid","state","name","command","rss","cpu","threads"}],
                "log": {"lines": [TEXT],"place": [inode, offset] | null,"behind": bytes,"lost": bool},
                "guard": {"state": "watching" | "ended" | "killed","mode","lowest": bytes | null,
                          "did": [{"at","what"}]} | null}]}
    state   prepared   never launched          alive      the shim runs, and the main process has not ended
            exited     exit.json is there      orphaned   the shim is gone, some of its processes are not
            vanished   nothing runs and nothing says how it ended: killed, or the node went down, which a
                       kernel_boot other than the node's own tells
    HEAD    {"at","health": ANSWER,"metrics": TEXT | null,"later": TEXT 1.5 s later | null,
             "completion": {"at","answer": ANSWER,"seconds","said"} | null,"asking_since": epoch | null}
    ANSWER  an HTTP status, or "refused", "timeout", "error: ..."
    RAS     {"text": TEXT | null,"trouble": null | "refused" | "timeout" | "error: ..."}
    GPU     {"watts": number | null,"busy": percent | null}
stacks prints {"ranks": [{"dir","boot","rank","missing": sentence | null,"processes": [{"pid","name","state","cpu",
    "python": TEXT | null,"status","wchan","kernel"}]}],"meminfo"}; tail prints lines of the log as they are.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, Optional

from cluster.agent.head import Asker, CompletionAsker, HealthAsker, ask_gpus, ask_ras, look_at_head
from cluster.agent.own import (
    Json,
    Process,
    boot_and_rank,
    booted_at,
    fail,
    folders_of,
    kernel_boot,
    memory,
    name_of,
    ours,
    processes,
    read,
    read_json,
    read_process,
    shim_of,
    words_of,
)
from cluster.agent.stacks import stacks
from cluster.agent.tail import News, last_lines, new_lines, tail
from cluster.agent.wires import sight_of_fabric


def sight_of_rank(folder: str, family: Dict[int, Process], shim: Optional[Process], news: News) -> Json:
    boot, rank = boot_and_rank(folder)
    who, ended = read_json(os.path.join(folder, "rank.json")), read_json(os.path.join(folder, "exit.json"))
    return {
        "boot": boot, "rank": rank, "dir": folder,
        "state": state_of(bool(who), bool(ended), bool(shim), bool(family)),
        "pid": who.get("pid"), "main": who.get("main", [None])[0], "unit": who.get("unit"),
        "started": who.get("started"), "kernel_boot": who.get("kernel_boot"), "available": who.get("available"),
        "stop_asked": os.path.exists(os.path.join(folder, "stop.json")), "exit": ended or None,
        "processes": [sight_of_process(process) for process in family.values()],
        "log": {"lines": news.lines, "place": news.place, "behind": news.behind, "lost": news.lost},
        "guard": sight_of_guard(folder),
    }  # fmt: skip


def sight_of_guard(folder: str) -> Optional[Json]:
    """A guard that is gone without having said why was killed."""
    guard = read_json(os.path.join(folder, "guard.json"))
    if not guard:
        return None
    process = read_process(int(guard["pid"]))
    lives = process and process.state not in "ZX" and process.ticks == guard["ticks"]
    lives = lives and guard["kernel_boot"] == kernel_boot()
    state = "watching" if lives else "ended" if guard["ended"] else "killed"
    return {"state": state, "mode": guard["mode"], "lowest": guard["lowest"], "did": guard["did"][-3:]}


def state_of(launched: bool, ended: bool, shim: bool, family: bool) -> str:
    if family and not shim:
        return "orphaned"
    if ended:
        return "exited"
    if shim:
        return "alive"
    return "vanished" if launched else "prepared"


def sight_of_process(process: Process) -> Json:
    return {
        "pid": process.pid, "ppid": process.ppid, "state": process.state, "name": name_of(process),
        "command": " ".join(words_of(process.pid)).strip()[:300],
        "rss": process.rss, "cpu": process.cpu, "threads": process.threads,
    }  # fmt: skip


def sight_of_node(request: Json, ranks: List[Json]) -> Json:
    return {
        "at": time.time(), "host": socket.gethostname(), "kernel_boot": kernel_boot(), "booted": booted_at(),
        "memory": [*memory(), *cache_and_swap()], "head": None, "ras": None, "gpus": None,
        "fabric": sight_of_fabric(request.get("fabric")), "ranks": ranks,
    }  # fmt: skip


def cache_and_swap() -> List[int]:
    """Bytes that come back when they are needed, and bytes that are out; what the kernel does not count is 0."""
    words = (line.split() for line in read("/proc/meminfo").splitlines())
    size = {line[0].rstrip(":"): int(line[1]) * 1024 for line in words if len(line) > 1}
    cached = sum(size.get(name, 0) for name in ("Cached", "SReclaimable", "Buffers"))
    return [cached, size.get("SwapTotal", 0) - size.get("SwapFree", 0)]


def look(request: Json) -> Json:
    """The newest boot, or the one asked for, and whatever still lives of others."""
    table = processes()
    folders = folders_of(request)
    boot = request.get("boot") or (boot_and_rank(folders[-1])[0] if folders else "")
    ranks = []
    for folder in folders:
        family = ours(folder, table)
        if family or boot_and_rank(folder)[0] == boot:
            news = last_lines(folder, int(request.get("log_lines", 200)))
            ranks.append(sight_of_rank(folder, family, shim_of(folder, table), news))
    node = sight_of_node(request, ranks)
    if request.get("ras"):
        node["ras"] = ask_ras(request["ras"])
    is_up = any(rank["rank"] == 0 and rank["state"] in ("alive", "orphaned") for rank in ranks)
    if request.get("http") and is_up:
        node["head"] = look_at_head(request["http"], float(request.get("completion_limit", 10.0)))
    return node


def watch(request: Json) -> Iterator[Json]:
    """Questions to the server run beside; a line comes in each interval whatever hangs, and at once with news of it."""
    every, http, news = float(request.get("every", 1.0)), request.get("http"), threading.Event()
    head = HealthAsker(http, every, news) if http else None
    wish = request.get("completion")
    completion = CompletionAsker(http, head, wish) if http and head and wish else None
    ras = Asker(lambda: ask_ras(request["ras"]), max(every, 2.0)) if request.get("ras") else None
    gpus = Asker(ask_gpus, max(every, 5.0)) if request.get("gpus") else None
    for asker in (head, completion, ras, gpus):
        if asker:
            asker.start()
    places = {int(rank): tuple(place) for rank, place in (request.get("places") or {}).items()}
    while True:
        began = time.monotonic()
        news.clear()  # before the look, which tells of all that came until now
        ranks = watch_ranks(request, places)
        node = sight_of_node(request, ranks)
        seen = head.latest if head else None
        if isinstance(seen, dict):
            more = {"completion": completion.latest, "asking_since": completion.asking_since} if completion else {}
            node["head"] = dict(seen, **more)
        node["ras"], node["gpus"] = ras and ras.latest, gpus and gpus.latest
        yield node
        news.wait(max(0.05, began + every - time.monotonic()))


def watch_ranks(request: Json, places: Dict[int, Any]) -> List[Json]:
    table = processes()
    ranks = []
    for folder in folders_of(request):
        boot, rank = boot_and_rank(folder)
        if boot == request["boot"]:
            family, shim = ours(folder, table), shim_of(folder, table)
            news = new_lines(folder, places.get(rank))  # after the processes: the last words of one that just ended
            places[rank] = news.place
            ranks.append(sight_of_rank(folder, family, shim, news))
    return ranks


def main(words: List[str]) -> None:
    if len(words) != 2 or words[0] not in ("look", "watch", "stacks", "tail"):
        fail(2, "use: look JSON | watch JSON | stacks JSON | tail JSON")
    try:
        request = json.loads(words[1])
    except ValueError as error:
        fail(2, "wrong request: %s" % error)
    try:
        for line in lines_of(words[0], request):
            sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")
            sys.stdout.buffer.flush()
    except BrokenPipeError:  # nobody reads any more
        os._exit(0)


def lines_of(verb: str, request: Json) -> Iterator[str]:
    if verb == "tail":
        yield from tail(request)
    elif verb == "watch":
        yield from map(json.dumps, watch(request))
    else:
        yield json.dumps(look(request) if verb == "look" else stacks(request))


if __name__ == "__main__":
    main(sys.argv[1:])
