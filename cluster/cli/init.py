"""The `init` verb: look at the nodes, propose a file, show it, ask, write it."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster.cli.invoke import Call, run
from cluster.cli.options import Options
from cluster.errors import Exit, SettingsError
from cluster.model.events import Severity, Told
from cluster.model.need import Need
from cluster.model.nodes import NodeSettings

if TYPE_CHECKING:
    from cluster.config.propose import Proposal


def write_first(options: Options, workers: tuple[str, ...], output: str | None, *, yes: bool) -> None:
    def act(call: Call) -> int:
        proposal = _propose(call, workers)
        path = Path(output or proposal.name)
        click.echo(f"# {path}", err=True)
        click.echo(proposal.text, nl=False, err=options.json)
        for question in proposal.questions:
            call.emit(Told(Severity.NOTE, question))
        if not (yes and not path.exists()) and not _agreed(path):
            call.emit(Told(Severity.NOTE, "nothing was written"))
            return Exit.DONE
        _write(path, proposal.text)
        call.emit(Told(Severity.OK, f"wrote {path}; next: sparkctl plan, then sparkctl start"))
        return Exit.DONE

    run(options, act, need=Need.NOTHING)


def _propose(call: Call, workers: tuple[str, ...]) -> "Proposal":
    from cluster.app.look_around import look_around
    from cluster.config.propose import propose

    nodes = [NodeSettings(name="head", control="local")]
    nodes += [NodeSettings(name=control, control=control) for control in workers]
    return propose(look_around(nodes, call.open_one))


def _agreed(path: Path) -> bool:
    if not sys.stdin.isatty():
        raise SettingsError(
            f"{path} exists" if path.exists() else "nobody is there to ask whether to write it",
            where=str(path),
            fix="remove it first, or name another file with --output" if path.exists() else "sparkctl init --yes",
        )
    what = f"Replace {path}?" if path.exists() else f"Write {path}?"
    try:
        return click.confirm(what, default=False, err=True)
    except click.Abort:  # Ctrl-C, or the end of the input
        raise KeyboardInterrupt from None


def _write(path: Path, text: str) -> None:
    """Whole or not at all: a name of its own first, readable by its owner alone."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SettingsError(
            f"cannot write it: {error.strerror}", where=str(path), fix="--output names another"
        ) from error
