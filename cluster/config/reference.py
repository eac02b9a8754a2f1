"""The settings table as documents: `.env.example`, the page of all settings, the short table of the README."""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from enum import Enum
from itertools import groupby
from typing import Any, get_args, get_origin

from cluster.config.dotenv import quote
from cluster.config.layers import MAPS
from cluster.model.kit import RETIRED
from cluster.model.settings import table
from cluster.model.table import Gid, Row, Secret
from cluster.model.units import Bytes, Seconds
from cluster.model.values import bounds, plain_kind, show

TITLES = {
    "": "Which deployment",
    "head": "The head: rank 0 and the API",
    "worker": "The worker: rank 1 (further nodes stand in cluster.yaml)",
    "serve": "What is served",
    "launch": "How ranks are run",
    "watch": "When a boot or a deployment is ready, hung, or out of time",
    "nccl": "NCCL, the same for all ranks",
    "tuning": "The engine and its kernels",
    "weights": "Where weights come from",
    "image": "The image",
    "container": "Containers",
    "engram": "Engram tables",
    "guard": "The memory guard",
    "exl3": "Native ExLlamaV3",
}

COMMON = (
    "recipe",
    "deployment",
    "head.address",
    "worker.address",
    "worker.user",
    "head.interface",
    "worker.interface",
    "serve.model",
    "serve.served_model_name",
    "serve.host",
    "serve.port",
    "serve.api_key_file",
    "serve.max_model_len",
    "serve.max_num_seqs",
    "serve.extra_args",
    "launch.venv",
    "watch.ready_timeout",
    "watch.hang_seconds",
)

_EXAMPLE_HEAD = """\
# Settings of sparkctl. Copy this file to `.env`, take the `#` off the lines you change, and keep it to
# yourself (chmod 600 .env) when a key or token stands in it. `sparkctl init` writes a first one for you.
#
# The file is parsed, never run: NAME=value, no blanks around `=`, single quotes around anything with blanks,
# quotes, `;`, `&` or `#`; nothing is expanded, and `~` is the home folder on the node whose path it is.
# An option beats SPARKCTL_NAME in the environment, which beats this file, then cluster.yaml, the recipe, the default.
"""

_PAGE_HEAD = """\
# Settings

Generated from the settings table by `python scripts/reference.py --write`.

Each can stand in `.env` by its name, in the environment as `SPARKCTL_NAME`, in `cluster.yaml` by its key (`serve.port`
is `port` below `serve`), and on the command line as `--set NAME=VALUE` with either. The strongest wins: option,
environment, `.env`, `cluster.yaml`, recipe, default. `sparkctl config --origin` shows what came from where.

*Not yet* marks what is read and checked but would do nothing: `sparkctl start` refuses it instead of ignoring it.
"""


def env_example() -> str:
    """Every setting that has a bare name, with its default, all commented out."""
    parts = [_EXAMPLE_HEAD]
    for section, rows in _sections():
        named = [row for row in rows if row.meta.env]
        parts.append(f"\n# --- {TITLES[section]}\n")
        parts += ["\n" + "\n".join(_example_lines(row)) + "\n" for row in named]
    return "".join(parts)


def _example_lines(row: Row) -> Iterator[str]:
    allowed = describe(row)
    yield f"# {row.meta.help} ({allowed})" if allowed != "a text" else f"# {row.meta.help}"
    if row.meta.not_yet:
        yield f"# Not yet: {row.meta.not_yet}."
    yield f"#{row.meta.env}={quote(show(row.default))}"


def settings_page() -> str:
    """All settings, section by section."""
    parts = [_PAGE_HEAD]
    for section, rows in _sections():
        parts.append(f"\n## {TITLES[section]}\n\n{_table(rows)}")
    retired = "".join(f"| `{name}` | {why} |\n" for name, why in sorted(RETIRED.items()))
    parts.append(f"\n## Known and ignored\n\n| name | why |\n|---|---|\n{retired}")
    return "".join(parts)


def common_table() -> str:
    """The settings most people touch, for the README."""
    rows = {row.key: row for row in table()}
    return _table([rows[key] for key in COMMON])


def missing_parts() -> str:
    """What settings wait for, for the README: one line a part, with the first of its settings."""
    waiting: dict[str, list[str]] = {}
    for row in table():
        if row.meta.not_yet:
            waiting.setdefault(row.meta.not_yet, []).append(f"`{row.meta.env or row.key}`")
    return "".join(f"- {part}: {_some(names)}\n" for part, names in waiting.items())


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _table(rows: Iterable[Row]) -> str:
    lines = ["| name | key | default | allowed | what it is |", "|---|---|---|---|---|"]
    for row in rows:
        help_text = f"{row.meta.help}. *Not yet: {row.meta.not_yet}.*" if row.meta.not_yet else row.meta.help
        names = ", ".join(f"`{name}`" for name in (row.meta.env, *row.meta.aliases) if name)
        default = f"`{_cell(show(row.default))}`" if show(row.default) else ""
        lines.append(f"| {names} | `{row.key}` | {default} | {_cell(describe(row))} | {_cell(help_text)} |")
    return "\n".join(lines) + "\n"


def describe(row: Row) -> str:
    """What may be written for it, in a few words."""
    kind, optional = plain_kind(row.kind)
    if row.key in MAPS:
        return "a map, in cluster.yaml or a recipe"
    text = _describe(kind, row)
    return f"{text}; empty: not set" if optional and kind is not Gid else text


def _describe(kind: Any, row: Row) -> str:
    if kind is bool:
        return "yes or no"
    if kind is Gid:
        return "0 to 255, or auto"
    if kind is Secret:
        return "a secret"
    if kind is Bytes:
        return "a size: bytes, or with KiB, MiB, GiB"
    if kind is Seconds:
        return f"a duration: seconds, or with s, min, h; {bounds(row.meta)}"
    if kind in (int, Decimal):
        return bounds(row.meta)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(str(one.value) for one in kind)
    if get_origin(kind) is tuple:
        return "numbers with commas" if get_args(kind)[0] is int else "arguments, quoted as in a shell"
    if row.meta.allowed:
        return row.meta.allowed
    return "a path, absolute or under ~/" if row.meta.is_path else "a text"


def _sections() -> Iterator[tuple[str, list[Row]]]:
    for section, rows in groupby(table(), key=lambda row: row.key.rpartition(".")[0]):
        yield section, list(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
