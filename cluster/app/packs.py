"""What the verbs about packs of weights share: the node, its folders, the headers, and files written out of pieces."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from cluster.app.agents import agent, agent_of
from cluster.app.observe import told
from cluster.app.session import OpenNode, Session, locate
from cluster.errors import Locked, Refused, SettingsError, StepFailed, Unreadable
from cluster.model.events import Emit, Progress
from cluster.model.packs import Made, PackFile
from cluster.model.settings import NodeSettings, Settings
from cluster.model.units import format_bytes
from cluster.node.base import Node
from cluster.node.failures import NoSuchFile
from cluster.weights.assembly import ASSEMBLER, Assembly, as_order
from cluster.weights.safetensors import Header, check_size, header_end, read_header

FIRST_LOOK = 64 * 1024  # holds most headers whole
LONG = 24 * 3600.0
ORDERS = ".sparkctl-orders"
RESERVE = 10 * 2**30


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder on a node; `kind` is file, folder, dangling or other, `target` a link's text,
    `real` where it leads."""

    name: str
    kind: str
    size: int
    target: str
    inode: int
    real: str


@dataclass(frozen=True, slots=True)
class Folder:
    path: PurePosixPath
    present: bool
    free: int
    writable: bool
    entries: tuple[Entry, ...]

    def named(self, name: str) -> Entry | None:
        return next((one for one in self.entries if one.name == name), None)

    @property
    def shards(self) -> tuple[Entry, ...]:
        return tuple(one for one in self.entries if one.name.endswith(".safetensors") and one.kind != "folder")


@dataclass(frozen=True, slots=True)
class Shard:
    """A safetensors file with what its header says; `first` are the header's bytes."""

    path: PurePosixPath
    header: Header
    first: bytes

    @property
    def name(self) -> str:
        return self.path.name


@contextmanager
def pack_node(settings: Settings, open_one: OpenNode) -> Iterator[Node]:
    """The head; this machine when no setting names a head."""
    head = settings.head
    if head.address or head.control:
        from cluster.node.local import is_local_address

        settings = locate(replace(settings, nodes=(head,)), is_local_address)
    else:
        settings = replace(settings, nodes=(NodeSettings(name=head.name or "here", control="local"),))
    with Session(settings, open_one) as session:
        session.need_all()
        yield session.head


def folder(node: Node, path: str) -> Folder:
    text = told(node, node.run(agent("folder", {"path": path})))
    try:
        seen = json.loads(text)
        entries = tuple(Entry(*one) for one in seen["entries"])
        return Folder(PurePosixPath(seen["path"]), seen["present"], seen["free"], seen["writable"], entries)
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable("cannot read what lies in a folder", where=node.name, evidence=(text[:200],)) from error


def pack(node: Node, path: str) -> Folder:
    """A folder that must be there and hold weights."""
    found = folder(node, path)
    if not found.present:
        raise SettingsError("there is no such folder", where=f"{node.name}:{found.path}", fix="check the path")
    if not found.shards:
        raise SettingsError(
            "the folder holds no *.safetensors", where=f"{node.name}:{found.path}", fix="name the folder of the shards"
        )
    for one in found.shards:
        if one.kind == "dangling":
            raise Refused(
                "a shard is a link to a file that is gone",
                where=f"{node.name}:{found.path / one.name}",
                evidence=(f"{one.name} -> {one.target}",),
                fix="download the file again; a pruned or moved download cache leaves such links",
            )
    return found


def json_object(node: Node, path: PurePosixPath, *, absent: str = "download it with the weights") -> dict[str, Any]:
    """The JSON object of a file. `absent` is what to do when it is not there."""
    where = f"{node.name}:{path}"
    try:
        found = json.loads(node.read(str(path)))
    except NoSuchFile as error:
        raise SettingsError(f"there is no {path.name}", where=where, fix=absent) from error
    except ValueError as error:
        raise Refused(f"{path.name} is not JSON: {error}", where=where, fix="download it again") from error
    if not isinstance(found, dict):
        raise Refused(f"{path.name} is not a JSON object", where=where, fix="download it again")
    return found


def shard(node: Node, path: PurePosixPath, size: int) -> Shard:
    """BadShard when the file is cut off, longer than it says, or no safetensors file."""
    where = f"{node.name}:{path}"
    first = node.read(str(path), 0, FIRST_LOOK)
    end = header_end(first, where)
    if len(first) < end:
        first += node.read(str(path), len(first), end - len(first))
    header = read_header(first, where)
    check_size(header, size, where)
    return Shard(path, header, first[:end])


def shards(node: Node, found: Folder) -> tuple[Shard, ...]:
    return tuple(shard(node, found.path / one.name, one.size) for one in found.shards)


def demand(node: Node, target: Folder, written: int, reserve: int) -> None:
    """Refuse before the first byte, not after an hour."""
    if not target.writable:
        raise Refused("cannot write there", where=f"{node.name}:{target.path}", fix="choose another folder")
    if written and written + reserve > target.free:
        raise Refused(
            f"{format_bytes(target.free)} are free, {format_bytes(written + reserve)} are needed"
            f" ({format_bytes(written)} to write, {format_bytes(reserve)} stay free)",
            where=f"{node.name}:{target.path}",
            fix="make room, choose another disk, or lower --reserve",
        )


@dataclass(frozen=True, slots=True)
class Order:
    """How to carry out: threads at work, whether to read back and compare, whether to tell sha256 digests."""

    threads: int = 4
    verify: bool = True
    sums: bool = False


Link = tuple[str, str, str]  # name, target, symlink | hardlink | copy


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of each file, and the digests of those that have one."""

    files: tuple[PackFile, ...]
    sums: dict[str, str]

    @property
    def ok(self) -> bool:
        return all(one.made is not Made.FAILED for one in self.files)


def carry_out(
    node: Node,
    emit: Emit,
    stage: str,
    target: PurePosixPath,
    assemblies: Sequence[Assembly],
    links: Sequence[Link],
    how: Order,
    digests: Sequence[str] = (),
) -> Outcome:
    """Write and link on the node. The orders lie beside the files until all is well. `digests` are only read."""
    if not assemblies and not links and not digests:
        return Outcome((), {})
    orders = []
    for one in assemblies:
        path = target / ORDERS / f"{one.name}.json"
        node.write(str(path), as_order(one), 0o600)
        orders.append(str(path))
    request = {
        "folder": str(target),
        "orders": orders,
        "links": links,
        "digest": digests,
        "threads": how.threads,
        "verify": how.verify,
        "sums": how.sums,
        "size": sum(one.size for one in assemblies),
    }
    files: list[PackFile] = []
    sums: dict[str, str] = {}
    busy: list[str] = []

    def listen(text: str) -> None:
        said = json.loads(text)
        match said["kind"]:
            case "progress":
                emit(Progress(stage, node.name, said["done"], said["size"], "bytes", rate=said["rate"]))
            case "done":
                made = {"symlink": Made.LINKED, "hardlink": Made.LINKED, "copy": Made.COPIED, "digest": Made.KEPT}
                files.append(
                    PackFile(said["name"], made.get(said.get("how", ""), Made.WRITTEN), said["size"], said["seconds"])
                )
                if said["sha256"]:
                    sums[said["name"]] = said["sha256"]
            case _ if said["fault"] == "BUSY":
                busy.append(said["text"])
            case _:
                files.append(PackFile(said["name"], Made.FAILED, 0, 0.0, said["text"]))

    result = node.stream(agent_of(ASSEMBLER, request, LONG), listen)
    if busy:
        raise Locked(busy[0], where=node.name, fix="wait until it has ended, then run this again")
    if result.exit not in (0, 1) or (result.exit == 1 and not any(one.made is Made.FAILED for one in files)):
        raise StepFailed(
            f"writing the files ended with exit code {result.exit}",
            where=f"{node.name}:{target}",
            evidence=result.err_text.strip().splitlines()[-5:],
            fix="run it again: files that are complete are kept",
        )
    return Outcome(tuple(files), sums)
