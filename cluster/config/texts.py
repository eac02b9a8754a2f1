"""The layers that are plain texts by name: a `.env` file, the process environment, options of the command line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cluster.config.dotenv import Dotenv, Entry
from cluster.config.layers import (
    FLAGS,
    MAPS,
    PREFIX,
    Given,
    Layer,
    Rank,
    all_names,
    canonical,
    did_you_mean,
    keys_by_name,
    map_entry,
    nearest,
    row_of,
)
from cluster.model.kit import RETIRED, RETIRED_ENDING
from cluster.model.table import Caution, Problem, Secret
from cluster.model.values import Raw, plain_kind

# Names with our prefix that say where the settings are, and are no settings themselves.
ABOUT_FILES = ("SPARKCTL_ENV_FILE", "SPARKCTL_CONFIG")


@dataclass(frozen=True, slots=True)
class Option:
    """One setting on the command line. `name` is a bare name or a dotted key; `origin` e.g. `option --port`."""

    name: str
    value: str
    origin: str


def env_file_layer(parsed: Dotenv, where: str, open_to_others: bool) -> Layer:
    """A `.env` file. Keys of other tools may stand in it, so an unknown one is a caution."""
    given, cautions, unknown = [], list(parsed.cautions), []
    problems = list(parsed.problems)
    for entry in parsed.entries:
        key = keys_by_name().get(entry.name)
        at = f"{where}:{entry.line}"
        if key:
            given.append(Given(key, _raw(key, entry.value), at))
            if entry.value and open_to_others and _is_secret(key):
                _judge_open_secret(entry, where, problems, cautions)
        else:
            caution = _stranger(entry.name, at)
            unknown.append(f"{entry.name} (line {entry.line})") if caution is None else cautions.append(caution)
    if unknown:
        cautions.append(Caution("unknown", where, f"nothing here knows {', '.join(unknown)}"))
    return Layer(Rank.ENV_FILE, tuple(given), tuple(problems), tuple(cautions))


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """`SPARKCTL_NAME` counts. A bare known name does not, and that is said once."""
    given, cautions, bare = [], [], []
    for name in sorted(environ):
        if name in keys_by_name():
            bare.append(name)
        if not name.startswith(PREFIX) or name in ABOUT_FILES:
            continue
        key = keys_by_name().get(name.removeprefix(PREFIX))
        if key:
            given.append(Given(key, _raw(key, environ[name]), f"environment {name}"))
        else:
            meant = nearest(name.removeprefix(PREFIX), keys_by_name())
            hint = f"; did you mean {PREFIX}{meant}?" if meant else ""
            cautions.append(Caution("unknown", f"environment {name}", f"is no setting and is ignored{hint}"))
    if bare:
        uses = ", ".join(f"{name} (use {PREFIX}{name})" for name in bare)
        cautions.append(Caution("bare-environment", "environment", f"ignored without the prefix: {uses}"))
    return Layer(Rank.ENVIRONMENT, tuple(given), (), tuple(cautions))


def option_layer(options: Iterable[Option]) -> Layer:
    """What stands on the command line; the same setting twice is refused when the values differ."""
    given: dict[str, Given] = {}
    problems = []
    for option in options:
        at = option.origin
        key = canonical(option.name)
        if not key:
            problems.append(Problem(at, f"there is no setting {option.name}", did_you_mean(option.name, all_names())))
            continue
        if _is_secret(key):
            what = f"{option.name} is a secret, and anyone on this machine can read command lines"
            problems.append(Problem(at, what, "put it in .env"))
            continue
        one = Given(key, _raw(key, option.value), at)
        before = given.setdefault(key, one)
        if before.raw != one.raw:
            problems.append(Problem(at, f"{option.name} is given twice, with two values; also by {before.origin}"))
    return Layer(Rank.OPTION, tuple(given.values()), tuple(problems))


def _raw(key: str, text: str) -> Raw:
    """A text as the value of a setting, or of one name in a map."""
    if key in MAPS or not map_entry(key):
        return text
    if not key.startswith(f"{FLAGS}."):
        return (text,)
    match text.lower():
        case "true":
            return ()
        case "false" | "":
            return None
        case _:
            return (text,)


def _is_secret(key: str) -> bool:
    row = row_of(key)
    return row is not None and plain_kind(row.kind)[0] is Secret


def _judge_open_secret(entry: Entry, where: str, problems: list[Problem], cautions: list[Caution]) -> None:
    """The key to the API may only stand in a file that nobody else can read; of other tokens it is said."""
    at = f"{where}:{entry.line}"
    if entry.name == "VLLM_API_KEY":
        problems.append(
            Problem(at, f"{entry.name} is a secret, and other users can read this file", f"chmod 600 {where}")
        )
    else:
        text = f"{entry.name} is a secret, and other users can read this file: chmod 600 {where}"
        cautions.append(Caution("open-secret", at, text))


def _stranger(name: str, at: str) -> Caution | None:
    """What to say of a name that is no setting; None when there is nothing to say but that."""
    if name in RETIRED:
        return Caution("retired", at, f"{name} is ignored: {RETIRED[name]}")
    ending, why = RETIRED_ENDING
    if name.endswith(ending):
        return Caution("retired", at, f"{name} is ignored: {why}")
    bare = name.removeprefix(PREFIX)
    if bare != name and bare in keys_by_name():
        return Caution("near-miss", at, f"{name} is ignored: in this file the name is {bare}")
    meant = nearest(name, keys_by_name(), 0.8)
    return Caution("near-miss", at, f"{name} is no setting and is ignored; did you mean {meant}?") if meant else None
