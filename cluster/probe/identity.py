"""Parse what `agent/identity.py` says a node would run."""

import json
from typing import Any

from cluster.errors import Unreadable
from cluster.model.facts import Identity, ModelSeen
from cluster.model.units import Bytes


def parse_identity(text: str) -> Identity:
    try:
        seen: dict[str, Any] = json.loads(text)
        key = seen["key"]
        return Identity(
            python=seen["python"],
            packages=tuple(sorted(seen["packages"].items())),
            has_server=seen["server"],
            model=_model(seen["model"]),
            argv_digest=None,
            key_mode=key["mode"] if key and key["present"] else None,
            key_problem=_key_problem(key),
            state_free=Bytes(seen["state"]["free"]),
            state_writable=seen["state"]["writable"],
            state_path=seen["state"]["path"],
            hostname=seen["hostname"],
            machine=seen["machine"],
            machine_id=seen["machine_id"],
            boot_id=seen["boot_id"],
            tools=tuple(sorted(seen.get("tools", {}).items())),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable("cannot read the node's identity", evidence=[text[:300], repr(error)]) from error


def _model(seen: dict[str, Any] | None) -> ModelSeen | None:
    if seen is None:
        return None
    return ModelSeen(
        present=seen["present"],
        files=seen["files"],
        size=Bytes(seen["bytes"]),
        digest=seen["digest"],
        how=seen["how"],
        unreadable=tuple(seen["unreadable"]),
        outside=tuple(seen["outside"]),
    )


def _key_problem(key: dict[str, Any] | None) -> str:
    match key:
        case None:
            return ""
        case {"present": False, "why": why}:
            return str(why)
        case {"empty": True}:
            return "is empty"
        case {"mode": int(mode)} if mode & 0o077:
            return f"can be read by others (mode {mode:04o})"
        case _:
            return ""
