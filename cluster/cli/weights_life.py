"""The verbs of weights as files: fetch, verify, share, weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cluster.cli.help import Verb
from cluster.cli.shared import shared
from cluster.errors import Exit
from cluster.model.need import Need

if TYPE_CHECKING:
    from cluster.cli.invoke import Call
    from cluster.cli.options import Options
    from cluster.model.settings import Settings


@click.command(cls=Verb, short_help="Bring the model's files onto the head, and prove them.")
@click.option("--offline", is_flag=True, help="Ask nobody; list everything that is missing, and exit 4.")
@click.option(
    "--include", "more", multiple=True, metavar="PATTERN", help="Further files of the repository; repeatable."
)
@click.option("--xet", is_flag=True, help="Begin over xet: may be faster, and cannot go on inside a file.")
@click.option(
    "--stall",
    type=click.FloatRange(min=1),
    default=60.0,
    metavar="SECONDS",
    show_default=True,
    help="A file that does not move for so long is tried again, without xet.",
)
@click.option("--reserve", default="1GiB", metavar="SIZE", show_default=True, help="Room that must stay free.")
@click.option("--jobs", "-j", type=click.IntRange(1, 64), default=8, show_default=True, help="Files read at once.")
@shared
def fetch(
    options: Options, offline: bool, more: tuple[str, ...], xet: bool, stall: float, reserve: str, jobs: int
) -> None:
    """Bring the files that the recipe names onto the head, and prove each by its digest.

    Only what a server reads, at one commit. Room is checked before the first byte. An ended fetch goes on inside the
    files it had begun; a second one has nothing to do. Run it on the head.
    """
    import os

    from cluster.cli.invoke import run
    from cluster.model.units import parse_bytes

    try:
        spare = parse_bytes(reserve)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--reserve") from error
    offline = offline or os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on")

    def act(call: Call) -> None:
        from cluster.app.fetch import Wanted
        from cluster.app.fetch import fetch as bring

        check_token(options, call.settings)
        call.emit(bring(call.settings, call.open_one, call.emit, Wanted(offline, xet, stall, more, spare, jobs)))

    run(options, act, need=Need.NODES)


def check_token(options: Options, settings: Settings) -> None:
    """A token that other users of the machine could read is none to go out with."""
    import os
    from pathlib import Path

    from cluster.errors import SettingsError

    token = settings.weights.hf_token
    if token is None or token.reveal() in (os.environ.get("HF_TOKEN"), os.environ.get("SPARKCTL_HF_TOKEN")):
        return
    files = [Path(one) for one in (options.env_file or ".env", options.config or "cluster.yaml") if Path(one).is_file()]
    held = [one for one in files if token.reveal() in one.read_text(encoding="utf-8", errors="replace")]
    if not held:
        raise SettingsError("HF_TOKEN stands where others can read it", fix="give it by the environment or by .env")
    if open_files := [one for one in held if one.stat().st_mode & 0o077]:
        raise SettingsError(
            "other users can read the file with HF_TOKEN", where=str(open_files[0]), fix=f"chmod 600 {open_files[0]}"
        )


@click.command(cls=Verb, short_help="Prove the weights on every node, by content.")
@click.option("--quick", is_flag=True, help="Names, sizes, headers and index only; contents count as not checked.")
@click.option("--again", is_flag=True, help="Read also what was proven before and did not change since.")
@click.option("--jobs", "-j", type=click.IntRange(1, 64), default=8, show_default=True, help="Files at once per node.")
@shared
def verify(options: Options, quick: bool, again: bool, jobs: int) -> None:
    """Prove the weights on every node, by content: sizes, headers, index, and the digest of each file.

    What was proven is remembered until the file changes, and an ended run goes on where it was. Without a fetch's
    manifest the nodes are compared with the head. Changes nothing. Exit code 4 when a file is not what it must be.
    """
    from cluster.cli.invoke import run

    def act(call: Call) -> int:
        from cluster.app.verify import Wanted, failure
        from cluster.app.verify import verify as prove

        report = prove(call.settings, call.open_one, call.emit, Wanted(quick, again, jobs))
        call.emit(report)
        error = failure(report)
        if error is not None:
            raise error
        return Exit.DONE

    run(options, act, need=Need.NODES)


@click.command(cls=Verb, short_help="Make the weights readable on the workers, and prove it.")
@click.option(
    "--backend",
    type=click.Choice(["nfs", "zfs", "rsync", "inplace", "auto"]),
    help="How, instead of what WEIGHT_SYNC says.",
)
@click.option("--detach", is_flag=True, help="Take it back, exactly: what was there before stays.")
@shared
def share(options: Options, backend: str | None, detach: bool) -> None:
    """Make the head's weights readable on the workers, and prove it from where each rank will read them.

    A second run has nothing to do but to prove it again; one that was cut off is gone on with. Random places of every
    file are read on the head and on the worker, inside its container where ranks run in one, and compared.
    """
    from cluster.cli.invoke import run

    def act(call: Call) -> None:
        from cluster.app.share import share as attach
        from cluster.model.kit import Sync

        chosen = Sync(backend) if backend else None
        call.emit(attach(call.settings, call.open_one, call.emit, chosen, detach=detach))

    run(options, act, need=Need.NODES)


@click.command(cls=Verb, short_help="List, pin and remove weights on the nodes.")
@click.argument("action", type=click.Choice(["ls", "pin", "unpin", "prune"]), default="ls")
@click.argument("folder", default="")
@click.option("--reason", default="wanted", show_default=True, metavar="TEXT", help="Why a folder is pinned.")
@click.option("--yes", is_flag=True, help="Remove; without it a prune only says what it would do.")
@shared
def weights(options: Options, action: str, folder: str, reason: str, yes: bool) -> None:
    """List weights on the nodes and who needs them (ls), keep FOLDER on purpose (pin, unpin), or remove (prune).

    Only what sparkctl has fetched is removed, and nothing that the settings name, that a process or a container uses,
    that is pinned, or that is being changed just now. A prune of one FOLDER leaves the others.
    """
    from cluster.cli.invoke import run

    if action in ("pin", "unpin") and not folder:
        raise click.UsageError(f"FOLDER is missing: the one to {action}")

    def act(call: Call) -> None:
        from cluster.app.weights import ls, pin, prune

        if action == "ls":
            call.emit(ls(call.settings, call.open_one, call.emit))
        elif action == "prune":
            call.emit(prune(call.settings, call.open_one, call.emit, folder, yes=yes))
        else:
            call.emit(pin(call.settings, call.open_one, call.emit, folder, reason if action == "pin" else ""))

    run(options, act, need=Need.NODES)


VERBS = (fetch, verify, share, weights)
