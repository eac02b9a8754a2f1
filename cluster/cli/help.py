"""How --help looks: verbs in the order of their use, options by what they are for, examples and exit codes last."""

import click

from cluster.cli.notes import NOTES
from cluster.cli.shared import SharedCommand

_FILES = frozenset({"config", "env_file", "ssh_config", "accept_new_host_key"})
_OUTPUT = frozenset({"as_json", "verbose", "quiet", "no_color"})
OWN, SETTINGS, FILES, OUTPUT = "Options", "Settings, and their names in .env", "Files and keys", "Output"


class Verbs(click.Group):
    """The group: verbs as they are listed, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class Verb(SharedCommand):
    """A verb: its options in groups, its notes at the end."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for paragraph in NOTES.get(self.name or "", "").strip("\n").split("\n\n"):
            formatter.write_paragraph()
            formatter.write(paragraph + "\n" if paragraph else "")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found: dict[str, list[tuple[str, str]]] = {title: [] for title in (OWN, SETTINGS, FILES, OUTPUT)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                found[_title(parameter.name or "")].append(record)
        for title, records in found.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _title(name: str) -> str:
    if name in _OUTPUT:
        return OUTPUT
    if name in _FILES:
        return FILES
    return SETTINGS if name in ("recipe", "assignments") or name.startswith("set_") else OWN
