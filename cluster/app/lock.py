"""The lock of a head: one verb that changes something at a time."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from getpass import getuser
from pathlib import PurePosixPath
from threading import Event, Thread
from typing import Any

from cluster.app.agents import agent
from cluster.errors import Locked, SparkctlError, StepFailed
from cluster.model.events import Emit, Severity, Told
from cluster.model.settings import Settings
from cluster.node.base import Node

PATIENCE = 30.0  # seconds for the head to answer whether it is free
A_DAY = 86400.0


def lock_path(settings: Settings) -> PurePosixPath:
    return PurePosixPath(settings.head.state_dir) / "lock"


@contextmanager
def held(head: Node, settings: Settings, verb: str, emit: Emit, path: PurePosixPath | None = None) -> Iterator[None]:
    """Hold the head's lock, or that of a folder at `path`.

    It lives exactly as long as our connection, so a killed sparkctl leaves none behind.
    """
    answer: dict[str, Any] = {}
    answered, release = Event(), Event()
    want = {"path": str(path or lock_path(settings)), "holder": _holder(verb, settings.deployment)}

    def take(line: str) -> None:
        try:
            answer.update(json.loads(line))
        except ValueError:
            answer["words"] = [line]
        answered.set()

    def keep() -> None:
        try:
            result = head.stream(agent("lock", want, A_DAY), take, release)
            answer.setdefault("words", result.err_text.strip().splitlines()[-3:])
        except SparkctlError as error:
            answer.setdefault("error", error)
        answered.set()

    thread = Thread(target=keep, name="lock", daemon=True)
    thread.start()
    try:
        answered.wait(PATIENCE)
        _judge(head, settings, answer, emit)
        yield
    finally:
        release.set()
        thread.join(5)


def _judge(head: Node, settings: Settings, answer: dict[str, Any], emit: Emit) -> None:
    match answer:
        case {"held": True, "stale": dict(stale)} if stale:
            emit(
                Told(Severity.NOTE, f"took over a stale lock: {describe(stale)} ended without releasing it", head.name)
            )
        case {"held": True}:
            return
        case {"held": False, "holder": dict(holder)}:
            raise Locked(
                f"another sparkctl is at work: {describe(holder)}",
                where=head.name,
                fix="wait for it to end, or end it there; the lock goes with it",
            )
        case {"held": False, "error": str(error)}:
            raise StepFailed(error, where=head.name, fix="make that folder writable, or set HEAD_STATE_DIR to another")
        case {"error": SparkctlError() as error}:
            raise error
        case _:
            where = f"{head.name}:{lock_path(settings)}"
            raise StepFailed("the head did not answer for the lock", where=where, evidence=answer.get("words", ()))


def describe(holder: dict[str, Any]) -> str:
    return (
        f"`{holder.get('command', '?')}` by {holder.get('user', '?')} on {holder.get('host', '?')}"
        f" (pid {holder.get('pid', '?')}), since {holder.get('since', '?')}"
    )


def _user() -> str:
    try:
        return getuser()
    except (KeyError, OSError):  # an account without a name, as containers have
        return f"uid {os.getuid()}"


def _holder(verb: str, deployment: str) -> dict[str, Any]:
    return {
        "command": f"sparkctl {verb}",  # not the argv: options may say more than others should read
        "deployment": deployment,
        "user": _user(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
