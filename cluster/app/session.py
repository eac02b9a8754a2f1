"""All nodes of a deployment, opened side by side."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

from cluster.errors import NodeError, SettingsError
from cluster.model.events import Emit, Severity, Told
from cluster.model.settings import NodeSettings, Settings
from cluster.node.base import Node

T = TypeVar("T")
Item = TypeVar("Item")
LAST_WORDS = 5.0  # seconds for a command that was cut off to return; an attempt to connect may take longer
OpenNode = Callable[[NodeSettings], Node]
NOISE = "its login shell prints into the output of commands; we cut that off, rsync and zfs would fail: fix ~/.bashrc"


@dataclass(frozen=True, slots=True)
class Access:
    """How to get to the nodes, besides what the settings say."""

    ssh_config: Path | None = None
    accept_new_host_key: bool = False


class Session:
    """Open connections by node name, in rank order; `missing` holds why the others could not be opened."""

    def __init__(self, settings: Settings, open_one: OpenNode, emit: Emit = lambda event: None) -> None:
        self.settings = settings
        self._open_one = open_one
        self._emit = emit
        self._noisy: set[str] = set()
        self.nodes: dict[str, Node] = {}
        self.missing: dict[str, NodeError] = {}
        self._closed: set[str] = set()

    @property
    def head(self) -> Node:
        return self.node(self.settings.head.name)

    def open(self) -> Self:
        outcomes = _side_by_side({one.name: one for one in self.settings.nodes}, self._open_one, self.interrupt)
        wrong: list[Exception] = []
        for name, outcome in outcomes.items():
            match outcome:
                case NodeError():
                    self.missing[name] = outcome
                case Exception():
                    wrong.append(outcome)
                case node:
                    self.nodes[name] = node
        if wrong:
            self.close()
        raise_all(tuple(wrong))
        return self

    def reopen(self, name: str) -> Node:
        """A fresh connection in the place of a lost one."""
        if name in self.nodes:
            self.nodes[name].close()
        settings = next(one for one in self.settings.nodes if one.name == name)
        node = self._open_one(settings)
        self.nodes[name] = node
        self.missing.pop(name, None)
        self._closed.discard(name)
        return node

    def interrupt(self) -> None:
        """End every running command, so that nobody waits for them; the next use of a node connects again."""
        for node in self.nodes.values():
            node.close()
        self._closed.update(self.nodes)

    def node(self, name: str) -> Node:
        """The open node of that name, connected again if need be."""
        if name in self.missing:
            raise self.missing[name]
        if name in self._closed:
            self._closed.discard(name)
            return self.reopen(name)
        return self.nodes[name]

    def on(self, name: str, act: Callable[[Node], T]) -> T:
        """One call on one node, ended at once when the user interrupts."""
        return self._all({name: self.node(name)}, act)[name]

    def retry_missing(self) -> None:
        """Try once more to reach the nodes that could not be opened."""
        for name in tuple(self.missing):
            try:
                self.reopen(name)
            except NodeError as error:
                self.missing[name] = error

    def need_all(self) -> Self:
        raise_all(tuple(self.missing.values()))
        return self

    def each(self, act: Callable[[Node], T]) -> dict[str, T]:
        """One call per node, side by side. Waits for all; then raises what went wrong, all of it."""
        return self._all({name: self.node(name) for name in self.nodes}, act)

    def _all(self, nodes: Mapping[str, Node], act: Callable[[Node], T]) -> dict[str, T]:
        outcomes = _side_by_side(nodes, act, self.interrupt)
        raise_all(tuple(one for one in outcomes.values() if isinstance(one, Exception)))
        return {name: one for name, one in outcomes.items() if not isinstance(one, Exception)}

    def at_once(self, *acts: Callable[[], Any]) -> list[Any]:
        """Several questions side by side, each of which may go to all nodes; their answers in the same order."""
        outcomes = list(
            _side_by_side({str(at): act for at, act in enumerate(acts)}, lambda act: act(), self.interrupt).values()
        )
        # a node that is lost is lost to every question: it is told once
        unique = {(type(leaf), str(leaf)): leaf for one in outcomes for leaf in _leaves(one)}
        raise_all(tuple(unique.values()))
        return outcomes

    def attempt(self, act: Callable[[Node], T]) -> dict[str, T | NodeError]:
        """Like `each`, but a node that cannot be reached is an outcome and not the end."""
        outcomes = _side_by_side({name: self.node(name) for name in self.nodes}, act, self.interrupt)
        raise_all(
            tuple(one for one in outcomes.values() if isinstance(one, Exception) and not isinstance(one, NodeError))
        )
        told: dict[str, T | NodeError] = {
            **self.missing,
            **{
                name: one
                for name, one in outcomes.items()
                if isinstance(one, NodeError) or not isinstance(one, Exception)
            },
        }
        return {one.name: told[one.name] for one in self.settings.nodes if one.name in told}

    def close(self) -> None:
        for node in self.nodes.values():
            if node.noise and node.name not in self._noisy:
                self._noisy.add(node.name)
                self._emit(Told(Severity.WARNING, NOISE, node.name))
            node.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _side_by_side(
    items: Mapping[str, Item], act: Callable[[Item], T], interrupt: Callable[[], None]
) -> dict[str, T | Exception]:
    """A thread each: an executor loses sight of one that starts while Ctrl-C comes; its act would outlive the undo."""
    outcomes: dict[str, T | BaseException] = {}

    def run(name: str, item: Item) -> None:
        try:
            outcomes[name] = act(item)
        except BaseException as error:  # a thread root: every error is handed to the caller
            outcomes[name] = error

    threads = [Thread(target=run, args=each, name=f"node {each[0]}", daemon=True) for each in items.items()]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {name: _unless_interrupted(outcomes[name]) for name in items}
    except KeyboardInterrupt:
        interrupt()
        for thread in threads:
            if thread.is_alive():
                thread.join(LAST_WORDS)
        raise


def _unless_interrupted(outcome: T | BaseException) -> T | Exception:
    if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
        raise outcome
    return outcome


def _leaves(outcome: object) -> tuple[BaseException, ...]:
    match outcome:
        case BaseExceptionGroup():
            return tuple(leaf for one in outcome.exceptions for leaf in _leaves(one))
        case BaseException():
            return (outcome,)
        case _:
            return ()


def raise_all(errors: tuple[BaseException, ...]) -> None:
    """Nothing, the one error, or a group of them: both nodes' failures are told, not the first."""
    match errors:
        case ():
            return
        case (error,):
            raise error
        case _:
            raise BaseExceptionGroup("several nodes failed", list(errors))


def locate(settings: Settings, is_local: Callable[[str], bool]) -> Settings:
    """Give every node a name and a control address: the head is this machine when its address is one of ours."""
    nodes = tuple(_located(one, rank, is_local) for rank, one in enumerate(settings.nodes))
    names = [one.name for one in nodes]
    if len(set(names)) != len(names):
        raise SettingsError(f"two nodes have the same name: {', '.join(names)}", fix="set HEAD_NAME and WORKER_NAME")
    return replace(settings, nodes=nodes)


def _located(node: NodeSettings, rank: int, is_local: Callable[[str], bool]) -> NodeSettings:
    control = node.control or ("local" if is_local(node.address) else "")
    role = "head" if rank == 0 else "worker" if rank == 1 else f"worker{rank}"
    if not control:
        raise SettingsError(
            f"{node.address} is not an address of this machine, and nothing says how to reach the {role}",
            where=role,
            fix=f"set {'HEAD_SSH' if rank == 0 else 'WORKER_SSH'}=user@host, or run sparkctl on the head",
        )
    return replace(node, control=control, name=node.name or role)


def open_with(access: Access, emit: Emit) -> OpenNode:
    from cluster.node.open import open_node

    def open_one(node: NodeSettings) -> Node:
        opened = open_node(
            node.name,
            node.control,
            ssh_config=access.ssh_config,
            accept_new_host_key=access.accept_new_host_key,
        )
        for sentence in opened.accepted_keys:
            emit(Told(Severity.NOTE, sentence, node.name))
        return opened

    return open_one
