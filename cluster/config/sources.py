"""Where settings are read from: files, YAML with its lines, the recipes of the package. The one door to PyYAML."""

import stat
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import yaml

from cluster.errors import SettingsError

_PLAIN_TAGS = {"str", "int", "float", "bool", "null", "timestamp", "merge", "value"}
_TAG = "tag:yaml.org,2002:"
_MOST_BYTES = 2**20
_MOST_NODES = 20_000
_DEEPEST = 50


@dataclass(frozen=True, slots=True)
class Scalar:
    """`kind` is what YAML takes the text for: str, int, float, bool, null; `quoted` texts are always str."""

    text: str
    kind: str
    line: int


@dataclass(frozen=True, slots=True)
class Listing:
    items: tuple["Tree", ...]
    line: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys with their lines, in the order of the file; what `<<` merges in stands before them."""

    pairs: tuple[tuple[Scalar, "Tree"], ...]
    line: int
    merged: tuple["Mapping", ...] = ()


Tree = Scalar | Listing | Mapping


def shown(path: Path, cwd: Path) -> str:
    """A file as messages call it: relative to the current folder where it lies in it."""
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def read(path: Path, where: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError("cannot be read", where=where, evidence=(error.strerror or str(error),)) from error
    if len(data) > _MOST_BYTES:
        raise SettingsError("is larger than 1 MiB, which no settings file is", where=where)
    return data


def readable_by_others(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def recipe_names() -> tuple[str, ...]:
    folder = resources.files("cluster.recipes")
    return tuple(sorted(one.name.removesuffix(".yaml") for one in folder.iterdir() if one.name.endswith(".yaml")))


def packaged_recipe(name: str) -> bytes:
    return resources.files("cluster.recipes").joinpath(f"{name}.yaml").read_bytes()


def parse_yaml(data: bytes, where: str) -> Mapping:
    """The one document of a file, composed and not constructed: tags cannot make anything run."""
    try:
        root = yaml.compose(data.decode("utf-8-sig"), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise SettingsError("is not UTF-8", where=where, fix="save the file as UTF-8") from error
    except RecursionError as error:
        raise SettingsError("is nested too deeply", where=where) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"{where}:{mark.line + 1}" if mark else where
        raise SettingsError(f"is not YAML: {error.problem}", where=line) from error
    except yaml.YAMLError as error:
        raise SettingsError("is not YAML", where=where, evidence=(str(error).replace("\n", " "),)) from error
    if root is None:
        return Mapping((), 1)
    tree = _Reader(where).tree(root)
    if not isinstance(tree, Mapping):
        raise SettingsError("is not a map of names to values", where=where)
    return tree


class _Reader:
    """From PyYAML's nodes to ours. Aliases are written out, so their number is bounded."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._left = _MOST_NODES

    def tree(self, node: yaml.Node, above: tuple[yaml.Node, ...] = ()) -> Tree:
        line = node.start_mark.line + 1
        self._left -= 1
        if self._left < 0:
            raise self._wrong("has more values, aliases written out, than any settings file", line)
        if any(node is one for one in above):
            raise self._wrong("an anchor contains itself", line)
        if len(above) > _DEEPEST:
            raise self._wrong("is nested too deeply", line)
        tag = node.tag.removeprefix(_TAG)
        match node:
            case yaml.ScalarNode() if tag in _PLAIN_TAGS and node.tag.startswith(_TAG):
                return Scalar(node.value, tag if tag in {"int", "float", "bool", "null"} else "str", line)
            case yaml.SequenceNode() if tag == "seq":
                return Listing(tuple(self.tree(one, (*above, node)) for one in node.value), line)
            case yaml.MappingNode() if tag == "map":
                return self._mapping(node, (*above, node))
            case _:
                raise self._wrong(f"the tag {node.tag.replace(_TAG, '!!')} is not allowed", line)

    def _mapping(self, node: yaml.MappingNode, above: tuple[yaml.Node, ...]) -> Mapping:
        pairs: dict[str, tuple[Scalar, Tree]] = {}
        merged: list[Mapping] = []
        for key, value in node.value:
            name = self.tree(key, above)
            line = key.start_mark.line + 1
            if not isinstance(name, Scalar):
                raise self._wrong("a key is a list or a map", line)
            if key.tag == f"{_TAG}merge":
                merged += self._merged(self.tree(value, above), line)
                continue
            before = pairs.get(name.text)
            if before:
                raise self._wrong(
                    f"{name.text} stands on lines {before[0].line} and {line}", line, "remove one of them"
                )
            pairs[name.text] = (name, self.tree(value, above))
        return Mapping(tuple(pairs.values()), node.start_mark.line + 1, tuple(merged))

    def _merged(self, tree: Tree, line: int) -> list[Mapping]:
        maps = tree.items if isinstance(tree, Listing) else (tree,)
        found = [one for one in maps if isinstance(one, Mapping)]
        if len(found) < len(maps):
            raise self._wrong("`<<` wants a map, or a list of maps", line)
        return found

    def _wrong(self, what: str, line: int, fix: str = "") -> SettingsError:
        return SettingsError(what, where=f"{self._where}:{line}", fix=fix)


def pairs_of(tree: Mapping) -> tuple[tuple[Scalar, Tree], ...]:
    """All pairs, own ones over merged ones, earlier merged ones over later ones."""
    found: dict[str, tuple[Scalar, Tree]] = {}
    for one in reversed(tree.merged):
        found |= {key.text: (key, value) for key, value in pairs_of(one)}
    found |= {key.text: (key, value) for key, value in tree.pairs}
    return tuple(found.values())
