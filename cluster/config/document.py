"""cluster.yaml or a recipe, from its tree to one layer; unknown keys and wrong shapes are named with their line."""

import json
from typing import Any, get_origin

from cluster.config.layers import (
    FLAGS,
    MAPS,
    Given,
    Layer,
    Rank,
    did_you_mean,
    map_entry,
    name_of,
    node_fields,
    row_of,
    rows_by_key,
    sections,
)
from cluster.config.sources import Listing, Mapping, Scalar, Tree, pairs_of
from cluster.model.settings import SECTIONS, node_key
from cluster.model.table import Problem, Row, Secret
from cluster.model.values import Raw, plain_kind


class Document:
    """One file on its way to a layer: what it gives and what is wrong with it, in the order of the file."""

    def __init__(self, where: str, label: str, rank: Rank) -> None:
        self._where = where
        self._label = label  # what origins say: the file with the line, or the recipe's name
        self._rank = rank
        self._given: list[Given] = []
        self._problems: list[Problem] = []
        self._nodes: int | None = None
        self._summary = ""

    def layer(self, tree: Mapping) -> Layer:
        for key, value in pairs_of(tree):
            self._top(key, value)
        return Layer(self._rank, tuple(self._given), tuple(self._problems), nodes=self._nodes, summary=self._summary)

    def _top(self, key: Scalar, value: Tree) -> None:
        is_recipe = self._rank is Rank.RECIPE
        match key.text:
            case "summary" if is_recipe and isinstance(value, Scalar):
                self._summary = value.text
            case "recipe" if is_recipe:
                self._wrong(key, "a recipe cannot name another recipe")
            case "deployment" | "recipe" as name:
                self._setting(rows_by_key()[name], key, value)
            case "nodes":
                self._node_list(key, value)
            case name if name in sections():
                self._section(name, key, value)
            case name:
                self._wrong(key, f"there is no section {name}", self._meant(name))

    def _meant(self, name: str) -> str:
        inside = [section for section in SECTIONS if row_of(f"{section}.{name}")]
        known = ("summary", *sections()) if self._rank is Rank.RECIPE else sections()
        return f"put {name} below {inside[0]}" if inside else did_you_mean(name, known)

    def _section(self, section: str, key: Scalar, value: Tree) -> None:
        if _is_null(value):
            return
        if not isinstance(value, Mapping):
            self._wrong(key, f"{section} wants a map of settings")
            return
        for name, one in pairs_of(value):
            dotted = f"{section}.{name.text}"
            row = row_of(dotted)
            if dotted in MAPS:
                self._map(dotted, name, one)
            elif row:
                self._setting(row, name, one)
            else:
                known = [key.partition(".")[2] for key in rows_by_key() if key.startswith(f"{section}.")]
                self._wrong(name, f"there is no setting {dotted}", did_you_mean(name.text, known))

    def _node_list(self, key: Scalar, value: Tree) -> None:
        if not isinstance(value, Listing) or not value.items:
            self._wrong(key, "nodes wants a list with one map for each node, the head first")
            return
        self._nodes = len(value.items)
        for index, node in enumerate(value.items):
            if not isinstance(node, Mapping):
                self._wrong(node, f"node {index} wants a map of settings, e.g. address")
                continue
            for name, one in pairs_of(node):
                row = row_of(f"{node_key(index)}.{name.text}")
                if row:
                    self._setting(row, name, one)
                else:
                    self._wrong(name, f"a node has no setting {name.text}", did_you_mean(name.text, node_fields()))

    def _setting(self, row: Row, key: Scalar, value: Tree) -> None:
        kind, _ = plain_kind(row.kind)
        name = row.key
        if kind is Secret:
            self._wrong(key, f"{name} is a secret, and this file is meant to be shared", f"put {name_of(name)} in .env")
        elif _is_null(value):
            self._give(row.key, None, key)
        elif isinstance(value, Listing) and get_origin(kind) is tuple:
            words = [one.text for one in value.items if isinstance(one, Scalar)]
            if len(words) == len(value.items):
                self._give(row.key, tuple(words), key)
            else:
                self._wrong(key, f"{name} wants a list of plain values")
        elif not isinstance(value, Scalar):
            self._wrong(key, f"{name} wants one value, not a {_shape(value)}")
        elif kind is str and value.kind == "bool":
            self._wrong(key, f"{name} wants a text, and YAML reads {value.text} as yes or no", "put it in quotes")
        elif kind is bool and value.kind not in ("bool", "int"):
            self._wrong(key, f"{name} wants true or false, not {value.text!r}")
        else:
            self._give(row.key, value.text, key)

    def _map(self, parent: str, key: Scalar, value: Tree) -> None:
        if _is_null(value):
            return
        if not isinstance(value, Mapping):
            self._wrong(key, f"{parent} wants a map of names to values")
            return
        for name, one in pairs_of(value):
            entry = map_entry(f"{parent}.{name.text}")
            if not entry:
                self._wrong(name, f"{name.text} is no name for {parent}")
                continue
            try:
                raw = _flag_words(one) if parent == FLAGS else _variable(one)
            except ValueError as error:
                self._wrong(name, f"{parent}.{name.text} {error}")
            else:
                self._give(".".join(entry), raw, name)

    def _give(self, key: str, raw: Raw, at: Scalar) -> None:
        origin = f"recipe {self._label}" if self._rank is Rank.RECIPE else f"{self._label}:{at.line}"
        self._given.append(Given(key, raw, origin))

    def _wrong(self, at: Tree, what: str, fix: str = "") -> None:
        self._problems.append(Problem(f"{self._where}:{at.line}", what, fix))


def _is_null(value: Tree) -> bool:
    return isinstance(value, Scalar) and value.kind == "null"


def _shape(value: Tree) -> str:
    return "list" if isinstance(value, Listing) else "map"


def _flag_words(value: Tree) -> Raw:
    """The arguments after a flag: none for true, one for a value or a map (as JSON), several for a list."""
    match value:
        case Scalar(kind="null"):
            return None
        case Scalar(kind="bool"):
            return () if _truth(value.text) else None
        case Scalar():
            return (value.text,)
        case Listing() if all(isinstance(one, Scalar) for one in value.items):
            return tuple(one.text for one in value.items if isinstance(one, Scalar))
        case _:
            return (json.dumps(_plain(value), separators=(",", ":")),)


def _variable(value: Tree) -> Raw:
    match value:
        case Scalar(kind="null"):
            return None
        case Scalar(kind="bool"):
            raise ValueError(f"wants a text, and YAML reads {value.text} as yes or no; put it in quotes")
        case Scalar():
            return (value.text,)
        case _:
            raise ValueError(f"wants one value, not a {_shape(value)}")


def _plain(value: Tree) -> Any:
    match value:
        case Mapping():
            return {key.text: _plain(one) for key, one in pairs_of(value)}
        case Listing():
            return [_plain(one) for one in value.items]
        case Scalar(kind="null"):
            return None
        case Scalar(kind="bool"):
            return _truth(value.text)
        case Scalar(kind="int" | "float"):
            return _number(value.text)
        case Scalar():
            return value.text


def _number(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _truth(text: str) -> bool:
    return text.lower() in ("true", "yes", "on")
