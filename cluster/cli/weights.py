"""The verbs about packs of weights and the patches of the program that loads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cluster.cli.help import Verb
from cluster.cli.shared import shared
from cluster.errors import Exit
from cluster.model.need import Need

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.cli.invoke import Act, Call
    from cluster.cli.options import Options

LINKS = click.Choice(["symlink", "hardlink", "copy"])


def _size(context: click.Context, parameter: click.Parameter, text: str) -> int:
    from cluster.model.units import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _bytes(name: str, default: str, text: str) -> Callable[[click.decorators.FC], click.decorators.FC]:
    return click.option(name, default=default, metavar="SIZE", show_default=True, callback=_size, help=text)


def _run(options: Options, act: Act) -> None:
    from cluster.cli.invoke import run

    run(options, act, need=Need.NOTHING)


_threads = click.option("--jobs", "-j", type=click.IntRange(1, 64), default=4, show_default=True, help="Files at once.")
_verify = click.option("--verify/--no-verify", default=True, help="Read back and compare every byte (default).")
_reserve = _bytes("--reserve", "10GiB", "Room that must stay free on the disk.")
_dry = click.option("--dry-run", is_flag=True, help="Say what would be done, and how much room it needs.")


@click.command(cls=Verb, short_help="Lay a pack's tensors on a 64-byte grid, in a new folder.")
@click.argument("source")
@click.argument("target", required=False)
@click.option("--align", type=int, default=64, show_default=True, help="The grid, a power of two.")
@_bytes("--min-bytes", "1MiB", "Smaller tensors move no shard.")
@click.option("--skip", multiple=True, metavar="TEXT", help="Tensors with this in their name move no shard; repeatable."
              "  [default: .engram.]")  # fmt: skip
@click.option("--overlay", metavar="DIR", help="Parts to lay beside the shards instead of those in SOURCE/exllamav3.")
@click.option("--parts", type=click.IntRange(0), metavar="N", help="Refuse unless there are so many overlay parts.")
@click.option("--link", type=LINKS, default="symlink", show_default=True, help="How unchanged files get there.")
@_threads
@_verify
@_reserve
@_dry
@click.option("--report", is_flag=True, help="Only say how SOURCE is aligned; changes nothing.")
@_bytes("--threshold", "1GiB", "With --report: how much may be off the grid.")
@shared
def relay(
    options: Options,
    source: str,
    target: str | None,
    align: int,
    min_bytes: int,
    skip: tuple[str, ...],
    overlay: str | None,
    parts: int | None,
    link: str,
    jobs: int,
    verify: bool,
    reserve: int,
    dry_run: bool,
    report: bool,
    threshold: int,
) -> None:
    """Lay a pack's tensors on a 64-byte grid, in a new folder, so that a loader can map them instead of copying.

    Only shards with a large tensor off the grid are written; all else is linked. A second run has nothing to do, and
    mends links that lead nowhere. SOURCE stays as it is, and must stay where it is.
    """

    def act(call: Call) -> int:
        from cluster.app.packs import Order
        from cluster.app.relay import Wanted
        from cluster.app.relay import align as measure
        from cluster.app.relay import relay as lay
        from cluster.weights.relay import SKIP, Rules

        rules = Rules(align, min_bytes, skip or SKIP)
        if report:
            seen = measure(call.settings, call.open_one, source, rules, threshold)
            call.emit(seen)
            return Exit.DONE if seen.ok else Exit.DEGRADED
        order = Order(jobs, verify)
        wanted = Wanted(source, target or "", rules, overlay or "", parts, link, order, reserve, dry_run)
        made = lay(call.settings, call.open_one, call.emit, wanted)
        call.emit(made)
        return Exit.DONE if made.ok else Exit.STEP_FAILED

    if target is None and not report:
        raise click.UsageError("TARGET is missing: the folder of the new pack")
    _run(options, act)


@click.command(cls=Verb, short_help="Say what a pack holds, and what a loader would trip over.")
@click.argument("pack")
@click.option("--k-map", default="", metavar="FILE", help="A plan of widths to hold against the files.")
@shared
def inspect(options: Options, pack: str, k_map: str) -> None:
    """Say what a pack holds, and what a loader would trip over: headers and markers are read, the weights are not.

    Bits per weight of every layer, codebooks, bytes on disk and resident by part of the model; then what is missing,
    surplus or damaged, in the files and against index and configuration.
    """

    def act(call: Call) -> int:
        from cluster.app.inspect import inspect as look

        report = look(call.settings, call.open_one, pack, k_map)
        call.emit(report)
        return Exit.DONE if report.ok else Exit.REFUSED

    _run(options, act)


@click.command(cls=Verb, short_help="Repair the quantization block in a pack's config.json.")
@click.argument("pack")
@click.option(
    "--route",
    type=click.Choice(["a", "b"]),
    default="a",
    show_default=True,
    help="What serves the other weights: a stock server as bf16 (a), or a patched loader as fp8 (b).",
)
@click.option("--dry-run", is_flag=True, help="Show the lines that would change.")
@shared
def packconfig(options: Options, pack: str, route: str, dry_run: bool) -> None:
    """Repair the quantization block in a pack's config.json, from the widths that the files have.

    config.json.bak keeps the first state. A second run finds nothing to change.
    """

    def act(call: Call) -> None:
        from cluster.app.packconfig import packconfig as repair
        from cluster.weights.packconfig import Route

        call.emit(repair(call.settings, call.open_one, pack, Route(route), dry=dry_run))

    _run(options, act)


@click.command(cls=Verb, short_help="Patch the files of an installed package, and take it back.")
@click.argument("what", type=click.Choice(["status", "apply", "revert"]))
@click.argument("patches", metavar="SET|FILE")
@click.option("--root", default="", metavar="DIR", help="The package's own folder instead of the one in VENV.")
@click.option("--any-version", is_flag=True, help="Try a version that the set is not for; every anchor must still fit.")
@shared
def patch(options: Options, what: str, patches: str, root: str, any_version: bool) -> None:
    """Patch the files of an installed package, and take it back.

    A patch finds its place by the structure of the code, and the number of places must be the one it names. All is
    planned before anything is written; one patch that does not fit refuses the whole set. Receipts beside the package
    keep what each file was, and `revert` puts back exactly that, the newest first.
    """

    def act(call: Call) -> int:
        from cluster.app import patch as patching
        from cluster.model.packs import PatchState

        match what:
            case "apply":
                report = patching.apply(call.settings, call.open_one, patches, root, any_version=any_version)
            case "revert":
                report = patching.revert(call.settings, call.open_one, patches, root)
            case _:
                report = patching.status(call.settings, call.open_one, patches, root)
        call.emit(report)
        if what != "status":
            return Exit.DONE
        return {
            PatchState.PATCHED: Exit.DONE,
            PatchState.PRISTINE: Exit.ABSENT,
            PatchState.PARTIAL: Exit.DEGRADED,
        }.get(report.state, Exit.REFUSED)

    _run(options, act)


@click.command(cls=Verb, short_help="Join a rank-sliced pack into one rank's.")
@click.argument("source")
@click.argument("target", required=False)
@click.option("--check", is_flag=True, help="Only hold the joined pack SOURCE against its manifest.")
@click.option("--link", type=LINKS, default="hardlink", show_default=True, help="How unsliced files get there.")
@click.option("--sums/--no-sums", default=True, help="Digests in the manifest, which --check needs (default).")
@_threads
@_verify
@_reserve
@_dry
@shared
def coalesce(
    options: Options,
    source: str,
    target: str | None,
    check: bool,
    link: str,
    sums: bool,
    jobs: int,
    verify: bool,
    reserve: int,
    dry_run: bool,
) -> None:
    """Join a rank-sliced pack into one rank's, without touching a weight.

    Slices are joined along the dimension that each was cut, and what must be equal on all ranks is compared. SOURCE is
    not touched. A second run keeps what is complete; the manifest lists every tensor file with its digest.
    """

    def act(call: Call) -> int:
        from cluster.app.coalesce import Wanted
        from cluster.app.coalesce import check as hold
        from cluster.app.coalesce import coalesce as join
        from cluster.app.packs import Order

        if check:
            report = hold(call.settings, call.open_one, call.emit, source)
            call.emit(report)
            return Exit.DONE if report.ok else Exit.REFUSED
        wanted = Wanted(source, target or "", link, Order(jobs, verify, sums), reserve, dry_run)
        report = join(call.settings, call.open_one, call.emit, wanted)
        call.emit(report)
        return Exit.DONE if report.ok else Exit.STEP_FAILED

    if target is None and not check:
        raise click.UsageError("TARGET is missing: the folder of the new pack")
    _run(options, act)


@click.command(cls=Verb, short_help="Make a small drafting model out of a pack's own.")
@click.argument("source")
@click.argument("target")
@click.option("--plan", required=True, metavar="FILE", help="The plan by which the pack was pruned.")
@click.option("--experts", type=int, default=64, show_default=True, help="Experts that each stage keeps.")
@click.option("--structured", type=click.IntRange(0), default=32, show_default=True,
              help="Of these, for each kind of structured answer.")  # fmt: skip
@_verify
@_reserve
@_dry
@shared
def draft(
    options: Options,
    source: str,
    target: str,
    plan: str,
    experts: int,
    structured: int,
    verify: bool,
    reserve: int,
    dry_run: bool,
) -> None:
    """Make a small drafting model out of a pack's own: some experts of each stage, renumbered, the rest as it is.

    TARGET must not be there; it appears when it is complete. The pack is not touched.
    """

    def act(call: Call) -> int:
        from cluster.app.draft import Wanted, make_draft
        from cluster.app.packs import Order

        order = Order(1, verify, sums=True)
        wanted = Wanted(source, target, plan, experts, structured, order, reserve, dry_run)
        report = make_draft(call.settings, call.open_one, call.emit, wanted)
        call.emit(report)
        return Exit.DONE if report.ok else Exit.STEP_FAILED

    _run(options, act)


VERBS = (relay, inspect, packconfig, coalesce, draft, patch)
