"""A rank that runs in a container: the engine's own command line follows it, ends it, and tells how it ended.

Where spec.json has "container": {"name", "engine": "unix:///..." | ""}, the container exists already; the server that
the shim starts is the client that attaches to it. Its processes belong to the engine, and may be another user's, so
only the engine can end them for sure.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import List, Optional, Tuple

from cluster.agent.own import Json, read_json, read_process

ENGINE_LIMIT = 20.0


def engine_words(box: Json, *words: str) -> List[str]:
    host = ["-H", box["engine"]] if box.get("engine") else []
    return ["docker", *host, *words]


def ask_engine(box: Json, *words: str) -> str:
    """What the engine's client prints; empty when it fails or gives no answer in time."""
    try:
        done = subprocess.run(
            engine_words(box, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ENGINE_LIMIT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""


def attach_words(box: Json) -> List[str]:
    """Start it and carry its output; our TERM is passed on to it."""
    return engine_words(box, "start", "--attach", box["name"])


def main_in_box(box: Json) -> Optional[Tuple[int, int]]:
    """Process 1 of the running container as this node sees it, with its start time; all its others descend from it."""
    said = ask_engine(box, "inspect", "--format", "{{.State.Pid}}", box["name"])
    process = read_process(int(said)) if said.isdigit() and said != "0" else None
    return (process.pid, process.ticks) if process else None


def end_in_box(box: Json) -> None:
    ask_engine(box, "kill", box["name"])


OUT_OF_MEMORY = "the kernel ended it, for memory ran out"
CRASH_LOOP = "its engine started it again, by a restart policy not of ours; it was removed, for each try takes memory"


def how_box_ended(box: Json) -> Tuple[Optional[int], Optional[str]]:
    """Exit code of a container, and what its engine knows of the end; None for what it cannot say.

    One that was started again is removed: a rank that fails at each boot would take the node's memory with it.
    """
    said = ask_engine(box, "inspect", "--format", "{{.RestartCount}} {{json .State}}", box["name"])
    restarts, _, text = said.partition(" ")
    try:
        state = json.loads(text)
    except ValueError:
        return None, None
    if restarts != "0" or state.get("Restarting"):
        ask_engine(box, "rm", "--force", box["name"])
        return None, CRASH_LOOP
    if state.get("Running"):
        return None, None
    return state.get("ExitCode"), OUT_OF_MEMORY if state.get("OOMKilled") else None


def remove_box(folder: str) -> None:
    """Its log and its end are in our folder; what the engine keeps of it would only take room and its name."""
    box = box_of(folder)
    if box:
        ask_engine(box, "rm", "--force", box["name"])


def remove_ended_boxes(folders: List[str]) -> None:
    """Containers of ranks that ended by themselves; the engine is asked once which are there."""
    boxes = [box for box in map(box_of, folders) if box]
    if boxes:
        there = ask_engine(boxes[0], "ps", "--all", "--filter", "status=exited", "--format", "{{.Names}}").split()
        for box in boxes:
            if box["name"] in there:
                ask_engine(box, "rm", "--force", box["name"])


def box_of(folder: str) -> Json:
    box = read_json(os.path.join(folder, "spec.json")).get("container")
    return box if isinstance(box, dict) else {}
