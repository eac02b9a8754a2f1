"""The verb `sparkctl compose`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cluster.cli.help import Verb
from cluster.cli.shared import shared

if TYPE_CHECKING:
    from cluster.cli.invoke import Call
    from cluster.cli.options import Options


@click.command(cls=Verb, short_help="Print the compose file of each rank's container.")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="Only this rank.")
@shared
def compose(options: Options, rank: int | None) -> None:
    """Print the compose file of each rank's container, as the nodes are now. Starts nothing.

    One document for each node. It names the image by its id there, never holds a secret, and refuses when a folder
    that would be mounted is missing.
    """
    from cluster.cli.invoke import run

    def act(call: Call) -> None:
        from cluster.app.compose import compose as write
        from cluster.app.session import Session

        with Session(call.settings, call.open_one, call.emit) as session:
            call.emit(write(session.need_all(), call.emit, rank))

    run(options, act)
