"""The verbs of weights as files: verify."""

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


VERBS = (verify,)
