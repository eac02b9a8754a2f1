"""The verbs of the Engram tables: pack, and bench engram."""

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
@click.option("--jobs", "-j", type=click.IntRange(1, 64), default=8, show_default=True, help="Threads on every node.")
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


@click.command(cls=Verb, short_help="Measure how fast the model answers, or rows are read.")
@click.argument("what", type=click.Choice(["chat", "engram"]))
@click.option(
    "--requests", type=click.IntRange(1, 10000), default=12, show_default=True, help="chat: questions in all."
)
@click.option("--at-once", type=click.IntRange(1, 256), default=1, show_default=True, help="chat: questions at a time.")
@click.option("--max-tokens", type=click.IntRange(1, 32768), default=256, show_default=True, help="chat: of an answer.")
@click.option(
    "--seconds", type=click.FloatRange(0.1, 60), default=2.0, show_default=True, help="engram: per kind of ids."
)
@click.option("--text", type=click.Path(exists=True, dir_okay=False), help="engram: take n-grams from this file.")
@click.option("--plot", type=click.Path(dir_okay=False), help="engram: draw the rows per second into this SVG file.")
@shared
def bench(
    options: Options,
    what: str,
    requests: int,
    at_once: int,
    max_tokens: int,
    seconds: float,
    text: str | None,
    plot: str | None,
) -> None:
    """Measure how fast the model answers, or each node reads its Engram rows.

    `bench chat` asks the served model from the node that it listens on: tokens a second, time to the first token, time
    between pieces.

    `bench engram` opens the packed files as a server does, and looks rows up: any row, few rows often, and the n-grams
    of a text through the model's own hash, in batches of a decode step and of a prefill.

    Neither changes anything.
    """
    from pathlib import Path

    from cluster.cli.invoke import run

    def act_chat(call: Call) -> int:
        from cluster.app.bench_chat import bench_chat

        report = bench_chat(call.settings, call.open_one, requests=requests, at_once=at_once, max_tokens=max_tokens)
        call.emit(report)
        return Exit.DONE if report.answered == report.requests else Exit.STEP_FAILED

    def act_engram(call: Call) -> int:
        from cluster.app.bench import bench_engram
        from cluster.report.engram import bench_picture

        words = Path(text).read_text("utf-8", "replace") if text else ""
        report = bench_engram(call.settings, call.open_one, call.emit, seconds, words)
        if plot:
            Path(plot).write_text(bench_picture(report), encoding="utf-8")
        call.emit(report)
        return Exit.DONE

    run(options, act_chat if what == "chat" else act_engram, need=Need.NODES)


VERBS = (pack, bench)
