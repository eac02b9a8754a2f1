"""The verb of the Engram tables: pack."""

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


@click.command(cls=Verb, short_help="Put each rank's Engram rows onto its node's disk.")
@click.option("--check", is_flag=True, help="Read every packed file and compare its checksums; write no rows.")
@click.option("--layer", "layers", type=int, multiple=True, metavar="N", help="Only this layer; may be repeated.")
@click.option("--out", default="", metavar="DIR", help="Folder on every node instead of HEAD_PACKED_DIR and the like.")
@click.option("--gentle", is_flag=True, help="Last in line for processor and disk, beside a server that answers.")
@click.option("--jobs", "-j", type=click.IntRange(1, 64), default=4, show_default=True, help="Threads on every node.")
@click.option("--reserve", default="1GiB", metavar="SIZE", show_default=True, help="Room that must stay free.")
@shared
def pack(
    options: Options, check: bool, layers: tuple[int, ...], out: str, gentle: bool, jobs: int, reserve: str
) -> None:
    """Put the Engram rows that each rank owns onto its node's disk, on all nodes at once.

    Each node reads from its own folder of tables and writes past the page cache. A file that is right is left alone;
    after a kill it goes on with what is on the disk. Fills ENGRAM_SRC, when it is set, with links to the tables.
    """
    from cluster.cli.invoke import run
    from cluster.model.units import parse_bytes

    try:
        spare = parse_bytes(reserve)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--reserve") from error

    def act(call: Call) -> int:
        from cluster.app.pack import Wanted, failure
        from cluster.app.pack import pack as begin

        report = begin(call.settings, call.open_one, call.emit, Wanted(check, layers, out, gentle, jobs, spare))
        call.emit(report)
        error = failure(report)
        if error is not None:
            raise error
        return Exit.DONE

    run(options, act, need=Need.NODES)
