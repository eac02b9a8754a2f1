"""One layer of settings as its source gave it, and the names by which a setting can be called."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from types import MappingProxyType

from cluster.model.nodes import HEAD_ENV, NodeSettings
from cluster.model.settings import SECTIONS, node_key, table
from cluster.model.table import Caution, Problem, Row, rows_of
from cluster.model.values import Raw

PREFIX = "SPARKCTL_"

# Settings that are maps: each name below them stands for itself, so that a layer can change one and keep the rest.
FLAGS, ENVIRONMENT = "serve.flags", "launch.environment"
MAPS = {
    FLAGS: re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII),
    ENVIRONMENT: re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII),
}
# Kits set this one for all ranks; here it is one variable among others, and may be a pattern.
ENV_OF_ENVIRONMENT = ("NCCL_SOCKET_IFNAME",)

# Keys that say where a node is. A recipe's nodes hold only while no stronger layer says so for any node.
PLACE = ("control", "host", "user", "address", "interface", "hca", "gid")


class Rank(IntEnum):
    """The layers, weakest first: the last one that says something is heard."""

    DEFAULT = 0
    RECIPE = 1
    CLUSTER = 2
    ENV_FILE = 3
    ENVIRONMENT = 4
    OPTION = 5


@dataclass(frozen=True, slots=True)
class Given:
    """One value as one layer gives it. `origin` is where a person finds it, e.g. `.env:2`."""

    key: str
    raw: Raw
    origin: str


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says. `nodes` is the number of nodes when it lists them."""

    rank: Rank
    given: tuple[Given, ...] = ()
    problems: tuple[Problem, ...] = ()
    cautions: tuple[Caution, ...] = ()
    nodes: int | None = None
    summary: str = ""


@cache
def keys_by_name() -> Mapping[str, str]:
    """Bare environment name -> dotted key."""
    named = {name: row.key for row in table() for name in (row.meta.env, *row.meta.aliases) if name}
    named |= {name: f"{ENVIRONMENT}.{name}" for name in ENV_OF_ENVIRONMENT}
    return MappingProxyType(named)


@cache
def rows_by_key() -> Mapping[str, Row]:
    return MappingProxyType({row.key: row for row in table()})


def row_of(key: str) -> Row | None:
    """The line of the table for a dotted key, also for nodes beyond the worker."""
    found = rows_by_key().get(key)
    if found or not key.startswith("nodes."):
        return found
    _, _, rest = key.partition(".")
    index, _, name = rest.partition(".")
    if not re.fullmatch(r"[1-9][0-9]{0,2}", index) or int(index) < 2:
        return None
    node_rows = {one.key: one for one in rows_of(f"nodes.{index}", NodeSettings, {})}
    return node_rows.get(f"nodes.{index}.{name}")


def map_entry(key: str) -> tuple[str, str] | None:
    """`serve.flags.--tokenizer_mode` -> (`serve.flags`, `tokenizer-mode`); None when it is no name in a map."""
    for parent, form in MAPS.items():
        if key.startswith(f"{parent}."):
            name = key.removeprefix(f"{parent}.")
            name = name.removeprefix("--").replace("_", "-") if parent == FLAGS else name
            return (parent, name) if form.fullmatch(name) else None
    return None


def canonical(name: str) -> str | None:
    """The dotted key that a person means by a bare name or a dotted key; None when there is no such setting."""
    if name in keys_by_name():
        return keys_by_name()[name]
    if name.startswith("nodes."):
        _, index, *rest = name.split(".", 2)
        if index in ("0", "1"):
            name = ".".join((node_key(int(index)), *rest))
    entry = map_entry(name)
    if entry:
        return ".".join(entry)
    return name if row_of(name) and name not in MAPS else None


def nearest(name: str, known: Iterable[str], cutoff: float = 0.75) -> str:
    """The known name most like this one, or nothing."""
    names = tuple(known)
    found = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    if not found:
        by_upper = {one.upper(): one for one in names}
        found = [by_upper[one] for one in difflib.get_close_matches(name.upper(), by_upper, n=1, cutoff=cutoff)]
    return found[0] if found else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    found = nearest(name, known, 0.6)
    return f"did you mean {found}?" if found else ""


def name_of(key: str) -> str:
    """What a person calls a setting: its bare name where it has one, else the dotted key."""
    row = row_of(key)
    return row.meta.env if row and row.meta.env else key


def all_names() -> tuple[str, ...]:
    return (*keys_by_name(), *rows_by_key())


def sections() -> tuple[str, ...]:
    return ("deployment", "recipe", "nodes", *SECTIONS)


def node_fields() -> tuple[str, ...]:
    return tuple(HEAD_ENV)
