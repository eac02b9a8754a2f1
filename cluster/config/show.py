"""The resolved settings as rows to print: name, value, origin. Secrets stay masked."""

import re
from dataclasses import dataclass
from typing import Any

from cluster.config.layers import ENVIRONMENT, FLAGS, MAPS
from cluster.config.resolve import DEFAULT, Resolved
from cluster.model.flags import value_of
from cluster.model.rules import is_secret_name
from cluster.model.settings import NodeSettings, node_key, table
from cluster.model.table import rows_of
from cluster.model.values import plain, show

MASK = "***"
_KEPT_SECRET = re.compile(r"--[a-z0-9-]*(key|token|secret|password)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting. `text` is for people, `value` for JSON; `env` is empty where there is no bare name."""

    key: str
    env: str
    text: str
    value: Any
    origin: str

    @property
    def is_default(self) -> bool:
        return self.origin == DEFAULT


def masked(resolved: Resolved) -> tuple[Shown, ...]:
    """Every setting of the table, the nodes beyond the worker, and each name in a map, in the order of the table."""
    settings, origins = resolved.settings, resolved.origins
    found: list[Shown] = []
    for row in table():
        if row.key.startswith("worker.") and not settings.workers:
            continue
        if row.key in MAPS:
            found += _entries(resolved, row.key)
            continue
        value = _without_secrets(row.key, value_of(settings, row.key))
        found.append(_shown(row.key, row.meta.env, value, origins.get(row.key, DEFAULT)))
    for index, node in list(enumerate(settings.nodes))[2:]:
        for row in rows_of(node_key(index), NodeSettings, {}):
            value = getattr(node, row.key.rpartition(".")[2])
            found.append(_shown(row.key, "", value, origins.get(row.key, DEFAULT)))
    return tuple(found)


def _entries(resolved: Resolved, parent: str) -> list[Shown]:
    found = []
    for name, value in value_of(resolved.settings, parent):
        key = f"{parent}.{name}"
        hidden = (parent == ENVIRONMENT and is_secret_name(name)) or (
            parent == FLAGS and _KEPT_SECRET.fullmatch(f"--{name}") is not None
        )
        said = MASK if hidden else (value if value != () else True)
        found.append(_shown(key, "", said, resolved.origins.get(key, DEFAULT)))
    return found


def _shown(key: str, env: str, value: Any, origin: str) -> Shown:
    return Shown(key, env, show(value), plain(value), origin)


def _without_secrets(key: str, value: Any) -> Any:
    """EXTRA_ARGS may hold a key that a check will refuse; printing it here would give it away first."""
    if key != "serve.extra_args":
        return value
    words: list[str] = []
    for word in value:
        flag, equals, _ = word.partition("=")
        if words and _KEPT_SECRET.fullmatch(words[-1]):
            words.append(MASK)
        elif equals and _KEPT_SECRET.fullmatch(flag):
            words.append(f"{flag}={MASK}")
        else:
            words.append(word)
    return tuple(words)
