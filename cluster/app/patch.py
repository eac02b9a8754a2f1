"""`patch status|apply|revert`: read the files of a package on a node, decide in `plan.patch`, write what it decided."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from cluster.app.agents import agent
from cluster.app.observe import told
from cluster.app.packs import pack_node
from cluster.app.session import OpenNode
from cluster.config import sources
from cluster.errors import SettingsError, Unreadable
from cluster.model.packs import PatchedFile, PatchReport, PatchState
from cluster.model.settings import Settings
from cluster.node.base import Node
from cluster.node.failures import NoSuchFile
from cluster.plan.patch import (
    PatchSet,
    Receipt,
    digest,
    must_be_for,
    overall,
    plan_apply,
    plan_revert,
    standing,
)
from cluster.plan.patch_file import parse_set

RECEIPTS, KEPT = ".sparkctl-patches.json", ".sparkctl-patches"


@dataclass(frozen=True, slots=True)
class _Site:
    """The package's folder on the node, its version, its files by name, and what was recorded there."""

    node: Node
    root: PurePosixPath
    version: str
    files: Mapping[str, str | None]
    receipts: tuple[Receipt, ...]
    expected: Mapping[str, str]

    @property
    def where(self) -> str:
        return f"{self.node.name}:{self.root}"


def patch_sets() -> tuple[str, ...]:
    found = resources.files("cluster.patches").iterdir()
    return tuple(sorted(one.name.removesuffix(".yaml") for one in found if one.name.endswith(".yaml")))


def read_set(name: str) -> PatchSet:
    """A set that we ship, or a YAML file."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser()
        data, where = sources.read(path, str(path)), str(path)
    elif name in patch_sets():
        data, where = resources.files("cluster.patches").joinpath(f"{name}.yaml").read_bytes(), name
    else:
        raise SettingsError(
            f"there is no set of patches {name}", fix=f"name one of {', '.join(patch_sets())}, or a YAML file"
        )
    return parse_set(PurePosixPath(where).stem, _plain(sources.parse_yaml(data, where)), where)


def status(settings: Settings, open_one: OpenNode, name: str, root: str = "") -> PatchReport:
    found = read_set(name)
    with _site(settings, open_one, found, root) as site:
        return _report("status", found, site, 0)


def apply(
    settings: Settings, open_one: OpenNode, name: str, root: str = "", *, any_version: bool = False
) -> PatchReport:
    """What was there, and the receipts, are on the disk before the first file is replaced."""
    found = read_set(name)
    with _site(settings, open_one, found, root) as site:
        if not any_version:
            must_be_for(found, site.version, site.where)
        edits = plan_apply(found, site.files, site.receipts, site.expected, site.where)
        for edit in edits:
            for text in (*edit.steps, edit.after):
                site.node.write(str(site.root / KEPT / digest(text)), text.encode(), 0o644)
        fresh = [one for edit in edits for one in edit.receipts]
        if fresh:
            _keep(site, (*(one for one in site.receipts if not _again(one, fresh)), *fresh))
        for edit in edits:
            site.node.write(str(site.root / edit.file), edit.after.encode(), 0o644)
        with _site(settings, open_one, found, str(site.root)) as after:
            return _report("apply", found, after, len(edits))


def revert(settings: Settings, open_one: OpenNode, name: str, root: str = "") -> PatchReport:
    """The newest first; each file goes back to bytes that were kept, and its receipt goes last."""
    found = read_set(name)
    with _site(settings, open_one, found, root) as site:
        back = plan_revert(site.receipts, site.files, found.name, site.expected, site.where)
        before: dict[str, str] = {one.file: one.before for one in back}  # the oldest of each file stays
        for file, kept in before.items():
            site.node.write(str(site.root / file), site.node.read(str(site.root / KEPT / kept)), 0o644)
        if back:
            _keep(site, tuple(one for one in site.receipts if one not in back))
        with _site(settings, open_one, found, str(site.root)) as after:
            return _report("revert", found, after, len(before))


def _again(old: Receipt, fresh: list[Receipt]) -> bool:
    """The record of an ended run whose file was never written."""
    return any((old.patches, old.id, old.file) == (one.patches, one.id, one.file) for one in fresh)


@contextmanager
def _site(settings: Settings, open_one: OpenNode, found: PatchSet, root: str) -> Iterator[_Site]:
    with pack_node(settings, open_one) as node:
        want = {"root": root, "venv": settings.launch.venv, "package": found.package}
        seen: dict[str, Any] = json.loads(told(node, node.run(agent("package", want))))
        if not seen["root"]:
            raise SettingsError(
                f"{found.package} is not there",
                where=f"{node.name}:{root or settings.launch.venv or 'no VENV is set'}",
                fix="pass --root with the package's own folder, or set VENV",
            )
        folder = PurePosixPath(seen["root"])
        receipts = _receipts(node, folder)
        files = {one: _text(node, folder / one) for one in found.files}
        newest = {one.file: one.after for one in receipts}
        kept = {file: _text(node, folder / KEPT / sha) for file, sha in newest.items()}
        expected = {file: text for file, text in kept.items() if text is not None}
        yield _Site(node, folder, seen["version"], files, receipts, expected)


def _report(action: str, found: PatchSet, site: _Site, changed: int) -> PatchReport:
    files = []
    for file in found.files:
        text = site.files[file]
        stands = standing(file, text, found.patches)
        chain = [one for one in site.receipts if one.file == file and one.patches == found.name]
        files.append(
            PatchedFile(
                file,
                stands.state,
                stands.applied,
                stands.missing,
                chain[0].before if chain else "",
                digest(text) if text is not None else "",
                stands.problems,
            )
        )
    state = overall(one.state for one in files)
    return PatchReport(action, found.name, str(site.root), site.version, PatchState(state), changed, tuple(files))


def _text(node: Node, path: PurePosixPath) -> str | None:
    try:
        return node.read(str(path)).decode()
    except NoSuchFile:
        return None
    except UnicodeDecodeError as error:
        raise Unreadable("is not UTF-8 text", where=f"{node.name}:{path}", fix="reinstall the package") from error


def _receipts(node: Node, root: PurePosixPath) -> tuple[Receipt, ...]:
    text = _text(node, root / RECEIPTS)
    if text is None:
        return ()
    try:
        return tuple(Receipt(**one) for one in json.loads(text)["applied"])
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(
            "the receipts of applied patches are damaged",
            where=f"{node.name}:{root / RECEIPTS}",
            evidence=(str(error),),
            fix="reinstall the package and remove this file",
        ) from error


def _keep(site: _Site, receipts: tuple[Receipt, ...]) -> None:
    text = json.dumps({"applied": [asdict(one) for one in receipts]}, indent=1) + "\n"
    site.node.write(str(site.root / RECEIPTS), text.encode(), 0o644)


def _plain(tree: sources.Tree) -> Any:
    match tree:
        case sources.Scalar():
            return tree.text
        case sources.Listing():
            return [_plain(one) for one in tree.items]
        case sources.Mapping():
            return {key.text: _plain(value) for key, value in tree.pairs}
