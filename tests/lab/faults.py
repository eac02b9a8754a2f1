"""What the fault tests share: two nodes with a fake vLLM, what is left on them, and the record of what was seen."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tests.lab.fake_vllm import HOME
from tests.lab.node import until
from tests.lab.specification import REPOSITORY

if TYPE_CHECKING:
    from tests.lab.cli import Said
    from tests.lab.node import InNode, Node
    from tests.lab.nodes import Lab

RECORD = REPOSITORY / "build" / "faults.json"
MODEL = "/opt/model"
PACKAGES = f"{HOME}/lib/python3/site-packages"
OF_THE_PLACE = ("time.sleep(9e5)",)  # the squatter on a port
SHARED = {"RECIPE": "demo", "HEAD_IP": "10.77.0.1", "WORKER_IP": "10.77.0.2", "WORKER_SSH": "spark-b"}
STAND_IN = SHARED | {"DEPLOYMENT": "stand-in", "VENV": str(HOME), "MODEL_DIR": MODEL, "PORT": "8000"}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: `seconds` from the fault to the sentence, `exit` of the command that said it."""

    fault: str
    command: str
    seconds: float
    said: str
    exit: int
    left: str


def note(fault: str, said: Said, left: str, seconds: float | None = None) -> None:
    """Keep what was seen, for docs/faults.md. No fault may end in exit 0."""
    assert said.code != 0, said.result
    row = Row(fault, said.words[0], said.seconds if seconds is None else seconds, said.sentence, said.code, left)
    RECORD.parent.mkdir(exist_ok=True)
    rows = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    rows[fault] = asdict(row)
    RECORD.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


def install_stand_in(node: Node) -> None:
    """A fake environment with a `vllm` in it, and a model of one file; both are the node's own."""
    node.path(f"{HOME}/bin").mkdir(parents=True)
    node.path(f"{PACKAGES}/vllm-0.32.0.dist-info").mkdir(parents=True)
    program = node.path(f"{HOME}/bin/vllm")
    program.write_text(f'#!/bin/sh\nexec python3 -S {REPOSITORY}/tests/lab/fake_vllm.py "$@"\n')
    program.chmod(0o755)
    node.path(MODEL).mkdir()
    node.path(f"{MODEL}/config.json").write_text("{}\n")
    behave(node, "serve")


def behave(node: Node, how: str) -> None:
    node.path(f"{HOME}/behaviour").write_text(how)


def ours(node: Node) -> tuple[InNode, ...]:
    """What runs on a node that sparkctl or its ranks started."""
    return tuple(one for one in node.processes() if not any(word in one.title for word in OF_THE_PLACE))


def left(lab: Lab, seconds: float = 10.0) -> str:
    """What still runs on the nodes, in words. Programs that a lost connection leaves are given a moment to end."""
    with contextlib.suppress(AssertionError):
        until(lambda: not any(map(ours, lab.nodes)), "nothing is left", seconds)
    told = [f"{name}: {count} processes" for name, count in living(lab).items() if count]
    return ", ".join(told) or "nothing"


def living(lab: Lab) -> dict[str, int]:
    return {"rank 0": len(ours(lab.a)), "rank 1": len(ours(lab.b))}


def nothing_is_left(lab: Lab) -> None:
    said = left(lab)
    assert said == "nothing", [ours(node) for node in lab.nodes]


def clear(lab: Lab) -> None:
    """For the next fault: no process of ours, links and disks as they were."""
    for node in lab.nodes:
        for process in node.processes():
            with contextlib.suppress(StopIteration, ProcessLookupError):
                node.kill(process.pid)
        lab.free_disk(node)
        lab.restore_control(node)
    lab.restore_link()
    nothing_is_left(lab)


def signal_to(node: Node, title: str, number: int) -> float:
    """Signal the one process of that title; the moment it was done."""
    (process,) = [one for one in node.processes(title) if "rank.py" not in one.title and "cluster" not in one.argv]
    node.kill(process.pid, number)
    return time.monotonic()
