"""A way to share that only writes down what it was told: links by name on nodes that are dicts of files."""

import json
from collections.abc import Mapping

from cluster.errors import Refused
from cluster.model.steps import Command, NodeName, Plan, Run
from cluster.share.base import Folder, Reading, ReadThrough, Want, on_host, plan_of


class FakeShare:
    """`FakeShare(refuses="no disk")`; a step of it is `link NAME`, which makes the folder be seen.

    deaf  steps succeed and change nothing
    """

    def __init__(self, *, refuses: str = "", deaf: bool = False) -> None:
        self.refuses = refuses
        self.deaf = deaf
        self.linked: set[NodeName] = set()

    def answer(self, node: NodeName, command: Command) -> str:
        """What a node says to our commands."""
        match command.argv:
            case ("link", *_) if not self.deaf:
                self.linked.add(node)
            case ("unlink", *_):
                self.linked.discard(node)
            case _:
                pass  # a question
        return json.dumps(node in self.linked)

    def look(self, want: Want) -> Mapping[NodeName, Command]:
        return {node.name: Command(("seen",)) for node in want.workers}

    def read(self, want: Want, node: NodeName, text: str) -> bool:
        return bool(json.loads(text))

    def attach(self, want: Want, seen: Mapping[NodeName, bool]) -> Plan:
        if self.refuses:
            raise Refused(self.refuses)
        steps = tuple(Run(node, "link the model", Command(("link", "model"))) for node, has in seen.items() if not has)
        return plan_of(("link", steps))

    def detach(self, want: Want, seen: Mapping[NodeName, bool]) -> Plan:
        steps = tuple(Run(node, "unlink the model", Command(("unlink", "model"))) for node, has in seen.items() if has)
        return plan_of(("unlink", steps))

    def reading(self, want: Want, folder: Folder, node: NodeName) -> Reading:
        return on_host(want, folder, node)

    def how(self, want: Want, folder: Folder, node: NodeName, seen: Mapping[NodeName, bool], mount: ReadThrough) -> str:
        return f"linked, on {mount.kind}"

    def notes(self, want: Want, seen: Mapping[NodeName, bool]) -> tuple[str, ...]:
        return ("a note",)
