"""Options that verbs share; flags become the strongest settings layer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cluster.model.settings import Row, rows

# The settings that are changed often enough to have a flag of their own; any other goes by --set NAME=VALUE.
FLAGS = (
    "serve.model",
    "serve.served_model_name",
    "serve.host",
    "serve.port",
    "serve.master_port",
    "serve.api_key_file",
    "serve.max_model_len",
    "launch.venv",
    "launch.runtime",
    "watch.ready_timeout",
    "watch.hang_seconds",
)


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line said, before any file was read."""

    values: tuple[tuple[str, str, str], ...]  # (setting, text, "option --port")
    recipe: str
    config: Path | None
    env_file: Path | None
    json: bool
    verbose: int
    quiet: bool
    color: bool
    ssh_config: Path | None
    accept_new_host_key: bool


def flag_of(key: str) -> str:
    return "--" + key.partition(".")[2].replace("_", "-")


def collect(given: dict[str, Any]) -> tuple[Options, dict[str, Any]]:
    """The shared options among `given`, and what is the verb's own."""
    return _options(given), {name: value for name, value in given.items() if name not in _NAMES}


def _options(given: dict[str, Any]) -> Options:
    flags = tuple((key, given[_dest(key)], f"option {flag_of(key)}") for key in FLAGS if given[_dest(key)] is not None)
    sets = tuple(_assignment(text) for text in given["assignments"])
    return Options(
        values=(*flags, *sets),
        recipe=given["recipe"] or "",
        config=given["config"],
        env_file=given["env_file"],
        json=given["as_json"],
        verbose=given["verbose"],
        quiet=given["quiet"],
        color=not given["no_color"],
        ssh_config=given["ssh_config"],
        accept_new_host_key=given["accept_new_host_key"],
    )


def _assignment(text: str) -> tuple[str, str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise click.UsageError(f"--set takes NAME=VALUE, not “{text}”")
    return name.strip(), value, f"option --set {name.strip()}"


def _dest(key: str) -> str:
    return "set_" + key.replace(".", "_")


def _flag(row: Row) -> click.Option:
    variable = f" [{row.meta.env}]" if row.meta.env else ""
    names = [flag_of(row.key), _dest(row.key)]
    return click.Option(names, default=None, metavar="VALUE", help=row.meta.help + variable)


def shared_options() -> list[click.Parameter]:
    by_key = {row.key: row for row in rows()}
    path = click.Path(dir_okay=False, path_type=Path)
    return [
        click.Option(["--recipe"], metavar="NAME|FILE", help="Recipe to serve: a name we ship, or a YAML file."),
        *(_flag(by_key[key]) for key in FLAGS),
        click.Option(
            ["--set", "assignments"],
            multiple=True,
            metavar="NAME=VALUE",
            help="Any setting, see docs/settings.md; may be repeated.",
        ),
        click.Option(["--config"], type=path, help="Cluster file instead of ./cluster.yaml."),
        click.Option(["--env-file"], type=path, help="Environment file instead of ./.env."),
        click.Option(["--ssh-config"], type=path, help="OpenSSH client configuration instead of ~/.ssh/config."),
        click.Option(["--accept-new-host-key"], is_flag=True, help="Record the host key of a node never seen before."),
        click.Option(["--json", "as_json"], is_flag=True, help="Events and results as JSON lines (docs/schema)."),
        click.Option(["-v", "--verbose"], count=True, help="Show steps; twice: the developer log too."),
        click.Option(["-q", "--quiet"], is_flag=True, help="Results and errors only."),
        click.Option(["--no-color"], is_flag=True, help="No colours."),
    ]


_NAMES = frozenset(
    {
        "recipe",
        *map(_dest, FLAGS),
        "assignments",
        "config",
        "env_file",
        "ssh_config",
        "accept_new_host_key",
        "as_json",
        "verbose",
        "quiet",
        "no_color",
    }
)
