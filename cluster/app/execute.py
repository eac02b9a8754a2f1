"""Act on a plan: nodes side by side, the steps of one node in order, a barrier after each stage, undo on failure."""

import json
import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import assert_never

from cluster.app.session import Session
from cluster.errors import SparkctlError, StepFailed
from cluster.model.events import Emit, Progress, Severity, StepStarted, Told
from cluster.model.steps import Command, CreateContainer, Run, Stage, Step, Write
from cluster.node.base import Node, Result

log = logging.getLogger(__name__)


class Transaction:
    """Steps done so far, and how to undo them. Nothing is undone unless `undo` is called."""

    def __init__(self, session: Session, emit: Emit) -> None:
        self._session = session
        self._emit = emit
        self._undo: list[tuple[str, str, Command]] = []

    def run(self, stage: Stage) -> dict[str, list[Result]]:
        """All results by node, in the order of its steps."""
        if not stage.in_order:
            return self._session.each(
                lambda node: [self._step(stage, step, node) for step in stage.steps if step.node == node.name]
            )
        results: dict[str, list[Result]] = {}
        for step in stage.steps:
            done = self._session.on(step.node, lambda node, step=step: self._step(stage, step, node))  # type: ignore[misc]
            results.setdefault(step.node, []).append(done)
        return results

    def _step(self, stage: Stage, step: Step, node: Node) -> Result:
        self._emit(StepStarted(stage.name, step.node, step.why))
        match step:
            case Run(command=command, undo=undo):
                if undo is not None:  # before the act: an act that was cut off may have happened
                    self._undo.append((step.node, step.why, undo))
                result = self._told(stage, step, node) if step.tells else node.run(command)
                return succeeded(node, step.why, result)
            case Write(path=path, data=data, mode=mode):
                node.write(str(path), data, mode)
                return Result(0, b"", b"")
            case CreateContainer(spec=spec, engine=path, undo=undo):
                from cluster.node.engine import Engine  # the SDK takes half a second to import

                with closing(Engine(node, path)) as engine:
                    identity = engine.create(spec)
                if undo is not None:  # after the act: a name that was taken is not ours to remove
                    self._undo.append((step.node, step.why, undo))
                return Result(0, identity.encode(), b"")
            case _:
                assert_never(step)

    def _told(self, stage: Stage, step: Run, node: Node) -> Result:
        """A long step, and how far it is. A line that is no progress is the step's own word, and kept."""
        words: list[str] = []

        def hear(line: str) -> None:
            try:
                said = json.loads(line)
                progress = Progress(
                    stage.name, step.node, said["done"], said["total"], step.tells, rate=said.get("rate"), text=step.why
                )
            except (ValueError, KeyError, TypeError):
                words.append(line)
                return
            self._emit(progress)

        result = node.stream(step.command, hear)
        return replace(result, out="\n".join(words).encode())

    def undo(self) -> tuple[SparkctlError, ...]:
        """Undo in reverse order, as far as the nodes can be reached; says what could not be undone."""
        failures = []
        while self._undo:
            name, why, command = self._undo.pop()
            try:
                node = self._session.node(name)
                succeeded(node, f"undoing: {why}", node.run(command))
            except SparkctlError as error:
                failures.append(error)
                self._emit(Told(Severity.WARNING, f"could not undo “{why}”: {error.what}", name))
        return tuple(failures)

    def adopt(self, node: str, why: str, undo: Command) -> None:
        """Something that an earlier start did, to be undone as if it were ours."""
        self._undo.append((node, why, undo))

    def keep(self) -> None:
        """What was done stays."""
        self._undo.clear()


def succeeded(node: Node, why: str, result: Result) -> Result:
    log.debug("%s on %s in %.1f s -> %d", why, node.name, result.seconds, result.exit)
    if result.exit == 0:
        return result
    words = (result.err_text.strip() or result.text.strip()).splitlines()
    raise StepFailed(f"{why} failed with exit code {result.exit}", where=node.name, evidence=words[-8:])


def render(command: Command, quote: Callable[[str], str]) -> str:
    """One line a person could paste, standard input named and not shown."""
    words = [f"{name}={quote(value)}" for name, value in command.env] + [quote(word) for word in command.argv]
    text = " ".join(words)
    return f"{text} < ({len(command.stdin)} bytes)" if command.stdin else text
