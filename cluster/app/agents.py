"""The programs of `cluster/agent` as commands: source on standard input, parameters as one JSON argument."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from cluster.model.bundle import bundle
from cluster.model.steps import Command
from cluster.model.units import Seconds


@cache
def source(name: str) -> bytes:
    return files("cluster.agent").joinpath(f"{name}.py").read_bytes()


@cache
def program(*parts: str) -> bytes:
    """Parts that make one program, the last one being its main."""
    return bundle(source(part) for part in parts)


def agent(name: str, parameters: Any, limit: float = 30.0) -> Command:
    """Nothing has to lie on the node for it, and what runs there is always of our own version."""
    return _sent(source(name), parameters, limit)


def agent_of(parts: tuple[str, ...], parameters: Any, limit: float = 30.0) -> Command:
    """The same, of parts that make one program."""
    return _sent(program(*parts), parameters, limit)


def _sent(text: bytes, parameters: Any, limit: float) -> Command:
    argv = ("python3", "-IS", "-", json.dumps(parameters, separators=(",", ":")))
    return Command(argv, stdin=text, limit=Seconds(limit))
