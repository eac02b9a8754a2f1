"""The verbs: options and help here, the work in `app`, imported when a verb runs so that --help stays quick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import click

from cluster.cli.checking import doctor, fabric, preflight
from cluster.cli.compose import compose
from cluster.cli.engram import VERBS as ENGRAM
from cluster.cli.export import VERBS as EXPORT
from cluster.cli.help import Verb
from cluster.cli.image import image, with_flags
from cluster.cli.shared import shared
from cluster.cli.weights import VERBS as WEIGHTS
from cluster.cli.weights_life import VERBS as WEIGHTS_LIFE
from cluster.errors import Exit
from cluster.model.need import Need

if TYPE_CHECKING:
    from cluster.cli.invoke import Act, Call
    from cluster.cli.options import Options


def run(options: Options, act: Act, *, need: Need = Need.SERVE, starts: bool = False, watch: bool = False) -> NoReturn:
    from cluster.cli.invoke import run

    run(options, act, need=need, starts=starts, watch=watch)


@click.command(cls=Verb, short_help="Start every rank and wait until the model answers.")
@click.option(
    "--force",
    multiple=True,
    metavar="ID",
    help="Start although the check of this ID refuses; repeatable, and kept in the receipt.",
)
@click.option("--dry-run", is_flag=True, help="Print every step and take none (the same as `sparkctl plan`).")
@click.option("--build", is_flag=True, help="Build the image, whatever is there (containers).")
@click.option("--no-build", is_flag=True, help="Never build the image.")
@click.option("--pull", is_flag=True, help="Pull the image, whatever is there (containers).")
@click.option("--no-pull", is_flag=True, help="Never ask a registry.")
@click.option("--no-ship", is_flag=True, help="Never send the image to a worker.")
@shared
def start(options: Options, force: tuple[str, ...], dry_run: bool, **about_image: bool) -> None:
    """Start every rank and wait until the model answers.

    Checks first and changes nothing when one refuses. A second start has nothing to do. While it waits, Ctrl-C leaves
    the ranks loading: start again waits for them, stop ends them. What fails is removed, and its logs are kept.
    """
    options = with_flags(options, **about_image)
    if dry_run:
        _plan(options)

    def act(call: Call) -> None:
        from cluster.app.start import start as begin

        call.emit(begin(call.settings, call.open_one, call.emit, frozenset(force)))

    run(options, act, starts=True)


@click.command(cls=Verb, short_help="End every rank on every node, and see that it is gone.")
@shared
def stop(options: Options) -> None:
    """End every rank on every node, and see that it is gone.

    Asks first, kills after STOP_GRACE, then looks again and waits for the memory to come back. A node that cannot be
    reached is an error: nothing is called stopped that was not seen to be.
    """

    def act(call: Call) -> None:
        from cluster.app.stop import stop as end

        call.emit(end(call.settings, call.open_one, call.emit))

    run(options, act, need=Need.NODES)


@click.command(cls=Verb, short_help="Check, stop and start again, under one lock.")
@click.option(
    "--force",
    multiple=True,
    metavar="ID",
    help="Start although the check of this ID refuses; repeatable, and kept in the receipt.",
)
@shared
def restart(options: Options, force: tuple[str, ...]) -> None:
    """Stop and start under one lock, after everything that can be checked was checked.

    A check that refuses ends it while the old ranks still serve. Ports are theirs until the stop, and are checked then.
    """

    def act(call: Call) -> None:
        from cluster.app.restart import restart as again

        call.emit(again(call.settings, call.open_one, call.emit, frozenset(force)))

    run(options, act, starts=True)


@click.command(cls=Verb, short_help="Say how the deployment is; the exit code says it too.")
@click.option("--watch", is_flag=True, help="Look again and again, until interrupted.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.5),
    default=5.0,
    metavar="SECONDS",
    show_default=True,
    help="Time between looks.",
)
@shared
def status(options: Options, watch: bool, every: float) -> None:
    """Say how the deployment is: absent, loading, serving, degraded, hung, or cannot tell.

    Serving means that every rank lives and a token was made just now; /health alone proves nothing. Changes nothing.
    """

    def act(call: Call) -> int:
        from cluster.app.status import EXITS, follow
        from cluster.app.status import status as look

        if watch:
            for report in follow(call.settings, call.open_one, call.emit, every):
                call.emit(report)
        report = look(call.settings, call.open_one)
        call.emit(report)
        return EXITS[report.state]

    run(options, act, need=Need.NODES, watch=watch)


@click.command(cls=Verb, short_help="Show the logs of all ranks, interleaved by time.")
@click.option("--rank", "ranks", type=int, metavar="N", multiple=True, help="Only this rank; may be repeated.")
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(min=0),
    default=200,
    metavar="N",
    show_default=True,
    help="Last lines of each rank.",
)
@click.option("--since", metavar="TIME", help="From this time on: UTC like 2026-11-30T17:30, or an age like 10min.")
@click.option("--follow", "-f", is_flag=True, help="Go on with new lines, until interrupted.")
@click.option("--grep", metavar="REGEX", help="Only lines that match.")
@shared
def logs(
    options: Options, ranks: tuple[int, ...], lines: int, since: str | None, follow: bool, grep: str | None
) -> None:
    """Show the logs of all ranks, interleaved by time. The ranks are not touched.

    Each line has its rank and its node in front. Times are UTC, as the node stamped them when the line came.
    """

    def act(call: Call) -> int:
        from cluster.app.logs import Wanted
        from cluster.app.logs import logs as show
        from cluster.cli.since import moment

        wanted = Wanted(ranks, lines, moment(since) if since else None, follow, grep)
        return show(call.settings, call.open_one, call.emit, wanted)

    run(options, act, need=Need.NODES)


@click.command(cls=Verb, short_help="Ask the model 17*19 over its API and check the answer.")
@click.option("--strict", is_flag=True, help="Also ask for an answer that must follow a JSON schema.")
@click.option("--thinking", is_flag=True, help="Also ask with thinking off and on, and look where the thoughts are.")
@click.option("--vision", is_flag=True, help="Also show a test card, and ask what is on it.")
@click.option(
    "--needle", type=click.IntRange(64, 1 << 20), metavar="TOKENS", help="Also hide a phrase in so long a prompt."
)
@click.option("--depth", "depths", type=click.IntRange(0, 100), multiple=True, default=(50,), metavar="PERCENT",
              help="Where to hide it; repeatable.  [default: 50]")  # fmt: skip
@shared
def smoke(
    options: Options, strict: bool, thinking: bool, vision: bool, needle: int | None, depths: tuple[int, ...]
) -> None:
    """Ask the model 17*19 over its API, from its head, and check the answer.

    A right answer is a proof that the pipeline works. It says nothing about how well the model works. The prompt of
    --needle is random, so that no cache knows it, and exactly so long as the server's own /tokenize counts.
    """

    def act(call: Call) -> int:
        from cluster.app.smoke import Wanted
        from cluster.app.smoke import smoke as ask

        report = ask(call.settings, call.open_one, Wanted(strict, thinking, vision, needle, depths))
        call.emit(report)
        return Exit.DONE if report.ok else Exit.STEP_FAILED

    run(options, act)


@click.command(cls=Verb, short_help="Print every step that start would take. Contacts nobody.")
@click.option("--memory", is_flag=True, help="Ask the nodes, and show too what each phase of a boot takes of them.")
@shared
def plan(options: Options, memory: bool) -> None:
    """Print every step that start would take, with its exact command. Contacts nobody without --memory.

    What only the nodes know (an interface, a GID index) is shown as <words> and named in a note. The checks that come
    before, and the wait that comes after, are named in notes too.
    """
    _plan(options, memory=memory)


def _plan(options: Options, *, memory: bool = False) -> None:
    def act(call: Call) -> None:
        from cluster.app.plan import plan as draw

        call.emit(draw(call.settings))
        if memory:
            from cluster.app.memory import fit as measure

            call.emit(measure(call.settings, call.open_one, call.emit))

    run(options, act, starts=True)


@click.command(cls=Verb, short_help="Say whether the model fits the nodes' memory.")
@shared
def fit(options: Options) -> None:
    """Say whether the model fits the nodes' memory, phase by phase, and what the last boot really took.

    Reads only the headers of the model's files on the head, and asks every node what it has and who holds it. Changes
    nothing. Exit code 4 when a start would be refused.
    """

    def act(call: Call) -> int:
        from cluster.app.memory import fit as measure
        from cluster.cli.weights_life import check_token
        from cluster.model.fit import Fit

        check_token(options, call.settings)
        report = measure(call.settings, call.open_one, call.emit)
        call.emit(report)
        return Exit.REFUSED if report.fit in (Fit.SHORT, Fit.NEVER) else Exit.DONE

    run(options, act)


@click.command(cls=Verb, short_help="Show the settings and where each value comes from.")
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@click.option("--all", "everything", is_flag=True, help="Also the settings nobody has set.")
@shared
def config(options: Options, origin: bool, everything: bool) -> None:
    """Show the settings as they would be used. Secrets are masked.

    Only those that somebody has set, without --all. Nothing is contacted, and nothing needs to be complete.
    """
    from cluster.cli.config import show

    show(options, origin=origin, everything=everything)


@click.command(cls=Verb, short_help="Write a first .env from what can be seen on the nodes.")
@click.argument("workers", nargs=-1, metavar="[USER@]HOST[:PORT]...")
@click.option("--output", "-o", type=click.Path(dir_okay=False), help="File to write instead of ./.env.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@shared
def init(options: Options, workers: tuple[str, ...], output: str | None, yes: bool) -> None:
    """Write a first .env from what can be seen on this node and on the workers named.

    This node is the head. With one worker the file is .env, with more it is cluster.yaml, with none it is the demo's
    .env. Shows the file and asks before it writes; never replaces one without asking.
    """
    from cluster.cli.init import write_first

    write_first(options, workers, output, yes=yes)


@click.command(cls=Verb, short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete verbs and options of sparkctl."""
    from click.shell_completion import get_completion_class

    found: Any = get_completion_class(shell)
    click.echo(found(cli=None, ctx_args={}, prog_name="sparkctl", complete_var="_SPARKCTL_COMPLETE").source())


VERBS = (init, config, preflight, fabric, plan, fit, *ENGRAM, image, compose, start, status, logs, smoke, doctor,
         restart, stop, *EXPORT, *WEIGHTS_LIFE, *WEIGHTS, completion)  # fmt: skip
