"""The verb `sparkctl image`: the life of the image that containers run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from cluster.cli.help import Verb
from cluster.cli.shared import shared
from cluster.errors import Exit
from cluster.model.need import Need

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.app.session import Session
    from cluster.cli.invoke import Call
    from cluster.cli.options import Options
    from cluster.model.images import ImageReport

# What a flag of `start` sets, as if it stood in .env.
FLAGS = {
    "build": "image.build",
    "no_build": "image.skip_build",
    "pull": "image.pull",
    "no_pull": "image.skip_pull",
    "no_ship": "image.skip_ship",
}
LOOKS = ("ls", "verify")


def with_flags(options: Options, **given: bool) -> Options:
    """The options with the flags of the image among the settings."""
    said = ((FLAGS[name], "true", f"option --{name.replace('_', '-')}") for name, value in given.items() if value)
    return replace(options, values=(*options.values, *said))


@click.command(cls=Verb, short_help="Build, pull, send, compare and prune the image of containers.")
@click.argument("what", type=click.Choice(["ls", "verify", "pull", "build", "ship", "prune"]))
@click.option("--everywhere", is_flag=True, help="Pull on every node, and not on the head alone.")
@click.option("--self-test", is_flag=True, help="Verify: also run the image's own self-test on every node.")
@click.option("--again", is_flag=True, help="Build also when the head's image has the stamp of the recipe.")
@shared
def image(options: Options, what: str, everywhere: bool, again: bool, self_test: bool) -> None:
    """Build, pull, send, compare and prune the image that containers run.

    `ship` sends the head's image to the workers: only the layers they lack, node to node over the fabric; one that was
    cut goes on where it ended. `verify` compares layer by layer and ends with 4 when the nodes differ, or when the
    image's own self-test fails on one. `build` makes it from IMAGE_FOLDER, unless the head has it already. `prune`
    removes what cut shipments left. `ls` and `verify` change nothing.
    """
    from cluster.cli.invoke import run

    def act(call: Call) -> int:
        report = _held(call, _works(everywhere, again, self_test)[what], changes=what not in LOOKS or self_test)
        call.emit(report)
        return Exit.DONE if report.equal or what not in ("verify", "ship") else Exit.REFUSED

    run(options, act, need=Need.NODES)


def _held(call: Call, work: Callable[[Session, Call], ImageReport], *, changes: bool) -> ImageReport:
    from contextlib import nullcontext

    from cluster.app.lock import held
    from cluster.app.session import Session
    from cluster.errors import SettingsError

    if not call.settings.image.name:
        raise SettingsError("IMAGE is not set", fix="set it, e.g. IMAGE=vllm/vllm-openai:v0.33.0")
    session = Session(call.settings, call.open_one, call.emit)
    try:
        session.open().need_all()
        with held(session.head, call.settings, "image", call.emit) if changes else nullcontext():
            return work(session, call)
    finally:
        session.close()


def _works(everywhere: bool, again: bool, self_test: bool) -> dict[str, Callable[[Session, Call], ImageReport]]:
    from cluster.app import image as app
    from cluster.app.check import judge
    from cluster.app.self_test import self_test as tried
    from cluster.model.units import format_bytes

    def build(session: Session, call: Call) -> ImageReport:
        note = app.build_once(session, call.emit, again=again or call.settings.image.build)
        return app.report_of(session, "build", app.look(session), note)

    def pull(session: Session, call: Call) -> ImageReport:
        for node in call.settings.nodes if everywhere else (call.settings.head,):
            app.pull(session, call.emit, node.name, "asked for")
        return app.report_of(session, "pull", app.look(session))

    def verify(session: Session, call: Call) -> ImageReport:
        found = tried(session, call.emit, without_gpu=True) if self_test else []
        judge(found, call.emit, frozenset())
        notes = (*app.against_recipe(session), *(f"{one.node}: {one.observed}" for one in found))
        return app.report_of(session, "verify", app.look(session), *notes)

    def ship(session: Session, call: Call) -> ImageReport:
        shipped = app.send(session, call.emit, app.look(session))
        return replace(app.report_of(session, "ship", app.look(session)), shipped=shipped)

    def prune(session: Session, call: Call) -> ImageReport:
        notes = (f"{name}: {format_bytes(size)} freed" for name, size in app.prune(session).items())
        return app.report_of(session, "prune", app.look(session), *notes)

    return {
        "ls": lambda session, call: app.report_of(session, "ls", app.look(session)),
        "verify": verify,
        "build": build,
        "pull": pull,
        "ship": ship,
        "prune": prune,
    }
