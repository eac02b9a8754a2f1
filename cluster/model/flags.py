"""What settings say to every rank alike: `vllm serve` flags and environment variables."""

import json
from collections.abc import Iterator
from math import ceil
from typing import Any

from cluster.model.exl3 import exl3_variables
from cluster.model.serve import Speculation
from cluster.model.settings import Serve, Settings, table
from cluster.model.table import Row


def value_of(settings: Settings, key: str) -> Any:
    """The value of a dotted key of a section, of `head.*` or of `worker.*`; None where there is no such node."""
    section, _, name = key.partition(".")
    match section:
        case "worker":
            return getattr(settings.nodes[1], name) if len(settings.nodes) > 1 else None
        case _ if name:
            return getattr(getattr(settings, section), name)
        case _:
            return getattr(settings, section)


def serve_flags(settings: Settings) -> tuple[str, ...]:
    """Flags of the settings that have one, of the drafting, then those that only a recipe or cluster.yaml names.

    A flag that stands in EXTRA_ARGS too is left to it, for the user's word comes last.
    """
    extra = {word.partition("=")[0] for word in settings.serve.extra_args if word.startswith("--")}
    named = [word for row, value in _said(settings) for word in _flag(row.meta.flag, value)]
    return (*named, *_speculation(settings.serve), *_by_name(settings, extra))


def _said(settings: Settings) -> Iterator[tuple[Row, Any]]:
    for row in table():
        if row.meta.flag and not (row.meta.unless and value_of(settings, row.meta.unless)):
            value = value_of(settings, row.key)
            if not (row.key == "serve.quantization" and value == "none"):
                yield row, value


def _flag(flag: str, value: Any) -> tuple[str, ...]:
    match value:
        case None | False | "" | ():
            return ()
        case True:
            return (flag,)
        case tuple():
            return (flag, *map(text, value))
        case _:
            return (flag, text(value))


def _speculation(serve: Serve) -> tuple[str, ...]:
    match serve.speculation:
        case Speculation.NONE:
            return ()
        case Speculation.DSPARK:
            drafting = {"method": "dspark", "num_speculative_tokens": serve.speculative_tokens}
            return ("--speculative-config", json.dumps(drafting, separators=(",", ":")))


def _by_name(settings: Settings, extra: set[str]) -> Iterator[str]:
    for name, words in settings.serve.flags:
        eager_anyway = settings.serve.enforce_eager and name == "cudagraph-capture-sizes"
        if f"--{name}" not in extra and not eager_anyway:
            yield from (f"--{name}", *words)


def variables(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Environment variables of every rank, by name; those named in `launch.environment` come last and win."""
    named = {row.meta.variable: value_of(settings, row.key) for row in table() if row.meta.variable}
    said = {name: text(value) for name, value in named.items() if value not in (None, "", ())}
    held = exl3_variables(settings.exl3, settings.serve.max_model_len)
    return tuple(sorted((said | held | dict(settings.launch.environment)).items()))


def text(value: Any) -> str:
    """One value as a command line or a variable carries it."""
    match value:
        case bool():
            return "1" if value else "0"
        case float():
            return str(ceil(value))  # durations; vLLM reads them as whole seconds
        case tuple():
            return ",".join(map(text, value))
        case _:
            return str(value)
