"""All nodes see the weights already: copies, a file server, SSHFS. Nothing is done; it is only proven by content."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from cluster.errors import Refused, Unreadable
from cluster.model.steps import Command, NodeName, Plan
from cluster.model.units import Seconds
from cluster.share.base import Folder, Reading, ReadThrough, Source, Want, on_host

PATIENCE = Seconds(30.0)


@dataclass(frozen=True, slots=True)
class PathSeen:
    """A folder on a node. `problem`: missing, no answer in time, stale ...; `kind` is the file system's."""

    path: str
    kind: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class InplaceSeen:
    folders: Mapping[str, PathSeen]


class InplaceShare:
    """Proof by content is common to all shares; here it is all there is."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def look(self, want: Want) -> Mapping[NodeName, Command]:
        return {node.name: self._ask(want, node.name) for node in (want.head, *want.workers)}

    def _ask(self, want: Want, node: NodeName) -> Command:
        paths = {one.name: one.targets.get(node, one.source) for one in want.folders}
        argv = ("python3", "-IS", "-", json.dumps({"paths": paths}, separators=(",", ":")))
        return Command(argv, stdin=self._source("touch", "paths"), limit=PATIENCE)

    def read(self, want: Want, node: NodeName, text: str) -> InplaceSeen:
        try:
            return InplaceSeen({name: PathSeen(**one) for name, one in json.loads(text).items()})
        except (ValueError, TypeError) as error:
            raise Unreadable(f"cannot read what it says of its folders: {error}", where=node) from error

    def attach(self, want: Want, seen: Mapping[NodeName, InplaceSeen]) -> Plan:
        wrong = [
            f"{node}:{path.path}: {path.problem}"
            for node, one in seen.items()
            for path in one.folders.values()
            if path.problem
        ]
        if wrong:
            fix = "mount or copy the weights there, or choose another way: WEIGHT_SYNC=nfs"
            raise Refused("not every node sees the weights", evidence=wrong, fix=fix)
        return Plan(())

    def detach(self, want: Want, seen: Mapping[NodeName, InplaceSeen]) -> Plan:
        return Plan(())

    def reading(self, want: Want, folder: Folder, node: NodeName) -> Reading:
        return on_host(want, folder, node)

    def how(
        self, want: Want, folder: Folder, node: NodeName, seen: Mapping[NodeName, InplaceSeen], mount: ReadThrough
    ) -> str:
        return f"in place, on {mount.kind}"

    def notes(self, want: Want, seen: Mapping[NodeName, InplaceSeen]) -> tuple[str, ...]:
        return ()
