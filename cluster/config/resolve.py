"""All layers meet here: one pure function from what was written to the settings, each value with its origin."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from cluster.config.layers import ENVIRONMENT, FLAGS, MAPS, PLACE, Given, Layer, Rank, name_of, row_of
from cluster.errors import SettingsError
from cluster.model import rules
from cluster.model.need import Need
from cluster.model.nodes import NodeSettings
from cluster.model.settings import SECTIONS, Settings, node_key
from cluster.model.table import Caution, Gid, Problem, Row, Secret
from cluster.model.values import parse, plain_kind, show

DEFAULT = "default"
TWO = 2  # nodes when none are listed


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings, where each comes from (by dotted key), and what to tell the user once."""

    settings: Settings
    origins: Mapping[str, str]
    warnings: tuple[Caution, ...]
    summary: str = ""


def resolve(layers: Iterable[Layer], need: Need = Need.SERVE) -> Resolved:
    """What the strongest layer says of each setting. Raises one SettingsError with everything that is wrong."""
    ordered = sorted(layers, key=lambda layer: layer.rank)
    count = _count_nodes(ordered)
    heard = _heard(ordered, count)
    wrong = [problem for layer in ordered for problem in layer.problems]
    values = _values(heard, wrong)
    origins = {key: given.origin for key, given in heard.items()}
    settings = _tree(values, origins, count)
    unread = [problem.what.partition(" ")[0] for problem in wrong]
    wrong += [one for one in rules.problems(settings, origins, need) if not _is_about(one, unread)]
    if wrong:
        raise settings_error(wrong)
    cautions = [caution for layer in ordered for caution in layer.cautions]
    cautions += [*_differing(ordered, heard), *rules.cautions(settings, origins), *_without_worker(ordered, count)]
    summary = next((layer.summary for layer in ordered if layer.summary), "")
    return Resolved(settings, MappingProxyType(origins), tuple(cautions), summary)


def settings_error(wrong: Sequence[Problem]) -> SettingsError:
    """One error for all of it."""
    if len(wrong) == 1:
        return SettingsError(wrong[0].what, where=wrong[0].where, fix=wrong[0].fix)
    return SettingsError(f"{len(wrong)} settings are wrong", evidence=[str(one) for one in wrong])


def _is_about(problem: Problem, names: Sequence[str]) -> bool:
    """Whether a rule speaks of a value that could not be read: its default stands in for it, which would confuse."""
    return any(re.search(rf"\b{re.escape(name)}\b", problem.what) for name in names)


def _count_nodes(ordered: Sequence[Layer]) -> int:
    """The strongest list of nodes counts; a recipe's longer one only while nobody else places a node.

    A recipe for one node stays one wherever that node is placed. Without a list NNODES=1 says it.
    """
    placed = _placed_by_hand(ordered)
    listed = [
        layer.nodes
        for layer in ordered
        if layer.nodes and not (layer.rank is Rank.RECIPE and placed and layer.nodes > 1)
    ]
    alone = [given.raw for layer in ordered for given in layer.given if given.key == "launch.nnodes" and given.raw]
    return listed[-1] if listed else 1 if alone[-1:] == ["1"] else TWO


def _without_worker(ordered: Sequence[Layer], count: int) -> Iterator[Caution]:
    """A `.env` for two nodes under a recipe for one."""
    found = [
        given
        for layer in ordered
        for given in layer.given
        if layer.rank is not Rank.RECIPE and _node_part(given.key)[0] == "worker" and given.raw
    ]
    if count == 1 and found:
        names = ", ".join(dict.fromkeys(name_of(given.key) for given in found))
        yield Caution("one-node", found[0].origin, f"there is one node: {names} of a worker is not used")


def _placed_by_hand(ordered: Sequence[Layer]) -> bool:
    stronger = [given for layer in ordered if layer.rank > Rank.RECIPE for given in layer.given]
    return any(_node_part(given.key)[1] in PLACE and given.raw for given in stronger)


def _node_part(key: str) -> tuple[str, str]:
    section, _, name = key.rpartition(".")
    return (section, name) if section in ("head", "worker") or section.startswith("nodes.") else ("", "")


def _heard(ordered: Sequence[Layer], count: int) -> dict[str, Given]:
    heard: dict[str, Given] = {}
    placed = _placed_by_hand(ordered)
    sections = {node_key(index) for index in range(count)}
    for layer in ordered:
        if layer.nodes and layer.rank > Rank.RECIPE:
            heard = {key: given for key, given in heard.items() if not _node_part(key)[0]}
        for given in layer.given:
            section, name = _node_part(given.key)
            dropped = layer.rank is Rank.RECIPE and placed and name in PLACE
            if not dropped and (not section or section in sections):
                heard[given.key] = given
    return heard


def _values(heard: Mapping[str, Given], wrong: list[Problem]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, given in heard.items():
        row = row_of(key)
        if row is None or key in MAPS:  # a name in a map; its form was checked where it was read
            values[key] = given.raw
            continue
        try:
            values[key] = parse(row, given.raw)
        except ValueError as error:
            wrong.append(Problem(given.origin, f"{name_of(key)} {_said(row, error)}"))
    return values


def _said(row: Row, error: ValueError) -> str:
    return "cannot be read" if plain_kind(row.kind)[0] is Secret else str(error)


def _tree(values: Mapping[str, Any], origins: dict[str, str], count: int) -> Settings:
    recipe = values.get("recipe", "")
    made = {section: _section(cls, section, values) for section, cls in SECTIONS.items() if section != "serve"}
    maps = {parent: _map(parent, values) for parent in (FLAGS, ENVIRONMENT)}
    launch = _section(SECTIONS["launch"], "launch", values, environment=tuple(sorted(maps[ENVIRONMENT])))
    serve = _section(SECTIONS["serve"], "serve", values, flags=maps[FLAGS])
    nodes = tuple(_node(index, values, origins, launch.gid) for index in range(count))
    return Settings(
        deployment=values.get("deployment") or _deployment_from(recipe),
        recipe=recipe,
        nodes=nodes,
        **made | {"serve": serve, "launch": launch},
    )


def _section(cls: type, section: str, values: Mapping[str, Any], **maps: Any) -> Any:
    given = {one.name: values[f"{section}.{one.name}"] for one in fields(cls) if f"{section}.{one.name}" in values}
    return cls(**given | maps)


def _map(parent: str, values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The names of a map that some layer gives and no stronger one takes back."""
    named = {key.removeprefix(f"{parent}."): raw for key, raw in values.items() if key.startswith(f"{parent}.")}
    single = parent == ENVIRONMENT
    return tuple((name, raw[0] if single else raw) for name, raw in named.items() if raw is not None)


def _node(index: int, values: Mapping[str, Any], origins: dict[str, str], gid: Gid | None) -> NodeSettings:
    """A node with what follows from the rest: its name, how to reach it, the GID index that all share."""
    section = node_key(index)
    node: NodeSettings = _section(NodeSettings, section, values)
    derived: dict[str, Any] = {}
    if not node.name:
        derived["name"] = ("head", "worker")[index] if index < TWO else f"worker{index}"
    if not node.control and (index or node.host or node.user) and (node.host or node.address):
        derived["control"] = f"{node.user}@{node.host or node.address}" if node.user else node.host or node.address
        _tell_origin(origins, section, "control", ("host", "user", "address"))
    if f"{section}.gid" not in values and gid is not None:
        derived["gid"] = gid
        origins[f"{section}.gid"] = origins["launch.gid"]
    return _replaced(node, derived)


def _replaced(node: NodeSettings, derived: Mapping[str, Any]) -> NodeSettings:
    kept = {one.name: getattr(node, one.name) for one in fields(node)}
    return NodeSettings(**{**kept, **derived})


def _tell_origin(origins: dict[str, str], section: str, name: str, sources: Iterable[str]) -> None:
    from_where = [origins[f"{section}.{one}"] for one in sources if f"{section}.{one}" in origins]
    origins[f"{section}.{name}"] = ", ".join(dict.fromkeys(from_where))


def _deployment_from(recipe: str) -> str:
    name = recipe.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml").lower()
    fitting = "".join(char if char.isascii() and char.isalnum() else "-" for char in name)[:40].strip("-")
    return fitting or "main"


def _differing(ordered: Sequence[Layer], heard: Mapping[str, Given]) -> list[Caution]:
    """Where the environment wins over the file with another value; the kits let the file win."""
    file = {given.key: given for layer in ordered if layer.rank is Rank.ENV_FILE for given in layer.given}
    found = []
    for key, given in heard.items():
        other = file.get(key)
        if other and given.origin.startswith("environment ") and other.raw != given.raw:
            name, row = name_of(key), row_of(key)
            secret = row is not None and plain_kind(row.kind)[0] is Secret
            said = "" if secret else f": {show(given.raw)!r} over {show(other.raw)!r}"
            text = f"{given.origin} wins over {other.origin} for {name}{said}"
            found.append(Caution("differs-from-file", other.origin, text))
    return found
