"""Which folders of weights a deployment has on which node, and the verdict over what was seen in one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from cluster.errors import SettingsError
from cluster.model.settings import Settings
from cluster.model.weights import FileState, ProvenFolder, WeightFile
from cluster.probe.manifest import IndexFact, verdicts
from cluster.weights.manifest import FileFact, Manifest, exposure, judge

OWN = ".sparkctl"
MANIFEST = f"{OWN}/manifest.json"
MODEL, TABLES = "the model", "the Engram tables"


@dataclass(frozen=True, slots=True)
class Place:
    """A folder on a node; `cache` is the node's file of what it has proven."""

    what: str
    folder: str
    cache: str


def places(settings: Settings) -> dict[str, dict[str, Place]]:
    """What -> node -> where. The Engram tables only where they have a folder of their own on every node."""
    model = {node.name: node.model or settings.serve.model for node in settings.nodes}
    tables = {node.name: node.engram for node in settings.nodes}
    if not all(model.values()):
        raise SettingsError("nothing says where the model is", fix="set MODEL_DIR, or MODEL_HOST on the head")
    found = {MODEL: model}
    if all(tables.values()) and tables != model:
        found[TABLES] = tables
    return {
        what: {node.name: Place(what, there[node.name], verdicts(node)) for node in settings.nodes}
        for what, there in found.items()
    }


def recorded(folder: str) -> str:
    """Where a fetch leaves what the folder must hold: beside the files, so that it travels with them."""
    return str(PurePosixPath(folder) / MANIFEST)


def proven(
    node: str,
    folder: str,
    manifest: Manifest | None,
    facts: Mapping[str, FileFact],
    index: IndexFact | None,
    *,
    unlike: frozenset[str] | None,
    by_content: bool = True,
    present: bool = True,
    hashed: int = 0,
    seconds: float = 0.0,
) -> ProvenFolder:
    """`unlike`: names that are not as on the head, None when nobody compared; `by_content`: by more than their size."""
    judged = [_judged(fact, manifest, unlike, by_content) for fact in facts.values()]
    absent = sorted((unlike or frozenset()) - facts.keys()) if present else []
    judged += [WeightFile(name, FileState.MISSING, None, "missing", "is not there, the head has it") for name in absent]
    wrong = tuple(one for one in judged if one.state.is_gap)
    problems = _problems(manifest, index, present=present, empty=not facts)
    right = sum(one.state in (FileState.RIGHT, FileState.EQUAL) for one in judged)
    return ProvenFolder(
        node,
        folder,
        not wrong and not problems,
        len(judged),
        sum(one.size or 0 for one in judged),
        right,
        sum(one.state is FileState.NOT_CHECKED for one in judged),
        hashed,
        seconds,
        manifest.repo if manifest else "",
        manifest.revision if manifest else "",
        wrong,
        problems,
        _notes(folder, facts),
    )


def _judged(fact: FileFact, manifest: Manifest | None, unlike: frozenset[str] | None, by_content: bool) -> WeightFile:
    found = judge(fact, manifest.entry(fact.name) if manifest else None)
    if found.state is not FileState.NOT_CHECKED or unlike is None:
        return found
    if fact.name in unlike:
        detail = f"is {fact.digest or f'{fact.size} bytes'}, not what the head has"
        return replace(found, state=FileState.WRONG, fault="unlike", detail=detail)
    return replace(found, state=FileState.EQUAL) if by_content and fact.digest else found


def _problems(manifest: Manifest | None, index: IndexFact | None, *, present: bool, empty: bool) -> tuple[str, ...]:
    if not present:
        return ("the folder is not there",)
    if empty:
        return ("the folder is empty",)
    told = []
    if index and index.missing_count:
        told.append(f"{index.missing_count} tensors of the index are in no shard: {', '.join(index.missing)}")
    if index and index.surplus_count:
        told.append(f"{index.surplus_count} tensors are not in the index: {', '.join(index.surplus)}")
    return tuple(told)


def _notes(folder: str, facts: Mapping[str, FileFact]) -> tuple[str, ...]:
    out = exposure(folder, facts.values())
    if out is None:
        return ()
    inner = "itself" if out.inner == "." else f"{out.inner} below it"
    return (f"its links lead out of it: a container or an export needs {out.mount}, and {inner} as the model",)
