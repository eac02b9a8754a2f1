"""One deployment of the native runtime with a stand-in for its server, and what a test does with it."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from cluster.model.deployment import DeploymentId
from cluster.model.steps import Run, Write
from cluster.model.units import Seconds
from cluster.node.base import Node, Result
from cluster.probe.rank_acts import NodeStopped, parse_stop
from cluster.probe.ranks import NodeLook, RankLook, parse_look
from cluster.runtime.base import LaunchSpec, RankSpec
from cluster.runtime.native import HeadQuestion, NativeRuntime, Where

STANDIN = Path(__file__).with_name("standin.py")
T = TypeVar("T")


@dataclass
class Bench:
    """`number` is the rank that `start` starts; `ranks` narrows what is looked at and stopped."""

    node: Node
    state: Path
    runtime: NativeRuntime
    which: DeploymentId
    number: int = 0
    ranks: tuple[int, ...] | None = None

    @property
    def where(self) -> Where:
        return Where(str(self.state), self.which.name, self.ranks)

    @property
    def folder(self) -> Path:
        return self.state / "deployments" / self.which.name / "boots" / self.which.boot / f"rank{self.number}"

    def rank(self, *words: str, argv: tuple[str, ...] = (), secrets: tuple[tuple[str, str], ...] = ()) -> RankSpec:
        standin = (sys.executable, str(STANDIN), *words)
        return RankSpec(self.number, "here", argv or standin, (), secrets, str(self.state))

    def prepare(self, rank: RankSpec, **spec: object) -> Run:
        """Write what the rank needs, and give the step that launches it; `spec` overrides what spec.json says."""
        launch = LaunchSpec(self.which, (rank,))
        for step in self.runtime.prepare(launch):
            assert isinstance(step, Write)
            data = step.data
            if step.path.name == "spec.json":
                data = json.dumps(json.loads(data) | spec).encode()
            self.node.write(str(step.path), data, step.mode)
        (step,) = self.runtime.launch(launch)
        assert isinstance(step, Run)
        *words, request = step.command.argv
        # A session of its own where systemd runs too: what its units do is shown in the lab.
        alone = json.dumps(json.loads(request) | {"unit": None})
        return replace(step, command=replace(step.command, argv=(*words, alone)))

    def launch(self, rank: RankSpec, **spec: object) -> Result:
        return self.node.run(self.prepare(rank, **spec).command)

    def start(
        self, *words: str, argv: tuple[str, ...] = (), secrets: tuple[tuple[str, str], ...] = (), **spec: object
    ) -> RankLook:
        """Launch the stand-in and wait until it is ready."""
        result = self.launch(self.rank(*words, argv=argv, secrets=secrets), **spec)
        assert result.exit == 0, result.text
        until((self.folder / "log").read_text, lambda text: " ready\n" in text)
        return self.seen()

    def look(self, head: HeadQuestion | None = None) -> NodeLook:
        return parse_look(self.node.run(self.runtime.look(self.where, head=head)).text)

    def seen(self) -> RankLook:
        (rank,) = [rank for rank in self.look().ranks if rank.boot == self.which.boot]
        return rank

    def stop(self, grace: float = 5.0) -> NodeStopped:
        return parse_stop(self.node.run(self.runtime.stop(self.where, Seconds(grace))).text)


def until(ask: Callable[[], T], is_right: Callable[[T], bool], limit: float = 20.0) -> T:
    end = time.monotonic() + limit
    while not is_right(value := ask()):
        assert time.monotonic() < end, value
        time.sleep(0.05)
    return value


def names(rank: RankLook) -> list[str]:
    return sorted(process.name for process in rank.processes if process.name.startswith("VLLM"))


def pid_of(rank: RankLook, name: str) -> int:
    (pid,) = [process.pid for process in rank.processes if process.name == name]
    return pid


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
