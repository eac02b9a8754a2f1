"""A set of patches read from the tree of a file: every key checked, and named when it is wrong."""

from collections.abc import Mapping

from cluster.errors import SettingsError
from cluster.plan.anchors import Anchor
from cluster.plan.patch import PatchSet, Versions
from cluster.plan.patched import Patch, Put

KEYS = frozenset({"id", "file", "reason", "put", "text", "find", "within", "then", "lines", "count", "needs"})


def parse_set(name: str, tree: Mapping[str, object], where: str) -> PatchSet:
    """A set as a file says it. SettingsError names the patch and the key that is wrong."""
    versions = _mapping(tree.get("versions", {}), "versions", where)
    listed = tree.get("patches")
    if not isinstance(listed, (list, tuple)) or not listed:
        raise SettingsError("a set has a list of patches", where=where)
    patches = tuple(_patch(_mapping(one, "patches", where), number, where) for number, one in enumerate(listed, 1))
    names = [one.id for one in patches]
    if len(set(names)) != len(names):
        raise SettingsError(f"two patches have the same id: {', '.join(names)}", where=where)
    limits = Versions(_word(versions, "from", where), _word(versions, "below", where))
    return PatchSet(name, _word(tree, "package", where), limits, patches)


def _patch(tree: Mapping[str, object], number: int, where: str) -> Patch:
    place = f"{where}, patch {tree.get('id', number)}"
    strange = set(tree) - KEYS
    if strange:
        raise SettingsError(f"a patch has no {', '.join(sorted(strange))}", where=place)
    needed = [key for key in ("id", "file", "reason", "put", "text") if not tree.get(key)]
    put = str(tree.get("put"))
    if not needed and put not in set(Put):
        raise SettingsError(f"put is one of {', '.join(Put)}, not {put}", where=place)
    if not needed and (put == Put.END) is bool(tree.get("find")):
        needed = ["find"] if put != Put.END else []
    if needed:
        raise SettingsError(f"{needed[0]} is missing", where=place)
    file = _word(tree, "file", place)
    if file.startswith("/") or ".." in file.split("/"):
        raise SettingsError(f"a file is named relative to the package, not {file}", where=place)
    count = str(tree.get("count", "1"))
    if not count.isdecimal() or count == "0":
        raise SettingsError(f"count is a number from 1 on, not {count}", where=place)
    needs = tree.get("needs", ())
    anchor = Anchor(
        _word(tree, "find", place),
        _word(tree, "within", place),
        _word(tree, "then", place),
        tree.get("lines") == "true",
    )
    return Patch(
        _word(tree, "id", place),
        file,
        _word(tree, "reason", place),
        Put(put),
        str(tree["text"]),
        anchor if tree.get("find") else None,
        int(count),
        tuple(map(str, needs)) if isinstance(needs, (list, tuple)) else (str(needs),),
    )


def _mapping(value: object, key: str, where: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{key} maps names to values", where=where)
    return value


def _word(tree: Mapping[str, object], key: str, where: str) -> str:
    value = tree.get(key, "")
    if not isinstance(value, str):
        raise SettingsError(f"{key} is a text", where=where)
    return value.rstrip("\n")
