"""The verbs that look and do not serve: preflight, doctor, fabric test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster.cli.help import Verb
from cluster.cli.shared import shared
from cluster.errors import Exit
from cluster.model.need import Need

if TYPE_CHECKING:
    from cluster.cli.invoke import Call
    from cluster.cli.options import Options


@click.command(cls=Verb, short_help="Check everything that a start would check.")
@click.option("--only", multiple=True, metavar="ID", help="Only this check, or this group, e.g. FABRIC; repeatable.")
@click.option("--for", "purpose", type=click.Choice(["start", "share", "pack", "verify-runtime"]), default="start",
              show_default=True, help="What the checks are for; verify-runtime imports the packages.")  # fmt: skip
@click.option("--force", multiple=True, metavar="ID", help="Do not count a refusal of this check; repeatable.")
@click.option("--explain", multiple=True, metavar="ID", help="Say what a check looks at and why; `all` for all.")
@click.option("--fix", metavar="ID", help="Apply this check's fix, and remember exactly what was changed.")
@click.option("--undo", metavar="ID", help="Take back what --fix changed for this check.")
@shared
def preflight(
    options: Options,
    only: tuple[str, ...],
    purpose: str,
    force: tuple[str, ...],
    explain: tuple[str, ...],
    fix: str | None,
    undo: str | None,
) -> None:
    """Check everything that a start would check, and change nothing.

    Says of each check what was seen, what is wanted, what to type, and where the rule comes from. `start` runs the
    same checks. Checks that could look at nothing say so.
    """
    from cluster.cli.invoke import run

    def act(call: Call) -> int:
        from cluster.app.preflight import preflight as look
        from cluster.plan.contracts import Purpose

        report = look(call.settings, call.open_one, call.emit, only, force, Purpose(purpose))
        call.emit(report)
        return Exit.REFUSED if report.refused else Exit.DONE

    def act_explain(call: Call) -> None:
        from cluster.app.preflight import explain as tell

        call.emit(tell(explain))

    def act_fix(call: Call) -> None:
        from cluster.app.fixes import fix as apply
        from cluster.app.fixes import undo as take_back

        apply_one = apply if fix else take_back
        call.emit(apply_one(call.settings, call.open_one, call.emit, (fix or undo or "").upper()))

    if sum(bool(one) for one in (explain, fix, undo)) > 1:
        raise click.UsageError("--explain, --fix and --undo go one at a time")
    if explain:
        run(options, act_explain, need=Need.NOTHING)
    if fix or undo:
        run(options, act_fix)
    # Weights are shared and packed before there is a server to speak of.
    run(options, act, need=Need.NODES if purpose in ("share", "pack") else Need.SERVE)


@click.command(cls=Verb, short_help="Measure the fabric between the nodes, in ten seconds.")
@click.argument("what", type=click.Choice(["test"]))
@shared
def fabric(options: Options, what: str) -> None:
    """Measure the fabric between the nodes, in ten seconds.

    `fabric test` sends over every way between the nodes, each alone and then all at once, in both directions, with
    small buffers: RDMA writes where ib_write_bw is on all nodes, plain sockets otherwise. A way that could not be
    measured is told apart from one that is slow. Nothing is sent but between the nodes' own fabric addresses.
    """
    from cluster.cli.invoke import run

    def act(call: Call) -> int:
        from cluster.app.fabric import fabric_test

        report = fabric_test(call.settings, call.open_one, call.emit)
        call.emit(report)
        return Exit.DONE if report.ok else Exit.STEP_FAILED

    run(options, act, need=Need.NODES)


@click.command(cls=Verb, short_help="Check everything, and pack what was seen into one file.")
@click.option(
    "--output",
    "-o",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default=Path(),
    help="Folder for the bundle instead of this one.",
)
@shared
def doctor(options: Options, output: Path) -> None:
    """Check everything, and pack what was seen to show it to somebody.

    Reads settings, checks, status, the set-up of every node, kernel logs and the ranks' logs, and changes nothing.
    The bundle is a tar.gz of mode 0600 in which secrets are masked; read it before you send it.
    """
    from cluster.cli.invoke import run

    def act(call: Call) -> int:
        from cluster.app.doctor import doctor as examine
        from cluster.cli.invoke import secrets_of
        from cluster.report import Redactor

        redactor = Redactor(*secrets_of(call.settings))
        checked, bundle = examine(call.settings, call.open_one, call.emit, redactor.text, output)
        if checked:
            call.emit(checked)
        call.emit(bundle)
        return Exit.REFUSED if checked and checked.refused else Exit.DONE

    run(options, act)
